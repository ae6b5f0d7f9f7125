//! What the user wants left out.

use codec::text::Glob;

/// What the user wants left out: modules by their file names, and functions by any of their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exclude(Vec<Glob>);

impl Exclude {
    pub(crate) fn new(globs: &[String]) -> Self {
        Self(globs.iter().map(|glob| Glob::new(glob)).collect())
    }

    /// Whether a whole module is left out, by the last part of its path.
    pub(crate) fn module(&self, path: &str) -> bool {
        self.matches(path.rsplit('/').next().unwrap_or(path))
    }

    /// Whether a function is left out, by any of its names.
    pub(crate) fn function(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.matches(name))
    }

    fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_go_by_their_file_names_and_functions_by_any_name() {
        let exclude = Exclude::new(&["libm.so*".into(), "_Z*".into()]);
        assert!(exclude.module("/usr/lib/libm.so.6") && !exclude.module("/usr/libm.so/libc.so.6"));
        assert!(exclude.function(&["main", "_ZN3fooEv"]) && !exclude.function(&[]));
    }
}
