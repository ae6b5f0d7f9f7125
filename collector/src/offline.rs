//! Looking at what was written.

pub(crate) mod events;
pub(crate) mod info;
pub(crate) mod repair;
pub(crate) mod verify;

mod glob;
mod trace;

use std::io::{self, ErrorKind, Write};

/// Whoever reads our output may stop early: that is no failure.
pub(crate) fn ended_early(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes a text at once, and tells whether anybody still reads.
fn tell(out: &mut impl Write, text: &str) -> io::Result<bool> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true),
    }
}

/// A text from a trace as a terminal may get it: what would move its cursor or turn its lines around is escaped.
fn printable(text: &str) -> String {
    let turns = |c| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || turns(c) {
            true => clean.extend(c.escape_default()),
            false => clean.push(c),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_reaches_a_terminal() {
        assert_eq!(printable("grün – ok"), "grün – ok");
        assert_eq!(printable("a\u{1b}[2J\u{9b}\n\u{7f}"), "a\\u{1b}[2J\\u{9b}\\n\\u{7f}");
        assert_eq!(printable("\u{202e}x"), "\\u{202e}x");
    }
}
