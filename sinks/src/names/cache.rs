//! Names that were looked up before.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use ahash::RandomState;
use codec::{
    FunctionId, ModuleId, SessionNs,
    span::{Span, What},
    text::Glob,
};

use super::{Named, UNKNOWN, file_name, of_address, of_function};
use crate::{Budget, Catalog};

/// The names of one session's functions, for those who need them over and over. A name that was not known is asked
/// for again.
#[derive(Debug, Default)]
pub struct NameCache {
    /// Where each function's name is in `known`. Asked for every span.
    functions: HashMap<FunctionId, usize, RandomState>,
    known: Vec<Known>,
    modules: HashMap<ModuleId, Arc<str>>,
    /// The last one that is in no table.
    other: KnownName,
    /// About how many bytes the names take.
    bytes: usize,
    budget: Budget,
}

/// What something is called: [`Named`], to keep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownName {
    /// Its symbol.
    pub raw: Option<Arc<str>>,
    /// Its name for people.
    pub pretty: Arc<str>,
    /// The path of its module.
    pub module: Option<Arc<str>>,
    /// All of it as a part of a line of JSON, once that was asked for.
    pub(crate) json: OnceLock<Box<[u8]>>,
}

impl KnownName {
    fn new(raw: Option<Arc<str>>, pretty: Arc<str>, module: Option<Arc<str>>) -> Self {
        Self { raw, pretty, module, json: OnceLock::new() }
    }

    /// Whether this is what somebody looks for, by its symbol or by its name for people.
    pub fn matches(&self, glob: &Glob) -> bool {
        glob.matches(&self.pretty) || self.raw.as_deref().is_some_and(|raw| glob.matches(raw))
    }

    /// Whether its module is what somebody looks for, by its path or by the name of its file.
    pub fn is_in(&self, glob: &Glob) -> bool {
        self.module.as_deref().is_some_and(|path| glob.matches(path) || glob.matches(file_name(path)))
    }
}

/// A name, and how many functions and modules were known when it was looked up, where one may still come.
#[derive(Debug)]
struct Known {
    name: KnownName,
    until: Option<(usize, usize)>,
}

/// How much a catalog knows: what it could not name it may name when that grows.
fn extent(catalog: &Catalog) -> (usize, usize) {
    (catalog.function_count(), catalog.module_count())
}

/// With more than this it starts anew.
const MOST_BYTES: usize = 64 << 20;

/// What an entry is taken to need beside its names.
const ENTRY_BYTES: usize = 128;

impl NameCache {
    /// One that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, and no more than a budget that others share has room for.
    pub(crate) fn within(budget: Budget) -> Self {
        Self { budget, ..Self::default() }
    }

    /// What a span is called.
    pub fn of(&mut self, catalog: &Catalog, span: &Span) -> &KnownName {
        self.name(catalog, &span.what, span.start)
    }

    /// What `what` is called, which ran at this time.
    pub fn name(&mut self, catalog: &Catalog, what: &What, at: SessionNs) -> &KnownName {
        match what {
            What::Function(function) => self.function(catalog, *function),
            What::Address(address) => self.address(catalog, *address, at),
            What::Named(name) if !name.is_empty() => self.other(None, Arc::clone(name), None),
            What::Named(_) | What::Unknown => self.other(None, UNKNOWN.into(), None),
        }
    }

    /// What a function is called.
    #[inline]
    pub fn function(&mut self, catalog: &Catalog, function: FunctionId) -> &KnownName {
        let found = self.functions.get(&function).copied();
        let place = match found.and_then(|place| Some((place, self.known.get(place)?))) {
            Some((place, known)) if known.until.is_none_or(|until| until == extent(catalog)) => place,
            _ => self.look_up(catalog, function),
        };
        self.known.get(place).map_or(&self.other, |known| &known.name)
    }

    #[inline(never)]
    fn look_up(&mut self, catalog: &Catalog, function: FunctionId) -> usize {
        let Named { raw, pretty, module } = of_function(catalog, function);
        let is_whole = raw.is_some() && (module.is_some() || function.module() == ModuleId(0));
        let module = module.map(|path| self.module(function.module(), path));
        let raw: Option<Arc<str>> = raw.map(Into::into);
        // Mostly both are the same, and need be there only once.
        let pretty = match &raw {
            Some(raw) if **raw == *pretty => Arc::clone(raw),
            _ => pretty.into(),
        };
        // As a part of a line it may be there once more.
        let texts = raw.iter().chain([&pretty]).map(|text| text.len().saturating_mul(2));
        self.make_room(texts.chain(module.iter().map(|path| path.len())).fold(0, usize::saturating_add));
        let until = (!is_whole).then(|| extent(catalog));
        let known = Known { name: KnownName::new(raw, pretty, module), until };
        let next = self.known.len();
        let place = *self.functions.entry(function).or_insert(next);
        match self.known.get_mut(place) {
            Some(slot) => *slot = known,
            None => self.known.push(known),
        }
        place
    }

    fn address(&mut self, catalog: &Catalog, address: u64, at: SessionNs) -> &KnownName {
        let module = catalog.module_at(address, Some(at));
        let offset = |id| Some(address.wrapping_sub(catalog.module(id)?.base));
        let function = module.and_then(|id| catalog.function_in(id, offset(id)?));
        if let Some(function) = function {
            return self.function(catalog, function);
        }
        let path = module.and_then(|id| Some(self.module(id, catalog.module_path(id)?)));
        self.other(None, of_address(catalog, address, module).into(), path)
    }

    fn module(&mut self, id: ModuleId, path: &str) -> Arc<str> {
        match self.modules.get(&id) {
            Some(known) if **known == *path => Arc::clone(known),
            _ => {
                let path: Arc<str> = path.into();
                self.make_room(path.len());
                self.modules.insert(id, Arc::clone(&path));
                path
            }
        }
    }

    fn other(&mut self, raw: Option<Arc<str>>, pretty: Arc<str>, module: Option<Arc<str>>) -> &KnownName {
        self.other = KnownName::new(raw, pretty, module);
        &self.other
    }

    fn make_room(&mut self, bytes: usize) {
        let bytes = bytes.saturating_add(ENTRY_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST_BYTES || !self.budget.take(bytes as u64) {
            (self.functions, self.known, self.modules) = Default::default();
            self.bytes = bytes;
            self.budget.release(u64::MAX);
            // Where others have it all, this one takes room for one name at a time.
            self.budget.take(bytes as u64);
        }
    }
}
