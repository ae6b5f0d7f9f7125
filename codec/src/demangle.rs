//! Symbols of C++ and Rust as their languages write them.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// A longer symbol stays as it is.
pub const MOST_SYMBOL_BYTES: usize = 4096;

/// A symbol whose name is longer stays as it is: a few bytes of hostile symbol can stand for gigabytes.
const MOST_NAME_BYTES: usize = 16 << 10;

/// How deep names may be nested.
const MOST_DEPTH: u32 = 80;

/// The name that a C++ or Rust symbol stands for: C++ with parameters and without what it returns, Rust without the
/// hash. Nothing where it is no such symbol, or one that is not understood.
pub fn demangle(symbol: &str) -> Option<String> {
    if symbol.len() > MOST_SYMBOL_BYTES {
        return None;
    }
    let name = match symbol.as_bytes() {
        [b'_', b'R', ..] => rust(symbol),
        [b'_', b'Z', b'N', ..] if has_hash(symbol) => rust(symbol).or_else(|| cpp(symbol)),
        [b'_', b'Z', ..] => cpp(symbol),
        _ => None,
    };
    name.filter(|name| !name.is_empty())
}

/// Whether it ends as the old symbols of Rust do: `17h`, 16 digits, `E`. Without, C++ would be taken for Rust.
fn has_hash(symbol: &str) -> bool {
    let is_hash = |rest: &str| {
        let mut bytes = rest.bytes();
        let digits = bytes.by_ref().take(16).filter(u8::is_ascii_hexdigit).count();
        digits == 16 && bytes.next() == Some(b'E')
    };
    symbol.rmatch_indices("17h").any(|(at, mark)| symbol.get(at.saturating_add(mark.len())..).is_some_and(is_hash))
}

fn rust(symbol: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut text = Bounded::default();
    write!(text, "{name:#}").ok()?;
    Some(text.0)
}

fn cpp(symbol: &str) -> Option<String> {
    let options = ParseOptions::default().recursion_limit(MOST_DEPTH);
    let symbol = Symbol::new_with_options(symbol, &options).ok()?;
    let mut text = Bounded::default();
    let options = DemangleOptions::new().no_return_type().recursion_limit(MOST_DEPTH);
    symbol.structured_demangle(&mut text, &options).ok()?;
    Some(text.0)
}

/// Text that does not grow without end.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len().saturating_add(text.len()) > MOST_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}
