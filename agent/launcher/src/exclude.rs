//! What the user wants left out.

/// What the user wants left out: modules by their file names, and functions by any of their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exclude(Vec<String>);

impl Exclude {
    pub(crate) fn new(globs: &[String]) -> Self {
        Self(globs.to_vec())
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
        self.0.iter().any(|glob| matches(glob.as_bytes(), name.as_bytes()))
    }
}

/// Whether a name is of the form that a glob says: `*` stands for any characters, `?` for one.
fn matches(glob: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on when what was taken so far turns out wrong: behind the last star, which then takes one more.
    let mut retry = None;
    while from < name.len() {
        match glob.get(at) {
            Some(b'*') => {
                retry = Some((at + 1, from));
                at += 1;
            }
            Some(wanted) if *wanted == b'?' || *wanted == name[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((star, taken)) = retry else { return false };
                retry = Some((star, taken + 1));
                (at, from) = (star, taken + 1);
            }
        }
    }
    glob[at..].iter().all(|rest| *rest == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        for (glob, name, expected) in [
            ("libc.so*", "libc.so.6", true),
            ("libc.so*", "xlibc.so.6", false),
            ("*alloc", "malloc", true),
            ("*alloc", "mallocs", false),
            ("m?lloc", "malloc", true),
            ("*a*b*c", "xxaxxbxxbc", true),
            ("*a*b*c", "xxaxxbxxb", false),
            ("*", "", true),
            ("?", "", false),
            ("", "", true),
        ] {
            assert_eq!(matches(glob.as_bytes(), name.as_bytes()), expected, "{glob} {name}");
        }
        let exclude = Exclude::new(&["libm.so*".into(), "_Z*".into()]);
        assert!(exclude.module("/usr/lib/libm.so.6") && !exclude.module("/usr/libm.so/libc.so.6"));
        assert!(exclude.function(&["main", "_ZN3fooEv"]) && !exclude.function(&[]));
    }
}
