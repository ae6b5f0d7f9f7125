//! `collector verify`: is everything there, and is everything right.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::ExitCode,
};

use answers::{
    family::{Family, Member, Parent},
    spanning,
    trace::Trace,
};
use anyhow::{Context, Result};
use collector_core::spans::SpanConfig;
use sinks::{SpanDigest, SpansWhen, disk::Verified};

use crate::{
    args::DirArgs,
    offline::{printable, tell},
    quantity::{count, counted},
};

pub(crate) fn run(args: &DirArgs) -> Result<ExitCode> {
    let sessions = sinks::disk::verify(&args.dir).with_context(|| format!("cannot verify {}", args.dir.display()))?;
    let mut wrong = false;
    let mut text = String::new();
    let dirs: Vec<PathBuf> = sessions.iter().map(|session| session.dir.clone()).collect();
    let bare =
        sinks::disk::bare_in(&args.dir, &dirs).with_context(|| format!("cannot look into {}", args.dir.display()))?;
    let notes = notes(&args.dir, dirs);
    for mut session in sessions {
        if session.problems.is_empty() && session.spans > 0 {
            match check_table(&session) {
                Ok(Agreement::Same) => {}
                Ok(Agreement::Unknown(why)) => session.unchecked.push(format!("{TABLE} against the events: {why}")),
                Ok(Agreement::Different { table, events }) => {
                    let problem = format!("{TABLE}: it has {table} spans, the events make {events}, or others");
                    session.problems.push(problem);
                }
                Err(error) => session.problems.push(format!("{TABLE} against the events: {error:#}")),
            }
        }
        let name = session.dir.display();
        if session.problems.is_empty() {
            let (threads, details) = (counted(session.threads, "thread"), counted(session.details, "detail"));
            let (events, missing) = (counted(session.events, "event"), count(session.missing));
            let spans = if session.spans > 0 { counted(session.spans, "span") + ", " } else { String::new() };
            let end = session.cut_short.map_or_else(String::new, |how| {
                format!("; it ends with «{}»: what the program did after that is not in it", printable(&how))
            });
            text += &format!("{name}: intact: {threads}, {events}, {details}, {spans}{missing} missing{end}\n");
        } else {
            wrong = true;
            for problem in session.problems {
                note!("{name}: {}", printable(&problem));
            }
        }
        for what in session.unchecked {
            text += &format!("{name}: not checked: {}\n", printable(&what));
        }
        if let Some(note) = notes.get(&session.dir) {
            text += &format!("{name}: note: {note}\n");
        }
    }
    for dir in bare {
        let name = dir.display();
        if storage::is_remote(&dir) {
            text += &format!(
                "{name}: not checked: without a manifest.json it is no session, but an upload that goes on or was cut\n"
            );
        } else {
            wrong = true;
            note!("{name}: manifest.json is not there, nor is a journal");
        }
    }
    tell(&mut std::io::stdout(), &text).context("cannot write to standard output")?;
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What is to be said of the parents of sessions. That one is elsewhere is nothing wrong.
fn notes(dir: &Path, sessions: Vec<PathBuf>) -> HashMap<PathBuf, String> {
    let family = match &*sessions {
        [session] if session == dir => Family::beside(session).0,
        _ => Family::of(sessions),
    };
    let note = |member: &Member| {
        let parent = member.birth?.parent;
        match member.parent {
            Parent::Missing => Some(format!("its parent, session {parent}, is not here")),
            Parent::Circular => Some(format!("its parent, session {parent}, is itself, or came from it")),
            Parent::None | Parent::Known(_) => None,
        }
    };
    family.members.iter().filter_map(|member| Some((member.dir.clone(), note(member)?))).collect()
}

const TABLE: &str = "spans.parquet";

/// Whether a table has the spans that the events make.
enum Agreement {
    Same,
    Different {
        table: u64,
        events: u64,
    },
    /// It cannot be told, and why.
    Unknown(&'static str),
}

fn check_table(session: &Verified) -> Result<Agreement> {
    let trace = Trace::open(&session.dir)?;
    if trace.manifest.spans.as_deref() == Some(SpansWhen::Live.name()) {
        return Ok(Agreement::Unknown("it was made while they arrived"));
    }
    let table = SpanDigest::read(storage::open(&session.dir.join(TABLE))?)?;
    let mut made = SpanDigest::default();
    let engine = spanning::engine(&trace, SpanConfig::default());
    super::say_if_unfinished(&trace);
    spanning::spans(&trace, engine, |spans| {
        spans.iter().for_each(|span| made.add(span));
        Ok(())
    })?;
    if table.is_bounded() || made.is_bounded() {
        return Ok(Agreement::Unknown("spans were given up so that memory stayed bounded"));
    }
    let (table_rows, made_rows) = (table.rows(), made.rows());
    Ok(if table == made { Agreement::Same } else { Agreement::Different { table: table_rows, events: made_rows } })
}
