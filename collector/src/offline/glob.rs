//! Patterns for names.

/// A pattern in which `*` stands for any characters and `?` for one.
#[derive(Debug, Clone)]
pub(super) struct Glob(Vec<char>);

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        Self(pattern.chars().collect())
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut at, mut here) = (0, 0);
        // Where the last star is, and where what it stands for ends.
        let mut star: Option<(usize, usize)> = None;
        while here < name.len() {
            match (self.0.get(at), star) {
                (Some('*'), _) => {
                    star = Some((at, here));
                    at += 1;
                }
                (Some(expected), _) if *expected == '?' || Some(expected) == name.get(here) => {
                    at += 1;
                    here += 1;
                }
                (_, Some((back, end))) => {
                    star = Some((back, end + 1));
                    (at, here) = (back + 1, end + 1);
                }
                (_, None) => return false,
            }
        }
        self.0.iter().skip(at).all(|rest| *rest == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_they_say() {
        for (pattern, name) in [
            ("main", "main"),
            ("*", ""),
            ("*", "x"),
            ("a*c", "abbc"),
            ("a?c", "abc"),
            ("*b*", "abc"),
            ("*aab", "aaaab"),
        ] {
            assert!(Glob::new(pattern).matches(name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("main", "mai"), ("main", "main2"), ("?", ""), ("a*c", "abd"), ("", "x"), ("*aab", "aaba")]
        {
            assert!(!Glob::new(pattern).matches(name), "{pattern} {name}");
        }
    }
}
