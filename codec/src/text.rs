//! Text of a bounded length.

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
}
