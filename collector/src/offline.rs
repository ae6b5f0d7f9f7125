//! Looking at what was written.

pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod info;
pub(crate) mod repair;
pub(crate) mod spans;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod top;
pub(crate) mod tree;
pub(crate) mod verify;

mod birth_call;
mod family;
mod histogram;
mod loss;
mod options;
mod scan;
mod screen;
mod spanning;
mod swift_names;
mod trace;
mod turned_down;

use std::{
    io::{self, ErrorKind, Write},
    path::Path,
};

use anyhow::{Context, Result};

pub(crate) use codec::text::printable;

/// The id of the session in a directory, or of the latest of those in it.
pub(crate) fn session_in(dir: &Path) -> Result<String> {
    let trace = trace::Trace::open(dir)?;
    trace.manifest.session.with_context(|| format!("{}: the session has no id", trace.dir.display()))
}

/// Whoever reads our output may stop early: that is no failure.
pub(crate) fn ended_early(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// The same for an error that came a longer way.
fn quiet(result: Result<()>) -> Result<()> {
    let is_end = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    result.or_else(|error| if error.downcast_ref().is_some_and(is_end) { Ok(()) } else { Err(error) })
}

/// Writes a text at once, and tells whether anybody still reads.
fn tell(out: &mut impl Write, text: &str) -> io::Result<bool> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true),
    }
}

/// A time in seconds, to the nanosecond.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// A number of nanoseconds for people, with what is left out of it less than a thousandth.
fn duration(ns: u64) -> String {
    let (unit, factor) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    format!("{}.{:03} {unit}", ns / factor, ns % factor / (factor / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let times = [0, 999, 1_000, 1_234_567, 999_999_999, 3_600_000_000_000].map(duration);
        assert_eq!(times, ["0 ns", "999 ns", "1.000 µs", "1.234 ms", "999.999 ms", "3600.000 s"]);
    }
}
