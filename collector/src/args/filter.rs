//! Arguments that select a part of a session.

use answers::filter::Wanted;
use clap::Args;

use super::spans::number;
use crate::quantity::{Moment, Period};

/// The heading of these options in the help.
const HEADING: &str = "What to look at";

/// Selects a part of a session: the same in all commands that look at one.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FilterArgs {
    /// Only what ran at this time or later: 1.5 (seconds), 20ms, 123456789ns
    ///
    /// Times count like those that are printed. In `top`, `tree` and folded stacks, times are the parts inside.
    #[arg(long, value_name = "TIME", help_heading = HEADING)]
    pub(crate) from: Option<Moment>,
    /// Only what ran before this time
    #[arg(long, value_name = "TIME", help_heading = HEADING)]
    pub(crate) to: Option<Moment>,
    /// Only what ran on this thread: its stream, its id with the operating system, or its name
    #[arg(long, value_name = "THREAD", help_heading = HEADING)]
    pub(crate) thread: Option<String>,
    /// Only what ran in this task, on all threads it ran on
    #[arg(long, value_name = "ID", value_parser = number, help_heading = HEADING)]
    pub(crate) task: Option<u64>,
    /// Only this process: its process id, its program, or the name of its session
    ///
    /// It is selected from a family, or from a directory of sessions; if several match, the latest.
    #[arg(long, value_name = "PROCESS", help_heading = HEADING)]
    pub(crate) process: Option<String>,
    /// Only functions of modules whose path or file name matches; * matches any characters, ? matches one
    ///
    /// In `tree` and folded stacks, with their callers and callees.
    #[arg(long, value_name = "GLOB", help_heading = HEADING)]
    pub(crate) module: Option<String>,
    /// Only functions whose names match, demangled or not
    ///
    /// In `tree` and folded stacks, with their callers and callees.
    #[arg(long, value_name = "GLOB", help_heading = HEADING)]
    pub(crate) function: Option<String>,
    /// Only calls and spans that took at least this long, as a whole; only events that carry such a duration
    #[arg(long, value_name = "TIME", help_heading = HEADING)]
    pub(crate) min_duration: Option<Period>,
    /// Only frames with fewer than N others above them
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub(crate) depth: Option<u32>,
    /// Maximum number of lines: functions in `top` (50 by default), nodes in `tree`, otherwise spans or events
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub(crate) limit: Option<usize>,
}

impl FilterArgs {
    /// For the library.
    pub(crate) fn wanted(&self) -> Wanted {
        let least = self.min_duration.map_or(0, |least| u64::try_from(least.0.as_nanos()).unwrap_or(u64::MAX));
        Wanted {
            from: self.from,
            to: self.to,
            thread: self.thread.clone(),
            task: self.task,
            process: self.process.clone(),
            module: self.module.clone(),
            function: self.function.clone(),
            min_duration_ns: least,
            depth: self.depth,
            limit: self.limit,
        }
    }

    /// The first option that says which part of a session is meant, if one does.
    pub(crate) fn any(&self) -> Option<&'static str> {
        let given = [
            (self.from.is_some(), "--from"),
            (self.to.is_some(), "--to"),
            (self.thread.is_some(), "--thread"),
            (self.task.is_some(), "--task"),
            (self.module.is_some(), "--module"),
            (self.function.is_some(), "--function"),
            (self.min_duration.is_some(), "--min-duration"),
            (self.depth.is_some(), "--depth"),
            (self.limit.is_some(), "--limit"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }
}
