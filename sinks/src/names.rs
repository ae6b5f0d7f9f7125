//! Names of what ran, for people: as the symbol table has them, and demangled.

mod cache;
mod demangle;
mod swift;

use std::borrow::Cow;

use codec::{
    FunctionId, SessionNs,
    span::{Span, What},
};

pub use cache::{KnownName, NameCache};
pub use demangle::demangle;

use crate::Catalog;

/// What something is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named<'a> {
    /// Its symbol, as the table has it.
    pub raw: Option<&'a str>,
    /// Its name for people: the symbol demangled, or as it is, or what stands for it: an address `0x…`,
    /// `module:index` of a function without a name, `?`. Never empty.
    pub pretty: Cow<'a, str>,
    /// The path of the module that it is in.
    pub module: Option<&'a str>,
}

/// What `what` is called, by what the catalog knows now. An address is looked up in all modules there were.
pub fn name<'a>(catalog: &'a Catalog, what: &'a What) -> Named<'a> {
    name_at(catalog, what, None)
}

/// What a span is called. Its time says which module was at an address then.
pub fn name_of<'a>(catalog: &'a Catalog, span: &'a Span) -> Named<'a> {
    name_at(catalog, &span.what, Some(span.start))
}

fn name_at<'a>(catalog: &'a Catalog, what: &'a What, at: Option<SessionNs>) -> Named<'a> {
    match what {
        What::Function(function) => of_function(catalog, *function),
        What::Address(address) => match catalog.function_near(*address, at) {
            Some(function) => of_function(catalog, function),
            None => {
                let module = catalog.module_at(*address, at).and_then(|module| catalog.module_path(module));
                Named { raw: None, pretty: format!("{address:#x}").into(), module }
            }
        },
        What::Named(name) if !name.is_empty() => Named { raw: None, pretty: (&**name).into(), module: None },
        What::Named(_) | What::Unknown => Named { raw: None, pretty: UNKNOWN.into(), module: None },
    }
}

/// The name of what has none.
const UNKNOWN: &str = "?";

fn of_function(catalog: &Catalog, function: FunctionId) -> Named<'_> {
    let raw = catalog.function_name(function).filter(|name| !name.is_empty());
    let pretty = match raw {
        Some(raw) => demangle(raw).map_or(Cow::Borrowed(raw), Cow::Owned),
        None => function.to_string().into(),
    };
    Named { raw, pretty, module: catalog.module_path(function.module()) }
}

#[cfg(test)]
mod tests;
