//! Arguments of `collector diff`.

use std::path::PathBuf;

use answers::diff::Measure;
use clap::{Args, ValueEnum};

use super::{FilterArgs, MakingArgs, TableArgs, place};

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The first session: a session directory, or a directory of sessions, whose latest session is used
    #[arg(value_name = "A", value_parser = place())]
    pub(crate) a: PathBuf,
    /// The second session
    #[arg(value_name = "B", value_parser = place())]
    pub(crate) b: PathBuf,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// What to compare functions by; those that differ most are first
    #[arg(long, value_enum, value_name = "BY", default_value = "total")]
    pub(crate) sort: DiffOrder,
    /// Also list functions that do not differ, or no more than by chance
    #[arg(long)]
    pub(crate) all: bool,
    /// Write the stacks of both sessions to this file, for differential flame graphs
    ///
    /// Each line is a stack, its self time in A, and its self time in B, in nanoseconds.
    #[arg(long, value_name = "FILE")]
    pub(crate) flame: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) table: TableArgs,
    #[command(flatten)]
    pub(crate) making: MakingArgs,
}

/// What to compare functions by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffOrder {
    /// Number of calls
    Calls,
    /// Time from entry to return; for recursive functions, of the outermost calls
    Total,
    /// Time without callees
    #[value(name = "self")]
    Own,
}

impl From<DiffOrder> for Measure {
    fn from(order: DiffOrder) -> Self {
        match order {
            DiffOrder::Calls => Self::Calls,
            DiffOrder::Total => Self::Total,
            DiffOrder::Own => Self::Own,
        }
    }
}
