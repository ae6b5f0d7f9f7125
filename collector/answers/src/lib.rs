//! What a trace on disk answers: its events, its spans, what its functions took and who called them.
//!
//! Commands and the viewer ask here, and get the same numbers. Nothing here prints.

#![forbid(unsafe_code)]

pub mod around;
pub mod birth_call;
pub mod callers;
pub mod calls;
pub mod diff;
pub mod export;
pub mod family;
pub mod filter;
pub mod histogram;
pub mod live;
pub mod loss;
pub mod options;
pub mod overview;
pub mod scan;
pub mod sessions;
pub mod spanning;
pub mod spread;
pub mod stats;
pub mod top;
pub mod trace;
pub mod turned_down;

#[cfg(test)]
mod scene;
mod swift_names;

pub use codec::text::printable;

/// A time in seconds, to the nanosecond.
pub fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// A number of nanoseconds for people, with what is left out of it less than a thousandth.
pub fn duration(ns: u64) -> String {
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
