//! What the user wants left out.

use std::sync::atomic::{AtomicBool, Ordering};

use codec::text::Glob;

/// What the user wants left out: modules by their file names, and functions by any of their names.
#[derive(Debug, Default)]
pub(crate) struct Exclude(Vec<Pattern>);

#[derive(Debug)]
struct Pattern {
    text: String,
    glob: Glob,
    has_matched: AtomicBool,
}

impl Exclude {
    pub(crate) fn new(globs: &[String]) -> Self {
        let pattern = |text: &String| Pattern { text: text.clone(), glob: Glob::new(text), has_matched: false.into() };
        Self(globs.iter().map(pattern).collect())
    }

    /// Whether a whole module is left out, by the last part of its path.
    pub(crate) fn module(&self, path: &str) -> bool {
        self.matches(&[path.rsplit('/').next().unwrap_or(path)])
    }

    /// Whether a function is left out, by any of its names.
    pub(crate) fn function(&self, names: &[&str]) -> bool {
        self.matches(names)
    }

    /// Says which patterns have matched nothing so far.
    pub(crate) fn warn_of_unmatched(&self) {
        // ORDERING: the threads that plan have been joined.
        for pattern in self.0.iter().filter(|pattern| !pattern.has_matched.load(Ordering::Relaxed)) {
            say!("--exclude {}: no module and no function that is loaded has such a name", pattern.text);
        }
    }

    fn matches(&self, names: &[&str]) -> bool {
        let mut any = false;
        // Each is tried: one that others make needless has matched all the same.
        for pattern in &self.0 {
            if names.iter().any(|name| pattern.glob.matches(name)) {
                // ORDERING: read when all is planned.
                pattern.has_matched.store(true, Ordering::Relaxed);
                any = true;
            }
        }
        any
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
