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
    date_and_time(unix_seconds).replace(['-', ':'], "").replace(' ', "-")
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

/// A time as people read it, UTC.
pub(crate) fn date_and_time(unix_seconds: u64) -> String {
    let (year, month, day) = civil(unix_seconds / 86_400);
    let second = unix_seconds % 86_400;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// The seconds since 1970 of a time as people write it, UTC: `2026-01-02`, or with a `T` or a space and `03:04` or `03:04:05`
/// behind it, and a `Z` behind that if wanted.
pub(crate) fn unix_seconds(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, by: char| -> Option<Vec<u64>> {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        text.split(by).map(|part| is_number(part).then(|| part.parse().ok()).flatten()).collect()
    };
    let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
    let ([year @ 1970..10_000, month @ 1..=12, day @ 1..=31], [hour @ 0..24, minute @ 0..60, rest @ ..]) =
        (&date[..], &time[..])
    else {
        return None;
    };
    let second = match rest {
        [] => 0,
        [second @ 0..60] => *second,
        _ => return None,
    };
    // As `civil` counts: years start in March.
    let (year, month) = if *month > 2 { (*year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    // There is no 31st of February.
    let is_there = civil(days).2 == *day;
    is_there.then_some(days * 86_400 + hour * 3600 + minute * 60 + second)
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
            assert_eq!(unix_seconds(&date_and_time(seconds)), Some(seconds), "{text}");
        }
        let noon = Some(951_825_600);
        assert_eq!(["2000-02-29T12:00", "2000-02-29 12:00:00Z"].map(unix_seconds), [noon; 2]);
        let wrong =
            ["", "2000", "2001-02-29", "2000-13-01", "2000-01-01T24:00", "2000-01-01T1", "1969-12-31", "2000-+1-01"];
        assert_eq!(wrong.map(unix_seconds), [None; 8]);
    }
}
