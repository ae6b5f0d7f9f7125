//! An event as a line, for people or as JSON.

use std::io::Write;

use anyhow::{Context, Result};
use codec::{
    EventKind,
    atf::{DetailBody, GapEntry},
};
use sinks::{Line, NameCache};

use crate::offline::{printable, scan::Raw, trace::Trace};

/// Writes lines.
pub(super) struct Lines<'a> {
    pub(super) trace: &'a Trace,
    /// The time that people's times are counted from.
    pub(super) zero: u64,
    pub(super) json: bool,
    pub(super) names: NameCache,
}

impl Lines<'_> {
    pub(super) fn event(&mut self, out: &mut Vec<u8>, raw: Raw<'_>) -> Result<()> {
        if self.json { self.json(out, raw) } else { self.plain(out, raw) }
    }

    fn json(&self, out: &mut Vec<u8>, raw: Raw<'_>) -> Result<()> {
        let Raw { stream, position, event, details } = raw;
        let mut line = Line::of_type(out, "event");
        line.number("stream", stream.into());
        line.number("position", position);
        line.number("timestamp_ns", self.shifted(event.timestamp.0));
        line.text("kind", event.kind.description());
        line.text("fn", &event.function.to_string());
        line.number("depth", event.depth.into());
        if let Some(name) = self.trace.catalog.function_name(event.function) {
            line.text("function", name);
        }
        if let Some(path) = self.trace.catalog.module_path(event.function.module()) {
            line.text("module", path);
        }
        for detail in details {
            match detail.with_context(|| self.detail_file(stream))?.body {
                DetailBody::Call(detail) | DetailBody::Return(detail) => {
                    line.detail(detail.registers, detail.stack.iter().copied());
                }
                DetailBody::Keys(keys) => {
                    line.number("start_ns", self.shifted(keys.start.0));
                    line.number("end_ns", self.shifted(keys.end.0));
                    line.number("substream", keys.substream.0);
                    line.attributes(keys.attributes);
                }
                DetailBody::Context(context) => {
                    line.number("substream", context.substream.0);
                    line.number("start_ns", self.shifted(context.start.0));
                }
                DetailBody::Other { kind, payload } => line.number(&format!("detail_{kind}"), payload.len() as u64),
            }
        }
        line.close();
        Ok(())
    }

    fn plain(&mut self, out: &mut Vec<u8>, raw: Raw<'_>) -> Result<()> {
        let Raw { stream, event, details, .. } = raw;
        let since = match self.trace.shift {
            0 => event.timestamp.0.saturating_sub(self.zero),
            _ => self.shifted(event.timestamp.0),
        };
        let arrow = match event.kind {
            EventKind::Call => "→",
            EventKind::Return => "←",
            EventKind::Exception => "⇐",
        };
        let indent = usize::try_from(event.depth).unwrap_or(0).min(40) * 2;
        let name = printable(&self.names.function(&self.trace.catalog, event.function).pretty);
        let (seconds, nanoseconds) = (since / 1_000_000_000, since % 1_000_000_000);
        write!(out, "{seconds:>6}.{nanoseconds:09}  {stream:>4}  {:indent$}{arrow} {name}", "")?;
        for detail in details {
            if let DetailBody::Keys(keys) = detail.with_context(|| self.detail_file(stream))?.body {
                write!(out, " {}", printable(&Line::of_attributes(keys.attributes)))?;
            }
        }
        writeln!(out)?;
        Ok(())
    }

    /// A time by the clock that was asked for.
    fn shifted(&self, time: u64) -> u64 {
        time.wrapping_add(self.trace.shift)
    }

    fn detail_file(&self, stream: u32) -> String {
        self.trace.thread_dir(stream).join("detail.atf").display().to_string()
    }

    pub(super) fn gap(&self, out: &mut Vec<u8>, gap: &GapEntry) -> Result<()> {
        if self.json {
            let mut line = Line::of_type(out, "gap");
            line.number("stream", gap.thread.into());
            line.number("position", gap.first);
            line.number("count", gap.count);
            line.text("cause", &gap.cause);
            line.close();
        } else {
            let cause = printable(&gap.cause);
            writeln!(out, "{:>16}  {:>4}  … {} events missing: {cause}", "", gap.thread, gap.count)?;
        }
        Ok(())
    }
}
