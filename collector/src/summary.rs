//! What a session came to, in a line.

use std::{fmt::Write, path::PathBuf, time::Duration};

use codec::{
    atf::LimitEntry,
    text::{printable, shorten},
};
use collector_core::{Cause, Ended, Session, Summary};

use crate::quantity::{Period, count, counted};

/// Who it was, how long it took, what was written and what is missing, and where it is.
pub(crate) fn line(
    session: &Session,
    summary: &Summary,
    lasted: Duration,
    places: impl Iterator<Item = PathBuf>,
) -> String {
    let mut line = format!("session {} ({})", session.name, who(session));
    let missing: u64 = summary.missing.values().fold(0, |sum, count| sum.saturating_add(*count));
    // Writing to a string cannot fail.
    _ = write!(
        line,
        " {}, after {}: {}, {} produced = {} written + {} missing",
        summary.how,
        Period(lasted),
        counted(summary.streams as u64, "thread"),
        counted(summary.written.saturating_add(missing), "event"),
        count(summary.written),
        count(missing),
    );
    if missing > 0 {
        let causes: Vec<_> =
            summary.missing.iter().map(|(cause, number)| format!("{cause} {}", count(*number))).collect();
        _ = write!(line, " ({})", causes.join(", "));
    }
    let more = [(summary.late, "late"), (summary.duplicates, "duplicate"), (summary.restarts, "restarts")];
    for (number, what) in more.into_iter().filter(|(number, _)| *number > 0) {
        _ = write!(line, ", {} {what}", count(number));
    }
    for place in places {
        _ = match place.exists() {
            true => write!(line, "; in {}", place.display()),
            false => write!(line, "; {} is gone, and with it what was written", place.display()),
        };
    }
    line
}

/// How a session ended, as sinks record it.
pub(crate) fn ended(session: &Session, summary: &Summary) -> Ended {
    let mut limits = Vec::new();
    let streams = Cause::streams();
    if let Some(count) = summary.missing.get(&streams) {
        limits.push(LimitEntry {
            reason: streams.to_string(),
            detail: "events of streams beyond --max-streams".into(),
            count: *count,
            ..LimitEntry::default()
        });
    }
    Ended { end: summary.how.entry(session, summary.at), limits }
}

/// The program, where it is known, and where it comes from. What comes from the wire is made fit to be printed.
fn who(session: &Session) -> String {
    let catalog = session.catalog();
    match catalog.session() {
        Some(process) => {
            let text = |text| printable(&shorten(text, 200));
            let (executable, host) = (text(&process.executable), text(&process.host));
            format!("{executable}, pid {} on {host}, {}", process.pid, session.source)
        }
        None => session.source.clone(),
    }
}
