//! Names for sessions. Nothing in them comes from the wire.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Names sessions by the time and a number: `20260102-030405-1`.
#[derive(Debug, Default)]
pub(crate) struct Names {
    given: u64,
}

impl Names {
    /// The next name, and the time in it.
    pub(crate) fn next(&mut self) -> (String, Duration) {
        self.given += 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (format!("{}-{}", stamp(now.as_secs()), self.given), now)
    }
}

/// A time as `YYYYMMDD-HHMMSS`, UTC.
fn stamp(unix_seconds: u64) -> String {
    let (year, month, day) = civil(unix_seconds / 86_400);
    let second = unix_seconds % 86_400;
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// The date of a day counted from 1970-01-01. Years are taken to start in March, so that leap days come last.
fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (seconds, text) in [
            (0, "19700101-000000"),
            (951_782_400, "20000229-000000"),
            (1_767_225_599, "20251231-235959"),
            (1_772_323_200, "20260301-000000"),
            (4_107_542_400, "21000301-000000"),
        ] {
            assert_eq!(stamp(seconds), text);
        }
    }
}
