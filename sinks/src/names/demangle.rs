//! Symbols as their languages write them.

use codec::demangle::MOST_SYMBOL_BYTES;

use super::swift;

/// The name that a C++, Rust or Swift symbol stands for: C++ with parameters and without what it returns, Rust
/// without the hash. Nothing where it is no such symbol, or one that is not understood.
pub fn demangle(symbol: &str) -> Option<String> {
    match symbol.as_bytes() {
        [b'$', b's' | b'S', ..] | [b'_', b'$', b's' | b'S', ..] if symbol.len() <= MOST_SYMBOL_BYTES => {
            swift::demangle(symbol).filter(|name| !name.is_empty())
        }
        _ => codec::demangle::demangle(symbol),
    }
}
