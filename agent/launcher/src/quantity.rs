//! Sizes and times as people write them.

use std::{fmt, str::FromStr, time::Duration};

/// A number of bytes: `4096`, `64k`, `4M`, `1G`; `64KiB`, `4MiB` and `1GiB` are the same, `KB`, `MB` and `GB` powers of ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// A span of time: `200ms`, `5s`, `10m`, `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Period(pub(crate) Duration);

const SIZES: [(&str, u64); 11] = [
    ("", 1),
    ("B", 1),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

const PERIODS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, &SIZES).map(Self).ok_or_else(|| "expected a size such as 4096, 64k or 4MiB".into())
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let milliseconds = parse(text, &PERIODS).ok_or("expected a time such as 200ms, 5s, 10m or 2h")?;
        Ok(Self(Duration::from_millis(milliseconds)))
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
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    whole.checked_add(fraction.parse::<u64>().ok()?.checked_mul(*factor)? / scale)
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

/// A count with its thousands apart: `1,234,567`.
pub(crate) fn count(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read() {
        for (text, bytes) in
            [("4096", 4096), ("64k", 65_536), ("1.5MiB", 1_572_864), ("4M", 4 << 20), ("2gb", 2_000_000_000)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for (text, ms) in [("200ms", 200), ("5s", 5000), ("0.5s", 500), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(text.parse(), Ok(Period(Duration::from_millis(ms))), "{text}");
        }
        for text in ["", "x", "5 parsecs", "-1", "1.2.3", "1.", "99999999999999999999", "5"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
        assert!("".parse::<Size>().is_err() && "1e9".parse::<Size>().is_err());
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
