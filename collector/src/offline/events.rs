//! `collector events`: the events of a session, in the order of time.

mod line;

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use answers::{
    filter::Filter,
    scan::{MessageConsumer, Messages, Scan},
    trace::Trace,
};
use anyhow::Result;
use codec::{Position, SessionNs, StreamId, atf::GapEntry, profile::Message};

use self::line::Lines;
use super::{enough::Enough, quiet};
use crate::args::EventsArgs;

pub(crate) fn run(args: &EventsArgs) -> Result<ExitCode> {
    let trace = super::open_wanted(&args.dir, &args.filter)?.aligned(args.align)?.named();
    let filter = Filter::new(&trace, &args.filter.wanted())?;
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let printed = print(&trace, args, &filter, &mut out);
    // What could be read is printed, also before what cannot.
    let flushed = out.flush();
    quiet(printed.and(flushed.map_err(Into::into)))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the events and gaps that are wanted.
fn print(trace: &Trace, args: &EventsArgs, filter: &Filter, out: &mut impl Write) -> Result<()> {
    let line = Lines::new(trace, args.json);
    let printer = Printer { line, filter, left: filter.limit().unwrap_or(usize::MAX), text: Vec::new(), out };
    let left = printer.left;
    let mut messages = Messages::new(trace, printer);
    let printed = Scan::open(trace, &filter.threads(trace))?.run(&mut messages);
    let is_nothing = messages.consumer.left == left;
    match printed {
        Err(error) if error.is::<Enough>() => {}
        printed => printed?,
    }
    super::say_if_nothing(&trace.dir, filter, is_nothing);
    Ok(())
}

/// Prints what is wanted.
struct Printer<'a, W> {
    line: Lines<'a>,
    filter: &'a Filter,
    /// How many lines may still be printed.
    left: usize,
    text: Vec<u8>,
    out: &'a mut W,
}

impl<W: Write> Printer<'_, W> {
    /// Prints the line that was made.
    fn print(&mut self) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or(Enough)?;
        Ok(self.out.write_all(&self.text)?)
    }
}

impl<W: Write> MessageConsumer for Printer<'_, W> {
    fn message(&mut self, stream: StreamId, position: Position, message: &Message<'_>) -> Result<()> {
        let (stamp, depth) = match message {
            Message::Function(event) => (event.stamp, event.depth),
            Message::Runtime(event) => (event.stamp, 0),
            Message::Event(event) => (event.stamp, 0),
            _ => return Ok(()),
        };
        let took = stamp.end.0.saturating_sub(stamp.start.0);
        if !self.filter.has_time(stamp.end.0)
            || !self.filter.has_event(stamp.substream.0, depth, took)
            || self.filter.has_names() && !self.filter.has_name(self.line.name(message))
        {
            return Ok(());
        }
        self.text.clear();
        self.line.event(&mut self.text, stream, position, message);
        self.print()
    }

    fn gap(&mut self, gap: &GapEntry, next: Option<SessionNs>) -> Result<()> {
        // One at the end of its thread may lie at any time until then.
        let is_wanted = next.map_or(self.filter.has_end(), |next| self.filter.has_time(next.0));
        if !is_wanted || !self.filter.has_gaps() {
            return Ok(());
        }
        self.text.clear();
        self.line.gap(&mut self.text, gap);
        self.print()
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
    use crate::args::FilterArgs;

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
        let args = EventsArgs { dir: dir.clone(), filter: FilterArgs::default(), align: false, json: false };
        let filter = Filter::new(&trace, &args.filter.wanted()).expect("it can be");
        let mut out = Vec::new();
        print(&trace, &args, &filter, &mut out).expect("it is whole and written");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        fs::remove_dir_all(dir).expect("it is there");
    }
}
