//! Names in symbols of Swift, which share the words that they are made of.

/// The words of the names so far. A name may use them instead of writing them out.
#[derive(Debug, Default)]
pub(super) struct Words<'t> {
    words: Vec<&'t str>,
}

/// There are letters for so many.
const MOST_WORDS: usize = 26;
/// A word of one letter would not be shorter by it.
const LEAST_BYTES: usize = 2;
/// Words used over and over make no name longer than this.
const MOST_BYTES: usize = 4096;

impl<'t> Words<'t> {
    /// The name that starts here: a length and as many bytes, or words and such in turns where it starts with a `0`.
    pub(super) fn identifier(&mut self, text: &'t [u8], at: &mut usize) -> Option<String> {
        let mut words = take(text, at, b'0');
        // What is not ASCII has a code of its own.
        if words && text.get(*at) == Some(&b'0') {
            return None;
        }
        let mut name = String::new();
        loop {
            while let Some(letter) = text.get(*at).filter(|letter| words && letter.is_ascii_alphabetic()) {
                *at += 1;
                words = letter.is_ascii_lowercase();
                let word = usize::from(letter.to_ascii_lowercase() - b'a');
                name.push_str(self.words.get(word)?);
            }
            if take(text, at, b'0') {
                break;
            }
            let length = number(text, at)?;
            let end = at.checked_add(length)?;
            let piece = std::str::from_utf8(text.get(*at..end)?).ok()?;
            *at = end;
            name.push_str(piece);
            self.learn(piece);
            if !words || name.len() > MOST_BYTES {
                break;
            }
        }
        (!name.is_empty() && name.len() <= MOST_BYTES).then_some(name)
    }

    /// Words start with anything but a digit or `_`, and end before a `_` or a large letter behind another.
    fn learn(&mut self, piece: &'t str) {
        let bytes = piece.as_bytes();
        let mut start = None;
        for at in 0..=bytes.len() {
            let byte = bytes.get(at).copied().unwrap_or(b'_');
            let before = at.checked_sub(1).and_then(|before| bytes.get(before)).copied().unwrap_or(b'_');
            let ends = byte == b'_' || (byte.is_ascii_uppercase() && !before.is_ascii_uppercase());
            if let Some(from) = start.filter(|_| ends) {
                if at - from >= LEAST_BYTES && self.words.len() < MOST_WORDS {
                    self.words.extend(piece.get(from..at));
                }
                start = None;
            }
            if start.is_none() && byte != b'_' && !byte.is_ascii_digit() {
                start = Some(at);
            }
        }
    }
}

fn take(text: &[u8], at: &mut usize, byte: u8) -> bool {
    let there = text.get(*at) == Some(&byte);
    *at += usize::from(there);
    there
}

/// A number that is not 0.
fn number(text: &[u8], at: &mut usize) -> Option<usize> {
    let mut number = 0_usize;
    while let Some(digit) = text.get(*at).filter(|byte| byte.is_ascii_digit()) {
        number = number.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
        *at += 1;
    }
    (number > 0).then_some(number)
}
