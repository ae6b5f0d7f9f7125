//! What a session came to, in a line.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    path::PathBuf,
    time::Duration,
};

use codec::{
    atf::LimitEntry,
    text::{printable, shorten},
};
use collector_core::{Cause, Ended, How, Session, Summary};

use crate::quantity::{Period, count, counted};

/// A session that was left as it is on a disk that takes nothing.
pub(crate) fn left(session: &Session, summary: &Summary, places: impl Iterator<Item = PathBuf>) -> String {
    let places: Vec<_> = places.map(|place| format!("; in {}", place.display())).collect();
    let then = match summary.how {
        How::Told(_) => {
            "if its agent still waits, the next collector goes on with it, else `collector repair` names what is missing"
        }
        _ => "its agent keeps what is not written, and the next collector goes on with it",
    };
    let (name, who, places) = (&session.name, who(session), places.concat());
    format!("session {name} ({who}) is not finished, for its sink takes nothing: {then}{places}")
}

/// What has not taken all that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    Disk,
    JetStream,
}

impl NotTaken {
    /// What agents wait for: a disk, unless there are only sinks of these names, and one of them is a stream.
    pub(crate) fn by<'a>(has_disk: bool, mut sinks: impl Iterator<Item = &'a str>) -> Self {
        if !has_disk && sinks.any(fleet::Address::is_one) { Self::JetStream } else { Self::Disk }
    }
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sink = if *self == Self::Disk { "the disk" } else { "JetStream" };
        write!(f, "received ({sink} has not taken all of them)")
    }
}

/// Who it was, how long it took, what was written and what is missing, and where it is. `lost` is what a disk did not keep of
/// what it was given; nobody knows that yet while it takes nothing.
pub(crate) fn line(
    session: &Session,
    summary: &Summary,
    lost: Result<BTreeMap<Cause, u64>, NotTaken>,
    lasted: Duration,
    places: impl Iterator<Item = PathBuf>,
) -> String {
    let mut line = format!("session {} ({})", session.name, who(session));
    let not_taken = lost.as_ref().err().copied();
    let lost = lost.unwrap_or_default();
    let written = summary.written.saturating_sub(lost.values().sum());
    let mut causes = summary.missing.clone();
    lost.into_iter().for_each(|(cause, count)| *causes.entry(cause).or_default() += count);
    let missing: u64 = causes.values().fold(0, |sum, count| sum.saturating_add(*count));
    let (threads, events) = (counted(summary.streams as u64, "thread"), written.saturating_add(missing));
    let (events, written, lacking) = (counted(events, "event"), count(written), count(missing));
    // Writing to a string cannot fail.
    _ = write!(line, " {}, after {}: {threads}, {events} produced = {written} ", summary.how, Period(lasted));
    _ = match not_taken {
        None => write!(line, "written + {lacking} missing"),
        Some(not_taken) => write!(line, "{not_taken} + {lacking} missing"),
    };
    if missing > 0 {
        let causes: Vec<_> = causes.iter().map(|(cause, number)| format!("{cause} {}", count(*number))).collect();
        _ = write!(line, " ({})", causes.join(", "));
    }
    let more = [(summary.late, "late"), (summary.duplicates, "duplicate"), (summary.restarts, "restarts")];
    for (number, what) in more.into_iter().filter(|(number, _)| *number > 0) {
        _ = write!(line, ", {} {what}", count(number));
    }
    for place in places {
        _ = match place.exists() {
            true => write!(line, "; in {}", place.display()),
            false => write!(line, "; {} was moved away or removed, with what was in it", place.display()),
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
