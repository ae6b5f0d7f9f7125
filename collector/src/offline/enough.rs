//! That enough was printed.

use std::fmt;

/// Enough was printed. It is handed up as an error, and is none.
#[derive(Debug)]
pub(super) struct Enough;

impl fmt::Display for Enough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("enough was printed")
    }
}

impl std::error::Error for Enough {}
