//! Where questions come from, and where answers go.

use std::{
    fs,
    io::{self, BufWriter, IsTerminal, Read},
    process::ExitCode,
};

use anyhow::{Context, Result};
use sql::{AskError, Form, Question, ask};

use crate::{
    args::{SqlArgs, SqlFormat, wrong_usage},
    offline::whole::Whole,
};

/// The code of a command that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

pub(super) fn run(args: &SqlArgs) -> Result<ExitCode> {
    let (query, place) = args.query_and_place().unwrap_or_else(|wrong| wrong_usage(wrong));
    let form = match args.format {
        SqlFormat::Table => Form::Text,
        SqlFormat::Csv => Form::Csv,
        SqlFormat::Json => Form::Json,
        SqlFormat::Parquet => Form::Parquet,
    };
    if form == Form::Parquet && args.output.is_none() && io::stdout().is_terminal() {
        wrong_usage("--format parquet is nothing for a terminal: name a file with --output".into());
    }
    let query = match (&args.file, query) {
        (Some(file), _) => fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
        (None, Some("-")) => {
            let mut query = String::new();
            io::stdin().read_to_string(&mut query).context("cannot read the query from standard input")?;
            query
        }
        (None, query) => query.unwrap_or_default().into(),
    };
    let question = Question { query, place, memory: args.memory.0 };
    let answered = match &args.output {
        Some(path) => {
            let (whole, file) = Whole::create(path).with_context(|| format!("cannot make {}", path.display()))?;
            let answered = ask(&question, form, &mut BufWriter::new(file));
            if answered.is_ok() {
                whole.finish().with_context(|| format!("cannot write {}", path.display()))?;
            }
            answered
        }
        None => ask(&question, form, &mut BufWriter::new(io::stdout())),
    };
    let notes = match answered {
        Ok(notes) => notes,
        Err(AskError::Interrupted) => return Ok(ExitCode::from(INTERRUPTED)),
        Err(error) => return Err(error.into()),
    };
    notes.lines().iter().for_each(|line| note!("{line}"));
    Ok(if notes.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
