//! `collector repair`: finishes what a killed collector left.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, Result, ensure};
use sinks::disk::RepairOutcome;

use crate::{
    args::RepairArgs,
    offline::{printable, tell},
    quantity::{count, counted},
};

pub(crate) fn run(args: &RepairArgs) -> Result<ExitCode> {
    let dir = &args.dir.dir;
    ensure!(!storage::is_remote(dir), "{} is in a bucket: copy it into a directory to repair it", dir.display());
    let sessions = sinks::disk::repair(dir, args.force).with_context(|| format!("cannot repair {}", dir.display()))?;
    let mut failed = false;
    let mut text = String::new();
    for session in sessions {
        let name = session.dir.display();
        match session.outcome {
            // What is finished is not repaired; but it is not called good unless it is.
            RepairOutcome::Finished => match problems(&session.dir).as_slice() {
                [] => text += &format!("{name}: finished already\n"),
                problems => {
                    failed = true;
                    note!("{name}: finished, and damaged since: {}", printable(&problems.join("; ")));
                }
            },
            RepairOutcome::Repaired { threads, events, missing, cut, removed_bytes } => {
                let (threads, events) = (counted(threads, "thread"), counted(events, "event"));
                text += &format!("{name}: repaired: {threads}, {events}, {} missing", count(missing));
                if cut > 0 {
                    text += &format!(", {} cut off", count(cut));
                }
                if removed_bytes > 0 {
                    text +=
                        &format!("; {} that belong to none of them are in removed/", counted(removed_bytes, "byte"));
                }
                if sinks::disk::lacks_table(&session.dir) {
                    text += "; the next collector makes spans.parquet, or export does";
                }
                text += "\n";
            }
            RepairOutcome::Removed => text += &format!("{name}: removed: it was empty\n"),
            RepairOutcome::Live => {
                failed = true;
                note!("{name}: a collector is writing it; stop that one first");
            }
            RepairOutcome::Failed(why) => {
                failed = true;
                note!("{name}: cannot be repaired: {}", printable(&why));
            }
            other => text += &format!("{name}: {other:?}\n"),
        }
    }
    tell(&mut std::io::stdout(), &text).context("cannot write to standard output")?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What is wrong with a session. One that cannot be looked at keeps nobody from the others.
fn problems(dir: &Path) -> Vec<String> {
    match sinks::disk::verify(dir) {
        Ok(verified) => verified.into_iter().flat_map(|session| session.problems).collect(),
        Err(error) => vec![error.to_string()],
    }
}
