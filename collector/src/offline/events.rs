//! `collector events`: the events of a session, in the order of time.

mod line;

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use answers::{
    scan::{MessageConsumer, Messages, Scan},
    trace::Trace,
};
use anyhow::{Result, bail};
use codec::{
    Position, SessionNs, StreamId,
    atf::{GapEntry, ThreadEntry},
    profile::Message,
    text::Glob,
};

use self::line::Lines;
use super::quiet;
use crate::args::EventsArgs;

pub(crate) fn run(args: &EventsArgs) -> Result<ExitCode> {
    let trace = super::open_aligned(&args.dir, args.align)?.named();
    let threads = wanted_threads(&trace, args.thread.as_deref())?;
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let printed = print(&trace, args, &threads, &mut out);
    // What could be read is printed, also before what cannot.
    let flushed = out.flush();
    quiet(printed.and(flushed.map_err(Into::into)))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn wanted_threads(trace: &Trace, wanted: Option<&str>) -> Result<Vec<ThreadEntry>> {
    let mut threads = trace.threads();
    let Some(wanted) = wanted else { return Ok(threads) };
    let number: Option<u64> = wanted.parse().ok();
    let by_stream = threads.iter().any(|thread| Some(u64::from(thread.id)) == number);
    let all: Vec<String> = threads.iter().map(|thread| thread.id.to_string()).take(20).collect();
    threads.retain(|thread| match number {
        Some(number) if by_stream => u64::from(thread.id) == number,
        Some(number) => thread.os_id == Some(number),
        None => thread.name.as_deref() == Some(wanted),
    });
    if threads.is_empty() {
        bail!("no thread is {wanted:?}; there are {}", all.join(", "));
    }
    Ok(threads)
}

/// Prints the events and gaps of these threads that are wanted.
fn print(trace: &Trace, args: &EventsArgs, threads: &[ThreadEntry], out: &mut impl Write) -> Result<()> {
    let from = args.from.map_or(0, |from| trace.given_ns(from));
    let to = args.to.map_or(u64::MAX, |to| trace.given_ns(to));
    let glob = args.function.as_deref().map(Glob::new);
    let line = Lines::new(trace, args.json);
    let printer = Printer { line, from, to, glob, text: Vec::new(), out };
    Scan::open(trace, threads)?.run(&mut Messages::new(trace, printer))
}

/// Prints what is wanted.
struct Printer<'a, W> {
    line: Lines<'a>,
    from: u64,
    to: u64,
    glob: Option<Glob>,
    text: Vec<u8>,
    out: &'a mut W,
}

impl<W> Printer<'_, W> {
    /// Whether this time is wanted. Without an end even the last moment there is counts.
    fn wants(&self, time: u64) -> bool {
        time >= self.from && (time < self.to || self.to == u64::MAX)
    }
}

impl<W: Write> MessageConsumer for Printer<'_, W> {
    fn message(&mut self, stream: StreamId, position: Position, message: &Message<'_>) -> Result<()> {
        let time = match message {
            Message::Function(event) => event.stamp.end,
            Message::Runtime(event) => event.stamp.end,
            Message::Event(event) => event.stamp.end,
            _ => return Ok(()),
        };
        if !self.wants(time.0) || self.glob.as_ref().is_some_and(|glob| !self.line.name(message).matches(glob)) {
            return Ok(());
        }
        self.text.clear();
        self.line.event(&mut self.text, stream, position, message);
        Ok(self.out.write_all(&self.text)?)
    }

    fn gap(&mut self, gap: &GapEntry, next: Option<SessionNs>) -> Result<()> {
        // One at the end of its thread may lie at any time until then.
        let wanted = next.map_or(self.to == u64::MAX, |next| self.wants(next.0));
        if self.glob.is_some() || !wanted {
            return Ok(());
        }
        self.text.clear();
        self.line.gap(&mut self.text, gap);
        Ok(self.out.write_all(&self.text)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use codec::{
        Arch, ClockKind, ClockNs, EventKind, FunctionId, Os, SubstreamId,
        atf::{DetailBody, IndexEvent, Keys, Origin, ThreadWriter},
        heph::{Attribute, Value},
    };

    use super::*;

    #[test]
    fn a_hostile_trace_moves_no_cursor_and_overflows_nothing() {
        let dir = std::env::temp_dir().join(format!("spoor-events-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("thread_1")).expect("made");
        let most = u64::MAX;
        let gap = format!(r#"{{"thread": 1, "first": 0, "count": {most}, "cause": "x\u009b", "at_index": 0}}"#);
        let name = r#"{"id": 0, "offset": 0, "name": "f\u001b[2J"}"#;
        let manifest = format!(
            r#"{{"threads": [{{"id": 1, "has_detail": true}}], "time_start_ns": 5, "time_end_ns": 5,
            "functions": [{name}], "gaps": [{gap}, {gap}]}}"#
        );
        fs::write(dir.join("manifest.json"), manifest).expect("written");
        let origin = Origin { arch: Arch::X86_64, os: Os::Linux, clock: ClockKind::Boottime, thread: 1 };
        let mut writer = ThreadWriter::new(origin);
        let attributes = [Attribute { name: "a\u{9b}", value: Value::Str("\u{7f}\u{1b}") }];
        let (timestamp, function) = (ClockNs(5), FunctionId(0));
        let event = IndexEvent { timestamp, function, thread: 1, kind: EventKind::Call, depth: 0, detail: None };
        let (start, end, substream) = (timestamp, timestamp, SubstreamId(0));
        let keys = Keys { function, start, end, substream, attributes: (&attributes).into() };
        for _ in 0..2 {
            writer.append(&event, &[DetailBody::Keys(keys)]).expect("there is room");
        }
        let (mut index, detail) = writer.seal();
        let file = |name: &str| fs::File::create(dir.join("thread_1").join(name)).expect("made");
        index.write_to(&mut file("index.atf")).expect("written");
        detail.expect("it has details").write_to(&mut file("detail.atf")).expect("written");

        let trace = Trace::open(&dir).expect("it is one");
        let args = EventsArgs {
            dir: dir.clone(),
            thread: None,
            function: None,
            from: None,
            to: None,
            align: false,
            json: false,
        };
        let mut out = Vec::new();
        print(&trace, &args, &trace.threads(), &mut out).expect("it is whole and written");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        fs::remove_dir_all(dir).expect("it is there");
    }
}
