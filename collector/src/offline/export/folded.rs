//! Folded stacks of a part of a session.

use std::io::{BufWriter, Write};

use answers::{
    calls::{Calls, Form},
    filter::Filter,
    trace::Trace,
};
use anyhow::Result;
use sinks::{Folds, SinkError};

use crate::{args::ExportArgs, offline, quantity::counted, tables::Progress};

/// Writes the stacks that are asked for, with the times that lie in the part that is asked for, and tells how many.
pub(super) fn write(
    trace: &Trace,
    args: &ExportArgs,
    filter: &Filter,
    progress: &Progress,
    out: impl Write,
) -> Result<String> {
    offline::say_if_unfinished(trace);
    progress.begin(trace.name(), trace.events());
    let mut calls = Calls::new(filter, Form::Stacks);
    calls.read(trace, args.session.making.config(), filter, Form::Stacks, |events| progress.reach(events))?;
    let mut out = BufWriter::new(out);
    let (mut stacks, most) = (0_u64, filter.limit().map_or(u64::MAX, |limit| limit as u64));
    let written = |error| SinkError::from_io("cannot write the stacks", error);
    Folds::new(&trace.catalog, &calls.tree).each(
        |node| calls.shows(node),
        |stack, ns| {
            if stacks >= most {
                return Ok(());
            }
            stacks += 1;
            writeln!(out, "{stack} {ns}").map_err(written)
        },
    )?;
    out.flush().map_err(written)?;
    offline::say_if_nothing(&trace.dir, filter, stacks == 0);
    Ok(counted(stacks, "stack"))
}
