//! Looking at what was written.

pub(crate) mod events;
pub(crate) mod info;
pub(crate) mod repair;
pub(crate) mod verify;

mod glob;
mod trace;

use std::io::{self, ErrorKind};

/// Whoever reads our output may stop early: that is no failure.
pub(crate) fn ended_early(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
