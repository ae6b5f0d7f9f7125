//! Sizes, times and counts as people write and read them.

use std::{fmt, str::FromStr, time::Duration};

/// A number of bytes: `4096`, `64k`, `4M`, `2G`; `64KiB`, `4MiB` and `2GiB` are the same, `KB`, `MB` and `GB` powers of
/// ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A span of time: `800ns`, `50us`, `200ms`, `5s`, `10m`, `2h`, `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// A moment, counted from a zero: a [`Period`], or a number without a unit, which counts seconds as printed times do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

const SIZES: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const PERIODS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, &SIZES).map(Self).ok_or_else(|| "expected a size such as 4096, 64KiB or 2GiB".into())
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let nanoseconds = parse(text, &PERIODS).ok_or("expected a time such as 50us, 200ms, 5s, 10m or 2h")?;
        Ok(Self(Duration::from_nanos(nanoseconds)))
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = parse(text, &[("", 1_000_000_000)]).map(Duration::from_nanos);
        let moment = bare.or_else(|| text.parse().ok().map(|Period(time)| time));
        moment.map(Self).ok_or_else(|| "expected a time such as 0.66 (seconds), 20ms or 123456789ns".into())
    }
}

/// A number, possibly with a decimal point, and a unit.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(*factor)?;
    if fraction.is_empty() {
        return (!number.ends_with('.')).then_some(whole);
    }
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = fraction.parse::<u128>().ok()?.checked_mul((*factor).into())?.checked_div(scale)?;
    whole.checked_add(u64::try_from(part).ok()?)
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match units.iter().find(|(_, factor)| self.0 >= *factor) {
            Some((unit, factor)) => write!(f, "{:.1} {unit}", self.0 as f64 / *factor as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match self.0.as_secs() {
            0 if seconds < 1e-3 => write!(f, "{:.1} µs", seconds * 1e6),
            0 => write!(f, "{:.0} ms", seconds * 1e3),
            1..60 => write!(f, "{seconds:.1} s"),
            whole @ 60..3600 => write!(f, "{} min {} s", whole / 60, whole % 60),
            whole => write!(f, "{} h {} min", whole / 3600, whole / 60 % 60),
        }
    }
}

/// A count with a comma before every three digits: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits: Vec<char> = number.to_string().chars().collect();
    let groups: Vec<String> = digits.rchunks(3).rev().map(|group| group.iter().collect()).collect();
    groups.join(",")
}

/// A count of things: `1 thread`, `1,234 threads`.
pub fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64KiB", 65_536),
            ("64k", 65_536),
            ("1.5MiB", 1_572_864),
            ("4M", 4 << 20),
            ("2gb", 2_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for (text, ms) in [("200ms", 200), ("5s", 5000), ("0.5s", 500), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(text.parse(), Ok(Period(Duration::from_millis(ms))), "{text}");
        }
        assert_eq!("123ns".parse(), Ok(Period(Duration::from_nanos(123))));
        for text in ["", "x", "5 parsecs", "-1", "1.2.3", "1.", "99999999999999999999", "99999999TiB", "5"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
        for (text, ns) in [("0.66", 660_000_000), ("7", 7_000_000_000), ("20ms", 20_000_000), ("0.0000000015", 1)] {
            assert_eq!(text.parse(), Ok(Moment(Duration::from_nanos(ns))), "{text}");
        }
        for text in ["", ".", "1.", "-1", "1e9", "5 parsecs", "99999999999999999999"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
        assert!("".parse::<Size>().is_err() && "1e9".parse::<Size>().is_err());
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 2000].map(|number| counted(number, "event")), ["0 events", "1 event", "2,000 events"]);
    }
}
