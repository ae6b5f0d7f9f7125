//! A span as a line for people.

use answers::duration;
use codec::span::{Span, SpanKind, SpanStatus};
use sinks::KnownName;

use crate::offline::{
    printable,
    screen::{Screen, Style},
};

/// A span with its name.
pub(super) struct Row<'a> {
    pub(super) span: &'a Span,
    pub(super) name: &'a KnownName,
    pub(super) screen: Screen,
}

impl Row<'_> {
    /// What the columns are.
    pub(super) const HEAD: &'static str = "           start  thread  kind        status        duration  function\n";

    /// Writes it: when it started, where, what it is, how it stands, how long it took, what ran, and what else is known.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let span = self.span;
        let since = span.start.0;
        let took = span.duration().map_or_else(|| "–".into(), duration);
        let indent = usize::try_from(span.depth).unwrap_or(0).min(40) * 2;
        let head = format!(
            "{:>6}.{:09}  {:>6}  {:<10}  {:<9} {took:>12}  {:indent$}",
            since / 1_000_000_000,
            since % 1_000_000_000,
            span.stream.0,
            span.kind,
            span.status,
            "",
        );
        let mut notes = Vec::new();
        notes.extend(span.reason.map(|reason| reason.name().to_owned()));
        if let Some(more) = &span.more {
            match span.kind {
                SpanKind::Gap => {
                    let cause = more.cause.as_deref().unwrap_or_default();
                    notes.extend(more.key.map(|count| format!("{count} events missing: {}", printable(cause))));
                }
                _ => notes.extend(more.key.map(|key| format!("key {key:#x}"))),
            }
            notes.extend(more.latency.map(|latency| format!("waited {}", duration(latency))));
            if more.suspensions > 0 {
                notes.push(format!("suspended {} times, {}", more.suspensions, duration(more.suspended)));
            }
            if more.threads.len() > 1 {
                let threads: Vec<String> = more.threads.iter().map(|stream| stream.0.to_string()).collect();
                notes.push(format!("threads {}", threads.join(" ")));
            }
        }
        notes.extend(span.flags.names().map(str::to_owned));
        let notes = if notes.is_empty() { String::new() } else { format!("  [{}]", notes.join(", ")) };
        let style = if span.status == SpanStatus::Matched { Style::Dim } else { Style::Alarm };
        to.extend_from_slice(self.screen.line(&head, &printable(&self.name.pretty), &notes, style).as_bytes());
        to.push(b'\n');
    }
}
