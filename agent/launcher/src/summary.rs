//! What came of a trace, as JSON for scripts.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use agent::ship::{Report, Who};
use codec::profile::EndReason;
use serde::Serialize;

/// Where a summary goes.
#[derive(Debug, Clone)]
pub(crate) enum SummaryOutput {
    Stderr,
    File(Arc<File>),
}

impl SummaryOutput {
    /// Opens what the user has named, so that this cannot fail later: `-` stands for standard error.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stderr);
        }
        let file = File::create(path).map_err(|error| format!("--summary {}: {error}", path.display()))?;
        Ok(Self::File(Arc::new(file)))
    }

    /// Writes a summary, in one line.
    pub(crate) fn write(&self, summary: &Summary<'_>) {
        let line = serde_json::to_string(summary).unwrap_or_default() + "\n";
        let written = match self {
            Self::Stderr => io::stderr().write_all(line.as_bytes()),
            Self::File(file) => (&**file).write_all(line.as_bytes()),
        };
        if let Err(error) = written {
            say!("cannot write the summary: {error}");
        }
    }
}

/// Who was traced.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Traced {
    pub(crate) session: String,
    pub(crate) program: String,
    pub(crate) pid: u32,
}

impl From<&Who> for Traced {
    fn from(who: &Who) -> Self {
        Self { session: who.session.to_string(), program: who.executable.clone(), pid: who.pid }
    }
}

/// What came of a trace. The document describes the fields.
#[derive(Debug, Serialize)]
pub(crate) struct Summary<'a> {
    #[serde(flatten)]
    traced: &'a Traced,
    end: &'static str,
    exit_code: Option<i32>,
    signal: Option<i32>,
    /// How many sessions the numbers are of, and how much of that which came from the program is not traced.
    pub(crate) sessions: usize,
    pub(crate) not_followed: u64,
    pub(crate) let_go: usize,
    events: u64,
    threads: u64,
    functions: usize,
    dropped: &'a BTreeMap<&'static str, u64>,
    lost: &'a BTreeMap<Box<str>, u64>,
    not_recorded: u64,
    /// How much time is missing of what `--keep` was to keep.
    pub(crate) not_kept_ns: u64,
    /// What is no event by choice: events that were not asked for, calls that took too little time, and calls that were counted.
    pub(crate) left_out: u64,
    pub(crate) brief: u64,
    pub(crate) counted: u64,
    unconfirmed: u64,
    complete: bool,
}

impl<'a> Summary<'a> {
    /// `not_recorded` are calls that were passed through.
    pub(crate) fn new(
        traced: &'a Traced,
        end: EndReason,
        report: &'a Report,
        threads: u64,
        functions: usize,
        not_recorded: u64,
    ) -> Self {
        let (name, exit_code, signal) = match end {
            EndReason::Exited(code) => ("exited", Some(code), None),
            EndReason::Signaled(signal) => ("signaled", None, Some(signal)),
            EndReason::Detached => ("detached", None, None),
            EndReason::Replaced => ("replaced", None, None),
            EndReason::Other(..) => ("other", None, None),
        };
        Self {
            traced,
            end: name,
            exit_code,
            signal,
            sessions: 1,
            not_followed: 0,
            let_go: 0,
            events: report.events,
            threads,
            functions,
            dropped: &report.dropped,
            lost: &report.lost,
            not_recorded,
            not_kept_ns: 0,
            left_out: 0,
            brief: 0,
            counted: 0,
            unconfirmed: report.unsettled,
            complete: report.complete,
        }
    }
}
