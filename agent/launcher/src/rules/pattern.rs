//! What a rule is about: functions, modules or source files, by their names.

use codec::text::Glob;

use super::Names;

/// Words before a pattern that say what it is a pattern of. Without one it may be any.
const FUNCTION: &str = "function";
const MODULE: &str = "module";
const SOURCE: &str = "source";

/// What source files end with.
const SOURCE_ENDINGS: [&str; 19] = [
    ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".rs", ".go", ".swift", ".m", ".mm", ".s", ".S", ".d",
    ".f90", ".zig", ".inl",
];

/// A pattern of names.
#[derive(Debug)]
pub(crate) struct Pattern {
    glob: Glob,
    kind: Option<&'static str>,
    /// Whether it has folders in it.
    is_path: bool,
    /// Whether source files are looked up for it. Reading where functions are from takes its time.
    of_sources: bool,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let prefixed = |kind: &&'static str| {
            // `module::f` is a function.
            text.strip_prefix(*kind)?.strip_prefix(':').filter(|rest| !rest.starts_with(':'))
        };
        let kind = [FUNCTION, MODULE, SOURCE].into_iter().find(|kind| prefixed(kind).is_some());
        let glob = kind.as_ref().and_then(prefixed).unwrap_or(text);
        if glob.is_empty() {
            return Err(format!("expected a pattern behind {text}"));
        }
        let is_path = glob.contains('/');
        let looks_like_source = is_path || SOURCE_ENDINGS.iter().any(|ending| glob.ends_with(ending));
        let of_sources = kind == Some(SOURCE) || kind.is_none() && looks_like_source;
        Ok(Self { glob: Glob::new(glob), kind, is_path, of_sources })
    }

    /// Whether it may be of this kind.
    fn may_be(&self, kind: &str) -> bool {
        self.kind.is_none_or(|own| own == kind)
    }

    /// Whether it may be about functions or modules by their names.
    pub(crate) fn is_of_names(&self) -> bool {
        self.kind != Some(SOURCE)
    }

    pub(super) fn is_of_sources(&self) -> bool {
        self.of_sources
    }

    /// Whether it is about a module: by the name of its file, or by its path where the pattern is one.
    pub(crate) fn is_module(&self, path: &str) -> bool {
        let name = if self.is_path { path } else { path.rsplit('/').next().unwrap_or(path) };
        self.may_be(MODULE) && self.glob.matches(name)
    }

    /// Whether it is about a function with any of these names.
    pub(crate) fn is_function(&self, names: &Names<'_>) -> bool {
        self.may_be(FUNCTION) && names.any(|name| self.glob.matches(name))
    }

    /// Whether it is about what is from this file: by its path, or by the end of that from any folder on.
    pub(super) fn is_source(&self, path: &str) -> bool {
        let ends = path.match_indices('/').filter_map(|(at, _)| path.get(at + 1..));
        self.of_sources && [path].into_iter().chain(ends).any(|end| self.glob.matches(end))
    }

    /// What is said where nothing is like it.
    pub(super) fn missing(&self) -> &'static str {
        match self.kind {
            Some(FUNCTION) => "no function that is loaded has such a name",
            Some(MODULE) => "no module that is loaded has such a name",
            Some(_) => "no function that is loaded is known to be from such a file",
            None if self.of_sources => "nothing that is loaded has such a name or is known to be from such a file",
            None => "no module and no function that is loaded has such a name",
        }
    }
}
