//! `collector sql`: questions about any number of sessions.

use std::process::ExitCode;

use anyhow::Result;

use crate::args::SqlArgs;

#[cfg(feature = "sql")]
mod answer;

/// Answers a question.
#[cfg(feature = "sql")]
pub(crate) fn run(args: &SqlArgs) -> Result<ExitCode> {
    answer::run(args)
}

/// Says why it cannot.
#[cfg(not(feature = "sql"))]
pub(crate) fn run(args: &SqlArgs) -> Result<ExitCode> {
    // What is wrong with the arguments is said first.
    let _ = (args.query_and_place(), args.format, &args.output, args.memory);
    anyhow::bail!(
        "this collector was built without SQL: build it with `cargo build --release --features collector/sql`"
    )
}
