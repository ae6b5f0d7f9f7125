//! `collector repair`: finishes what a killed collector left.

use std::process::ExitCode;

use anyhow::{Context, Result};
use sinks::disk::RepairOutcome;

use crate::{args::RepairArgs, offline::ended_early, quantity::count};

pub(crate) fn run(args: &RepairArgs) -> Result<ExitCode> {
    let dir = &args.dir.dir;
    let sessions = sinks::disk::repair(dir, args.force).with_context(|| format!("cannot repair {}", dir.display()))?;
    let mut failed = false;
    let mut text = String::new();
    for session in sessions {
        let name = session.dir.display();
        match session.outcome {
            RepairOutcome::Finished => text += &format!("{name}: finished already\n"),
            RepairOutcome::Repaired { threads, events, missing, cut } => {
                let (threads, events, missing) = (count(threads), count(events), count(missing));
                text += &format!("{name}: repaired: {threads} threads, {events} events, {missing} missing");
                if cut > 0 {
                    text += &format!(", {} cut off", count(cut));
                }
                text += "\n";
            }
            RepairOutcome::Live => {
                failed = true;
                eprintln!("{name}: a collector is writing it; stop that one first");
            }
            RepairOutcome::Failed(why) => {
                failed = true;
                eprintln!("{name}: cannot be repaired: {why}");
            }
            other => text += &format!("{name}: {other:?}\n"),
        }
    }
    ended_early(std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()))?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
