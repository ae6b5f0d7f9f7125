//! A span as a line of comma-separated values, as RFC 4180 has them.

use std::io::Write;

use codec::{
    SessionNs, StreamId,
    span::{Span, SpanId},
    text::printable,
};
use sinks::KnownName;

/// The names of the columns.
pub(super) const HEAD: &str = "id,kind,runtime,function,symbol,module,key,parent,twin,thread,threads,task,depth,\
start_ns,end_ns,duration_ns,suspended_ns,suspensions,created_ns,latency_ns,creator,origin,queue,group,joiner,\
join_latency_ns,ending,argument,result,executor,resumer,resumed_by,level,resumed_ns,cause,status,reason,flags,source\r\n";

/// Writes the line of a span. What it does not have is left empty.
pub(super) fn line(to: &mut Vec<u8>, name: &KnownName, source: Option<(&str, u32)>, span: &Span) {
    let stream = |stream: StreamId| u64::from(stream.0);
    let time = |time: SessionNs| time.0;
    let empty = codec::span::More::default();
    let more = span.more.as_deref();
    let known = more.unwrap_or(&empty);
    let suspended = (known.suspensions > 0).then_some(known.suspended);
    id(to, Some(span.id));
    next(to, |to| field(to, span.kind.name()));
    next(to, |to| field(to, span.kind.runtime().name()));
    next(to, |to| field(to, &name.pretty));
    next(to, |to| field(to, name.raw.as_deref().unwrap_or_default()));
    next(to, |to| field(to, name.module.as_deref().unwrap_or_default()));
    next(to, |to| number(to, span.key()));
    next(to, |to| id(to, span.parent));
    next(to, |to| id(to, span.twin));
    next(to, |to| number(to, Some(stream(span.stream))));
    let threads: Vec<String> = known.threads.iter().map(|stream| stream.0.to_string()).collect();
    next(to, |to| field(to, &threads.join(" ")));
    for value in [
        Some(span.substream.0).filter(|task| *task != 0),
        Some(span.depth.into()),
        Some(span.start.0),
        span.end.map(time),
        span.duration(),
        suspended,
        more.map(|more| more.suspensions.into()),
        known.created.map(time),
        known.latency,
        known.creator.map(stream),
    ] {
        next(to, |to| number(to, value));
    }
    next(to, |to| id(to, known.origin));
    for value in [known.queue, known.group, known.joiner.map(stream), known.join_latency] {
        next(to, |to| number(to, value));
    }
    next(to, |to| field(to, known.ending.map_or("", |ending| ending.name())));
    for value in [known.argument, known.result, known.executor, known.resumer.map(stream)] {
        next(to, |to| number(to, value));
    }
    next(to, |to| id(to, known.resumed_by));
    for value in [more.map(|more| more.level.into()), known.resumed.map(time)] {
        next(to, |to| number(to, value));
    }
    next(to, |to| field(to, known.cause.as_deref().unwrap_or_default()));
    next(to, |to| field(to, span.status.name()));
    next(to, |to| field(to, span.reason.map_or("", |reason| reason.name())));
    let flags: Vec<&str> = span.flags.names().collect();
    next(to, |to| field(to, &flags.join(" ")));
    next(to, |to| field(to, &source.map_or_else(String::new, |(file, line)| format!("{file}:{line}"))));
    to.extend_from_slice(b"\r\n");
}

fn next(to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    to.push(b',');
    write(to);
}

fn number(to: &mut Vec<u8>, value: Option<u64>) {
    if let Some(value) = value {
        // Nothing that is written to memory fails.
        let _ = write!(to, "{value}");
    }
}

fn id(to: &mut Vec<u8>, id: Option<SpanId>) {
    if let Some(id) = id {
        to.extend_from_slice(id.text(&mut [0; SpanId::MOST_TEXT]).as_bytes());
    }
}

/// A text, with hidden characters made visible: in quotes where it has any, or a comma.
pub(in crate::offline) fn field(to: &mut Vec<u8>, text: &str) {
    let text = &printable(text);
    if !text.contains(['"', ',']) {
        to.extend_from_slice(text.as_bytes());
        return;
    }
    to.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            to.push(b'"');
        }
        to.push(byte);
    }
    to.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_line_is_quoted() {
        let quoted = |text: &str| {
            let mut to = Vec::new();
            field(&mut to, text);
            String::from_utf8(to).expect("text")
        };
        assert_eq!(quoted("plain name"), "plain name");
        assert_eq!(quoted("f(int, \"x\")"), "\"f(int, \"\"x\"\")\"");
        assert_eq!(quoted("a\n\u{1b}b"), "a\\n\\u{1b}b");
        assert_eq!(quoted(""), "");
    }
}
