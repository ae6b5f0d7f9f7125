//! Names of what ran, for people: as the symbol table has them, and demangled.

mod cache;
mod demangle;
mod swift;

use std::borrow::Cow;

use codec::{
    FunctionId, ModuleId, SessionNs,
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
    /// Its name for people: the symbol demangled, or as it is, or what stands for it: its place in its module
    /// (`libc.so.6+0x86100`), an address `0x…`, `module:index` of a function of which nothing more is known, `?`. Never
    /// empty.
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
                let module = catalog.module_at(*address, at);
                let pretty = of_address(catalog, *address, module).into();
                Named { raw: None, pretty, module: module.and_then(|module| catalog.module_path(module)) }
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
        Some(raw) => {
            let read = || catalog.reading(raw).unwrap_or(raw);
            demangle(raw).map_or_else(|| Cow::Borrowed(read()), Cow::Owned)
        }
        None => {
            let offset = catalog.function(function).map(|(_, offset)| offset);
            let place = offset.and_then(|offset| place(catalog, function.module(), offset));
            place.unwrap_or_else(|| function.to_string()).into()
        }
    };
    Named { raw, pretty, module: catalog.module_path(function.module()) }
}

/// What stands for an address that is in no function.
fn of_address(catalog: &Catalog, address: u64, module: Option<ModuleId>) -> String {
    let place = module.and_then(|id| place(catalog, id, address.wrapping_sub(catalog.module(id)?.base)));
    place.unwrap_or_else(|| format!("{address:#x}"))
}

/// A place in a module.
fn place(catalog: &Catalog, module: ModuleId, offset: u64) -> Option<String> {
    Some(format!("{}+{offset:#x}", file_name(catalog.module_path(module)?)))
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Where what a span is named by begins in its sources: file and line.
pub fn source_of<'a>(catalog: &'a Catalog, span: &Span) -> Option<(&'a str, u32)> {
    source_at(catalog, &span.what, span.start)
}

/// Where what is named so, and ran at this time, begins in its sources: file and line.
pub fn source_at<'a>(catalog: &'a Catalog, what: &What, at: SessionNs) -> Option<(&'a str, u32)> {
    match what {
        What::Function(function) => catalog.source(*function),
        What::Address(address) => catalog.source(catalog.function_at(*address, at)?),
        What::Named(_) | What::Unknown => None,
    }
}

#[cfg(test)]
mod tests;
