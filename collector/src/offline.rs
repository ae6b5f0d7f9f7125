//! Looking at what was written.

pub(crate) mod diff;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod info;
pub(crate) mod repair;
pub(crate) mod sessions;
pub(crate) mod spans;
pub(crate) mod sql;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod top;
pub(crate) mod tree;
pub(crate) mod verify;

mod enough;
mod screen;
mod whole;
mod writer;

use std::{
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use answers::{
    family::{Chosen, Family},
    filter::Filter,
    trace::Trace,
};
use anyhow::{Context, Result};

use crate::args::FilterArgs;

pub(crate) use answers::printable;

/// The id of the session in a directory, or of the latest of those in it.
pub(crate) fn session_in(dir: &Path) -> Result<String> {
    let trace = open(dir)?;
    trace.manifest.session.with_context(|| format!("{}: the session has no id", trace.dir.display()))
}

/// Opens a session, and says which one where a directory has several.
fn open(dir: &Path) -> Result<Trace> {
    let trace = Trace::open(dir)?;
    say(trace.note.as_deref());
    Ok(trace)
}

/// The same of the process that is asked for.
fn open_wanted(dir: &Path, filter: &FilterArgs) -> Result<Trace> {
    let trace = Trace::of_process(dir, filter.process.as_deref())?;
    say(trace.note.as_deref());
    Ok(trace)
}

/// Says that nothing is left of a session, where that is because of what was asked for.
fn say_if_nothing(dir: &Path, filter: &Filter, is_nothing: bool) {
    if is_nothing && filter.is_any() && filter.limit() != Some(0) {
        say_nothing(dir);
    }
}

fn say_nothing(dir: &Path) {
    note!("{}: nothing in it is what is asked for", dir.display());
}

/// What a place is of which these sessions were told: one of them, with those beside it, or a directory of sessions.
fn family_at(place: &Path, sessions: Vec<PathBuf>) -> (Family, Option<usize>) {
    if sessions.first().is_some_and(|session| session == place) {
        let (family, one) = Family::beside(place);
        return (family, Some(one));
    }
    (Family::of(sessions), None)
}

/// The sessions that are asked for with what came from them, and says which.
fn choose(dir: &Path, filter: &FilterArgs) -> Result<Chosen> {
    let chosen = match &filter.process {
        Some(process) => Chosen::process(dir, process)?,
        None => Chosen::open(dir),
    };
    say(chosen.note.as_deref());
    Ok(chosen)
}

/// Says which session was taken, if there is something to say.
fn say(note: Option<&str>) {
    note.iter().for_each(|note| note!("{note}"));
}

/// Says what is not known of a session that is not finished.
fn say_if_unfinished(trace: &Trace) {
    let dir = trace.dir.display();
    if trace.is_unfinished {
        note!("{dir}: it is not finished: what its collector has not written yet is not in it");
    }
    if let Some(problem) = &trace.problem {
        note!("{dir}: {}: names and gaps may be missing", printable(problem));
    }
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
