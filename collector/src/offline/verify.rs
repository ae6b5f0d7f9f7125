//! `collector verify`: is everything there, and is everything right.

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::{
    args::DirArgs,
    offline::{printable, tell},
    quantity::{count, counted},
};

pub(crate) fn run(args: &DirArgs) -> Result<ExitCode> {
    let sessions = sinks::disk::verify(&args.dir).with_context(|| format!("cannot verify {}", args.dir.display()))?;
    let mut wrong = false;
    let mut text = String::new();
    for session in sessions {
        let name = session.dir.display();
        if session.problems.is_empty() {
            let (threads, details) = (counted(session.threads, "thread"), counted(session.details, "detail"));
            let (events, missing) = (counted(session.events, "event"), count(session.missing));
            text += &format!("{name}: intact: {threads}, {events}, {details}, {missing} missing\n");
        } else {
            wrong = true;
            for problem in session.problems {
                eprintln!("{name}: {}", printable(&problem));
            }
        }
    }
    tell(&mut std::io::stdout(), &text).context("cannot write to standard output")?;
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
