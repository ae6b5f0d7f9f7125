//! The processes of a family in one file, on one time line.

use std::collections::{HashMap, HashSet};

use answers::{
    birth_call::thread_of,
    export,
    family::{Chosen, Family, Member},
    filter::Filter,
    trace::Trace,
};
use anyhow::Result;
use codec::{
    SessionId, StreamId,
    atf::OffsetEntry,
    span::{Span, SpanKind},
};
use sinks::{BirthPoint, FamilySink, ProcessLabel, SinkError};

use super::begin;
use crate::{args::ExportArgs, offline::printable, quantity::counted, tables::Progress};

/// By what the ids of processes are told apart that had the same, one after the other: more than any process id is, and
/// easy to read.
const PID_STEP: u32 = 10_000_000;
/// How often that is done, and where other ids are taken from then.
const MOST_STEPS: u32 = 100;
const OTHER_PIDS: u32 = 1 << 30;

/// Writes all processes, and tells how many spans they have. One that cannot be read is left out, and then not all is whole.
pub(super) fn write(
    chosen: &Chosen,
    args: &ExportArgs,
    progress: &Progress,
    sink: &mut impl FamilySink,
    is_whole: &mut bool,
) -> Result<String> {
    let family = &chosen.family;
    let clocks = if args.align { common_clocks(family) } else { HashMap::new() };
    let (mut pids, mut spans, mut processes) = (HashSet::new(), 0_u64, 0_u64);
    for (place, level) in chosen.all() {
        let Some(member) = family.members.get(place) else { continue };
        let label = label(member, &mut pids);
        let mut picture = Picture { args, progress, family, member, is_child: level > 0, spans: 0 };
        let written = picture.write(&clocks, label, sink);
        spans = spans.saturating_add(picture.spans);
        match written {
            Ok(()) => processes += 1,
            Err(error) if error.is::<SinkError>() => return Err(error),
            Err(error) => {
                *is_whole = false;
                note!("{}: {}", member.dir.display(), printable(&format!("{error:#}")));
            }
        }
    }
    sink.close()?;
    Ok(format!("{} of {processes} processes", counted(spans, "span")))
}

/// A process that is being written.
struct Picture<'a> {
    args: &'a ExportArgs,
    progress: &'a Progress,
    family: &'a Family,
    member: &'a Member,
    /// Whether its parent is in the file.
    is_child: bool,
    spans: u64,
}

impl Picture<'_> {
    fn write(
        &mut self,
        clocks: &HashMap<u64, OffsetEntry>,
        label: ProcessLabel,
        sink: &mut impl FamilySink,
    ) -> Result<()> {
        let mut trace = Trace::open(&self.member.dir)?.named();
        if self.args.align {
            trace.align(clocks.get(&trace.zero_ns()).copied())?;
        }
        let session = trace.session();
        sink.start_as(&session, label)?;
        let mut first: Option<(_, StreamId)> = None;
        begin(&trace, self.progress);
        let filter = Filter::new(&trace, &self.args.filter.wanted());
        let (config, mut reach) = (self.args.session.making.config(), |events| self.progress.reach(events));
        let take = |spans: &[Span]| {
            self.spans = self.spans.saturating_add(spans.len() as u64);
            let calls = spans.iter().filter(|span| matches!(span.kind, SpanKind::Frame | SpanKind::Event));
            first = first.into_iter().chain(calls.map(|span: &Span| (span.start, span.stream))).min();
            Ok(sink.spans(&session, spans)?)
        };
        let written = filter.and_then(|filter| export::spans(&trace, config, &filter, &mut reach, take));
        let threads = trace.threads();
        let children = self.member.children.iter().filter_map(|child| self.family.members.get(*child));
        for (child, birth) in children.filter_map(|child| Some((child.id?, child.birth?))) {
            let stream = thread_of(&threads, &birth).map(|thread| StreamId(thread.id));
            sink.birth(&session, &BirthPoint { child, how: birth.how, is_parent: true, stream, at: birth.at })?;
        }
        if let (true, Some(birth)) = (self.is_child, self.member.birth) {
            // Nothing happens before what causes it; where clocks say so, they are wrong by that much.
            let (at, stream) = first.map_or((birth.at, None), |(at, stream)| (at.max(birth.at), Some(stream)));
            let child = self.member.id.unwrap_or(SessionId::NONE);
            sink.birth(&session, &BirthPoint { child, how: birth.how, is_parent: false, stream, at })?;
        }
        export::end(&trace, &session, sink)?;
        written
    }
}

/// The best measurement of each clock: the sessions of a family share theirs, and are to stay on one time line.
fn common_clocks(family: &Family) -> HashMap<u64, OffsetEntry> {
    let mut best: HashMap<u64, OffsetEntry> = HashMap::new();
    for head in family.members.iter().map(|member| &member.head) {
        let Some(offset) = head.offset else { continue };
        let known = best.entry(head.clock_zero_ns.unwrap_or(0)).or_insert(offset);
        if offset.error_ns < known.error_ns {
            *known = offset;
        }
    }
    best
}

/// How a process is shown. Its id in the file is its own, unless another had that before.
fn label(member: &Member, taken: &mut HashSet<u32>) -> ProcessLabel {
    let own = member.pid();
    let steps =
        own.into_iter().flat_map(|own| (0..=MOST_STEPS).filter_map(move |step| own.checked_add(step * PID_STEP)));
    let free = steps.chain(OTHER_PIDS..).find(|pid| *pid < i32::MAX.cast_unsigned() && !taken.contains(pid));
    let pid = free.unwrap_or(OTHER_PIDS);
    taken.insert(pid);
    ProcessLabel { pid, name: member.label().to_string() }
}
