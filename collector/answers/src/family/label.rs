//! What a process is called among its relatives.

use std::fmt;

use codec::{BirthKind, profile::Birth};
use sinks::file_name;

use super::Member;
use crate::{printable, seconds};

/// The name of a process for people: `make (4711)`, `cc1 (4712, after exec)`.
#[derive(Debug, Clone, Copy)]
pub struct Label<'a>(&'a Member);

impl Member {
    /// What it is called.
    pub fn label(&self) -> Label<'_> {
        Label(self)
    }

    /// The process id, where it is known.
    pub fn pid(&self) -> Option<u32> {
        self.head.process.as_ref().map(|process| process.pid)
    }
}

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(process) = &self.0.head.process else { return f.write_str("unknown program") };
        let name = match file_name(&process.executable) {
            "" => "unknown program".into(),
            name => printable(name),
        };
        let replaced = self.0.birth.is_some_and(|birth| birth.how == BirthKind::Replaced);
        write!(f, "{name} ({}{})", process.pid, if replaced { ", after exec" } else { "" })
    }
}

/// How and when a process was made, but for the call: `forked by thread 4711 at 0.001250000 s`.
pub fn how_and_when(birth: &Birth, call: &str) -> String {
    let how = match birth.how {
        BirthKind::Other(_) => "made in a way that is not known",
        how => how.name(),
    };
    let call = if call.is_empty() { String::new() } else { format!(" {call}") };
    let thread = match birth.tid {
        0 => "a thread that is not known".into(),
        tid => format!("thread {tid}"),
    };
    format!("{how}{call} by {thread} at {} s", seconds(birth.at.0))
}
