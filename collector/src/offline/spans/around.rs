//! `collector spans --around`: what ran at one moment.

use std::io::Write;

use answers::{around::Around, filter::Filter, seconds, spanning, trace::Trace};
use anyhow::Result;
use codec::{SessionNs, quantity::Moment};

use super::Lines;
use crate::{args::SpansArgs, offline};

/// Prints the spans that were open at a moment.
pub(super) fn print(trace: &Trace, args: &SpansArgs, at: Moment, out: &mut impl Write) -> Result<()> {
    let filter = Filter::new(trace, &args.filter.wanted())?;
    let mut lines = Lines::new(trace, &args.table);
    let at = SessionNs(trace.given_ns(at));
    let mut around = Around::new(at);
    offline::say_if_unfinished(trace);
    let engine = spanning::engine(trace, args.session.making.config());
    let read = spanning::spans(trace, engine, |spans| {
        for span in spans {
            around.add(span, |span| {
                args.which.has(span)
                    && filter.has_span(span)
                    && (!filter.has_names() || filter.has_name(lines.names.of(&trace.catalog, span)))
            });
        }
        Ok(())
    });
    out.write_all(lines.head())?;
    let (mut line, spans) = (Vec::new(), around.finish());
    for span in spans.iter().take(filter.limit().unwrap_or(usize::MAX)) {
        line.clear();
        lines.line(&mut line, &trace.catalog, span);
        out.write_all(&line)?;
    }
    if spans.is_empty() && read.is_ok() {
        let told = |ns: u64| seconds(ns.saturating_sub(trace.zero_ns()).saturating_add(trace.added_ns));
        let manifest = &trace.manifest;
        let (dir, at) = (trace.dir.display(), seconds(at.0.saturating_add(trace.added_ns)));
        let (start, end) = (told(manifest.time_start_ns), told(manifest.time_end_ns));
        note!("{dir}: nothing that is asked for ran at {at} s; it has events from {start} s to {end} s");
    }
    read
}
