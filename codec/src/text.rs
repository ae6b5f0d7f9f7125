//! Text of a bounded length, text for terminals, and patterns.

use std::borrow::Cow;

const MARK: &str = "…";

/// As much of the start of a text as fits `most` bytes, whole characters only.
pub fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// A text of at most `most` bytes: a longer one ends with `…`.
pub fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    match text.len() <= most {
        true => text.into(),
        false => format!("{}{MARK}", cut(text, most.saturating_sub(MARK.len()))).into(),
    }
}

/// Whether a character would move a terminal's cursor or turn its lines around.
fn is_hidden(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

/// A text from outside as people may be shown it: hidden characters are escaped.
pub fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) {
            true => clean.extend(c.escape_default()),
            false => clean.push(c),
        }
    }
    clean
}

/// The same of JSON in one line, where all such characters are in texts: what is read from it stays the same.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    // Below those, JSON has none.
    if !json.bytes().any(|byte| byte >= 0x7f) {
        return json.into();
    }
    let mut clean = String::with_capacity(json.len());
    for c in json.chars() {
        match is_hidden(c) {
            true => clean.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => clean.push(c),
        }
    }
    clean.into()
}

/// A pattern for whole names, in which `*` stands for any characters and `?` for one.
#[derive(Debug, Clone)]
pub struct Glob(Vec<char>);

impl Glob {
    /// A pattern.
    pub fn new(pattern: &str) -> Self {
        Self(pattern.chars().collect())
    }

    /// Whether a name is of this form.
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut at, mut here) = (0_usize, 0_usize);
        // Where the last star is, and where what it stands for ends.
        let mut star: Option<(usize, usize)> = None;
        while let Some(c) = name.get(here) {
            match (self.0.get(at), star) {
                (Some('*'), _) => {
                    star = Some((at, here));
                    at = at.saturating_add(1);
                }
                (Some(expected), _) if *expected == '?' || expected == c => {
                    (at, here) = (at.saturating_add(1), here.saturating_add(1));
                }
                (_, Some((back, end))) => {
                    let end = end.saturating_add(1);
                    star = Some((back, end));
                    (at, here) = (back.saturating_add(1), end);
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
    fn no_character_is_cut_in_two() {
        assert_eq!((cut("aä", 3), cut("aä", 2), cut("aä", 0), cut("", 9)), ("aä", "a", "", ""));
        assert_eq!(shorten("äääää", 10), "äääää");
        assert_eq!(shorten("äääää", 9), "äää…");
        assert_eq!(shorten("äääää", 8), "ää…");
    }

    #[test]
    fn no_control_character_reaches_a_terminal() {
        assert_eq!(printable("grün – ok"), "grün – ok");
        assert_eq!(printable("a\u{1b}[2J\u{9b}\n\u{7f}"), "a\\u{1b}[2J\\u{9b}\\n\\u{7f}");
        assert_eq!(printable("\u{202e}x\u{200f}"), "\\u{202e}x\\u{200f}");
        assert_eq!(printable_json("[\"ä\\n\u{202e}\u{9b}\"]"), "[\"ä\\n\\u202e\\u009b\"]");
    }

    #[test]
    fn globs_match_whole_names() {
        for (glob, name, expected) in [
            ("libc.so*", "libc.so.6", true),
            ("libc.so*", "xlibc.so.6", false),
            ("*alloc", "malloc", true),
            ("*alloc", "mallocs", false),
            ("m?lloc", "mälloc", true),
            ("*a*b*c", "xxaxxbxxbc", true),
            ("*a*b*c", "xxaxxbxxb", false),
            ("*aab", "aaaab", true),
            ("*aab", "aaba", false),
            ("main", "mai", false),
            ("*", "", true),
            ("?", "", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(Glob::new(glob).matches(name), expected, "{glob} {name}");
        }
    }
}
