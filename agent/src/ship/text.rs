//! Text that is too long.

/// What stands at the end of a name that was cut.
const CUT: &str = "…";

/// The start of a text, of at most so many bytes.
pub(crate) fn cut(text: &str, most_bytes: usize) -> &str {
    let end = (0..=most_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or(text)
}

/// Cuts a name that is longer than so many bytes, and shows that it was.
pub(super) fn shortened(name: &str, most_bytes: usize) -> Option<String> {
    (name.len() > most_bytes).then(|| format!("{}{CUT}", cut(name, most_bytes.saturating_sub(CUT.len()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!((cut("aé", 2), cut("aé", 3), cut("", 5)), ("a", "aé", ""));
        assert_eq!(shortened("aébcdef", 8), None);
        assert_eq!(shortened("aébcdef", 7).as_deref(), Some("aéb…"));
        assert_eq!(shortened("aébcdef", 5).as_deref(), Some("a…"));
    }
}
