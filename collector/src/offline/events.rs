//! `collector events`: the events of a session, in the order of time.

mod line;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use codec::atf::{GapEntry, IndexEvent, ThreadEntry, ThreadReader};

use self::line::Line;
use super::{
    glob::Glob,
    trace::{ThreadFiles, Trace},
};
use crate::{
    args::{EventsArgs, Moment},
    offline::ended_early,
};

pub(crate) fn run(args: &EventsArgs) -> Result<ExitCode> {
    let trace = Trace::open(&args.dir)?;
    let threads = wanted_threads(&trace, args.thread.as_deref())?;
    let files = threads.iter().map(|thread| trace.thread_files(thread.id)).collect::<Result<Vec<_>>>()?;
    let mut readers = Vec::new();
    for (thread, files) in threads.iter().zip(&files) {
        readers.extend(ThreadEvents::open(&trace, thread, files)?);
    }
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let printed = print(&trace, args, &mut readers, &mut out)?;
    ended_early(printed.and_then(|()| out.flush()))?;
    Ok(ExitCode::SUCCESS)
}

fn wanted_threads(trace: &Trace, wanted: Option<&str>) -> Result<Vec<ThreadEntry>> {
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

/// The events and gaps of a thread, one after the other.
struct ThreadEvents<'a> {
    stream: u32,
    reader: ThreadReader<'a>,
    gaps: Vec<&'a GapEntry>,
    sequence: u32,
    gap: usize,
    position: u64,
}

/// What comes next in a thread.
enum Next<'a> {
    Event { sequence: u32, position: u64, event: IndexEvent },
    Gap(&'a GapEntry),
}

impl<'a> ThreadEvents<'a> {
    fn open(trace: &'a Trace, thread: &ThreadEntry, files: &'a ThreadFiles) -> Result<Option<Self>> {
        let Some(reader) = files.reader()? else { return Ok(None) };
        let (gaps, position) = (trace.gaps(thread.id), thread.first.unwrap_or(0));
        Ok(Some(Self { stream: thread.id, reader, gaps, sequence: 0, gap: 0, position }))
    }

    fn next(&mut self) -> Result<Option<Next<'a>>> {
        if let Some(gap) = self.gaps.get(self.gap)
            && gap.at_index.is_some_and(|at| at <= self.sequence.into())
        {
            self.gap += 1;
            self.position = self.position.saturating_add(gap.count);
            return Ok(Some(Next::Gap(gap)));
        }
        let Some(event) = self.reader.index.get(self.sequence) else { return Ok(None) };
        let event = event.with_context(|| format!("thread {}: index.atf", self.stream))?;
        let (sequence, position) = (self.sequence, self.position);
        self.sequence = self.sequence.saturating_add(1);
        self.position = self.position.saturating_add(1);
        Ok(Some(Next::Event { sequence, position, event }))
    }

    /// The time of the event that comes next.
    fn time(&self) -> Option<u64> {
        self.reader.index.get(self.sequence)?.ok().map(|event| event.timestamp.0)
    }
}

/// Prints what is wanted. The inner result is that of writing.
fn print(
    trace: &Trace,
    args: &EventsArgs,
    threads: &mut [ThreadEvents<'_>],
    out: &mut impl Write,
) -> Result<io::Result<()>> {
    let zero = trace.manifest.time_start_ns;
    let zero = if zero > 0 { zero } else { threads.iter().filter_map(ThreadEvents::time).min().unwrap_or(0) };
    let moment = |moment: Moment| match moment {
        Moment::Since(period) => zero.saturating_add(u64::try_from(period.0.as_nanos()).unwrap_or(u64::MAX)),
        Moment::Clock(nanoseconds) => nanoseconds,
    };
    let (from, to) = (args.from.map_or(0, moment), args.to.map_or(u64::MAX, moment));
    let glob = args.function.as_deref().map(Glob::new);
    let line = Line { trace, zero, json: args.json };
    let mut heap: BinaryHeap<_> =
        threads.iter().enumerate().map(|(index, thread)| Reverse((thread.time().unwrap_or(u64::MAX), index))).collect();
    let mut text = Vec::new();
    while let Some(Reverse((time, index))) = heap.pop() {
        let Some(thread) = threads.get_mut(index) else { continue };
        let Some(next) = thread.next()? else { continue };
        text.clear();
        match next {
            Next::Gap(gap) if glob.is_none() && (time >= from || time == u64::MAX) && (time < to || to == u64::MAX) => {
                line.gap(&mut text, gap)?;
            }
            Next::Event { sequence, position, event } if (from..to).contains(&event.timestamp.0) => {
                let name = trace.function_name(event.function);
                if glob.as_ref().is_none_or(|glob| name.is_some_and(|name| glob.matches(name))) {
                    line.event(&mut text, thread.stream, position, &event, thread.reader.details_of(sequence))?;
                }
            }
            _ => {}
        }
        if let Err(error) = out.write_all(&text) {
            return Ok(Err(error));
        }
        heap.push(Reverse((thread.time().unwrap_or(u64::MAX), index)));
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use codec::{
        Arch, ClockKind, ClockNs, EventKind, FunctionId, Os, SubstreamId,
        atf::{DetailBody, Keys, Origin, ThreadWriter},
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
        let thread = &trace.threads()[0];
        let files = trace.thread_files(1).expect("they are there");
        let reader = ThreadEvents::open(&trace, thread, &files).expect("it is one").expect("it has events");
        let args = EventsArgs { dir: dir.clone(), thread: None, function: None, from: None, to: None, json: false };
        let mut out = Vec::new();
        print(&trace, &args, &mut [reader], &mut out).expect("it is whole").expect("written");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        fs::remove_dir_all(dir).expect("it is there");
    }
}
