//! A session that is being written, in one part or several.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
};

use codec::{
    Arch, ClockKind, Os, StreamId,
    atf::{EndEntry, LimitEntry, MAX_STACK_BYTES, Origin},
    span::{Span, SpanStatus},
};

use super::{
    directory::inside,
    files::is_full,
    finishing::{Finishing, SealedThread},
    journal::Note,
    part::Part,
    spans::PartSpans,
    standin::StandIns,
    starts::Starts,
    thread::{Appending, OpenThread, Stop},
    volume::{Failing, Volume},
};
use crate::{Budget, Ended, Gap, RunEvents, Session, SinkError, open_spans::OpenSpans};

/// A session that goes on.
pub(super) struct OpenSession {
    pub(super) session: Arc<Session>,
    /// What its directories are called: its name, unless that was taken.
    pub(super) base: String,
    pub(super) part: Part,
    /// The session's zero by the trace's clock, and whether the clock was known: from the first event on it stays.
    pub(super) zero: Option<Zero>,
    pub(super) stand_ins: StandIns,
    /// Spans that were told to be open.
    pub(super) open_spans: OpenSpans,
    stack: Box<[u8; MAX_STACK_BYTES]>,
    /// Where the streams of earlier parts have come to.
    pub(super) positions: HashMap<u32, u64>,
    /// What its manifest is to say beside gaps: what was lost before it was opened again.
    pub(super) limits: Vec<LimitEntry>,
}

/// How many spans are taken while the catalog is held.
const SPANS_AT_A_TIME: usize = 1024;

/// The session's zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Zero {
    pub(super) zero_ns: u64,
    /// The clock, where it was known in time.
    pub(super) clock: Option<ClockKind>,
}

impl OpenSession {
    /// A session of which nothing is on disk yet.
    pub(super) fn new(session: &Arc<Session>, volume: &mut Volume) -> Self {
        let part = Part::new(volume, 1, &session.catalog());
        Self::with_part(session, inside(&session.name), volume, part)
    }

    /// A session that goes on in this part.
    pub(super) fn with_part(session: &Arc<Session>, base: String, volume: &Volume, part: Part) -> Self {
        Self {
            session: Arc::clone(session),
            base,
            part,
            zero: None,
            stand_ins: StandIns::new(volume.shared.names.share()),
            open_spans: OpenSpans::within(volume.shared.open_spans.share()),
            stack: Box::new([0; MAX_STACK_BYTES]),
            positions: HashMap::new(),
            limits: Vec::new(),
        }
    }

    /// Makes its directory if it has none.
    pub(super) fn open(&mut self, volume: &mut Volume) -> io::Result<()> {
        self.part.open(volume, &self.session, &mut self.base)
    }

    /// Writes all that waits.
    pub(super) fn flush(&mut self, volume: &mut Volume) -> io::Result<()> {
        self.open(volume)?;
        self.note_functions();
        let flushed = self.part.flush(volume);
        self.make_way(volume, &flushed);
        // It is told when spans are lost over it.
        let _ = self.part.write_spans(volume);
        flushed
    }

    /// Where the disk has no room for events, spans give theirs.
    fn make_way(&mut self, volume: &mut Volume, result: &io::Result<()>) {
        if result.as_ref().is_err_and(|error| is_full(error.kind())) {
            self.part.give_up_spans(volume);
        }
    }

    /// Takes spans.
    pub(super) fn spans(&mut self, volume: &mut Volume, spans: &[Span]) -> Result<(), SinkError> {
        // Those that were made before the part was opened again are lost, so all are made after its end.
        if self.part.spans_when != volume.limits.spans {
            return Ok(());
        }
        let mut lost = 0_u64;
        for some in spans.chunks(SPANS_AT_A_TIME) {
            let session = Arc::clone(&self.session);
            let catalog = session.catalog();
            for span in some {
                let kept = match span.status {
                    SpanStatus::Open if self.open_spans.open(span) => true,
                    SpanStatus::Open => {
                        self.part.spans.refuse();
                        false
                    }
                    _ => {
                        self.open_spans.close(span);
                        self.part.spans.push(&catalog, span)
                    }
                };
                lost += u64::from(!kept);
            }
            drop(catalog);
            if self.part.spans.is_due() {
                // It is told when spans are lost over it.
                let _ = self.open(volume).and_then(|()| self.part.write_spans(volume));
            }
        }
        if lost == 0 {
            return Ok(());
        }
        volume.counters.lost_spans.add(lost);
        let what = format!("{}: {lost} spans were not kept", volume.dir.join(&self.base).display());
        Err(SinkError::Failed { what, source: self.part.spans.why() })
    }

    /// Takes events of one stream.
    pub(super) fn run(&mut self, volume: &mut Volume, mut events: RunEvents<'_>) -> Result<(), SinkError> {
        let (stream, mut left) = (events.run.stream, u64::from(events.run.events));
        let mut held = None;
        self.fill(volume, stream, events.run.first.0);
        let zero = self.fix_zero();
        // Another sink may have had less than this one when the session was resumed.
        let known = self.next(stream).saturating_sub(events.run.first.0).min(left);
        (0..known).for_each(|_| _ = events.next());
        left -= known;
        while left > 0 {
            let Some(at) = self.thread(volume, stream, events.run.first.0).map(|thread| thread.next) else {
                return Err(self.unlisted(volume, left));
            };
            let threads = self.part.threads.len();
            let flush_bytes = volume.flush_bytes(threads);
            let Some(thread) = self.part.threads.get_mut(&stream.0) else { break };
            let before = thread.writer.pending_bytes();
            if let Some(failing) = volume.stuck(before) {
                let (cause, answer) = (failing.cause(), failing.answer("events were lost"));
                self.part.gap(stream, at, left, cause);
                volume.counters.lose(&self.session.name, left, cause);
                return Err(answer);
            }
            let mut appending = Appending {
                zero_ns: zero.zero_ns,
                stack: &mut self.stack,
                stand_ins: &mut self.stand_ins,
                pending_bytes: flush_bytes,
                most_events: volume.limits.most_events,
            };
            let (done, stop) = thread.append_all(&mut held, &mut events, left, &mut appending);
            thread.next = at.saturating_add(done);
            left -= done;
            let after = thread.writer.pending_bytes();
            volume.pending = volume.pending.saturating_add(after.saturating_sub(before));
            self.note_functions();
            match stop {
                Stop::End if left > 0 => {
                    self.lose(volume, stream, left, "collector:undecodable");
                    left = 0;
                }
                Stop::End => {}
                Stop::Pending => self.relieve(volume, stream),
                Stop::Full(event) => {
                    held = Some(event);
                    self.rotate(volume);
                }
                Stop::Refused => {
                    self.lose(volume, stream, 1, "collector:unwritable");
                    left -= 1;
                }
            }
        }
        Ok(())
    }

    /// Writes what waits of a thread that has much. While the disk takes nothing it is left alone: the next flush
    /// tries again. An error costs nothing yet, and is told then.
    fn relieve(&mut self, volume: &mut Volume, stream: StreamId) {
        if volume.failing.is_some() {
            return;
        }
        let what = format!("cannot write {}", volume.dir.join(&self.base).display());
        let result = self.open(volume).and_then(|()| self.part.flush_thread(volume, stream.0));
        self.make_way(volume, &result);
        volume.note(&what, result);
    }

    /// Takes a gap.
    pub(super) fn gap(&mut self, volume: &mut Volume, gap: &Gap) -> Result<(), SinkError> {
        self.fill(volume, gap.stream, gap.first.0);
        if self.thread(volume, gap.stream, gap.first.0).is_none() {
            return Err(self.unlisted(volume, 0));
        }
        let first = self.next(gap.stream).max(gap.first.0);
        let end = gap.first.0.saturating_add(gap.count);
        self.part.gap(gap.stream, first, end.saturating_sub(first), gap.cause.as_str());
        Ok(())
    }

    /// The position that comes next in a stream.
    fn next(&self, stream: StreamId) -> u64 {
        self.part.threads.get(&stream.0).map_or(0, |thread| thread.next)
    }

    /// Where positions were left out without a word, says so: then all are accounted for whatever happens.
    fn fill(&mut self, volume: &Volume, stream: StreamId, first: u64) {
        if let Some(next) = self.thread(volume, stream, first).map(|thread| thread.next)
            && next < first
        {
            self.part.gap(stream, next, first - next, "collector:unaccounted");
        }
    }

    /// Events of a thread are lost here.
    fn lose(&mut self, volume: &Volume, stream: StreamId, count: u64, cause: &str) {
        self.part.gap(stream, self.next(stream), count, cause);
        volume.counters.lose(&self.session.name, count, cause);
    }

    /// Events are lost of a stream that there is no room for.
    fn unlisted(&mut self, volume: &Volume, events: u64) -> SinkError {
        self.part.unlisted = self.part.unlisted.saturating_add(events);
        volume.counters.lose(&self.session.name, events, "collector:streams");
        let most = volume.limits.most_threads;
        let what = format!("{}: it has more than {most} streams", self.session.name);
        SinkError::Failed { what, source: io::ErrorKind::QuotaExceeded.into() }
    }

    /// The thread of a stream; a new one starts at this position, or where an earlier part ended.
    pub(super) fn thread(&mut self, volume: &Volume, stream: StreamId, first: u64) -> Option<&mut OpenThread> {
        if !self.part.threads.contains_key(&stream.0) {
            let most = volume.limits.most_threads;
            let is_new = !self.positions.contains_key(&stream.0);
            if self.part.threads.len() >= most || (is_new && self.positions.len() >= most) {
                return None;
            }
            let first = self.positions.get(&stream.0).copied().unwrap_or(first);
            if is_new && first > 0 {
                self.part.journal.note(&Note::First { stream: stream.0, first });
            }
            let thread = OpenThread::new(self.origin(stream), first, Starts::new(volume.shared.depths.share()));
            self.part.threads.insert(stream.0, thread);
        }
        let origin = self.part.threads.get(&stream.0)?.is_new().then(|| self.origin(stream));
        let thread = self.part.threads.get_mut(&stream.0)?;
        if let Some(origin) = origin {
            thread.set_origin(origin);
        }
        Some(thread)
    }

    /// What a thread's files say of where it comes from.
    fn origin(&self, stream: StreamId) -> Origin {
        let catalog = self.session.catalog();
        let clock = self.zero.map_or(catalog.clock().map(|clock| clock.clock), |zero| zero.clock);
        let (arch, os) = catalog.session().map_or((Arch::from(0), Os::from(0)), |process| (process.arch, process.os));
        #[allow(clippy::cast_possible_truncation)] // the format has room for the lower half
        let thread = catalog.thread(stream).map_or(stream.0, |thread| thread.os_id as u32);
        Origin { arch, os, clock: clock.unwrap_or(ClockKind::from(0)), thread }
    }

    fn fix_zero(&mut self) -> Zero {
        if let Some(zero) = self.zero {
            return zero;
        }
        let clock = self.session.catalog().clock();
        let zero = Zero { zero_ns: clock.map_or(0, |clock| clock.zero_ns), clock: clock.map(|clock| clock.clock) };
        self.note_zero(zero);
        *self.zero.insert(zero)
    }

    fn note_zero(&mut self, zero: Zero) {
        self.part.journal.note(&Note::Zero { zero_ns: zero.zero_ns, clock: zero.clock.map_or(0, u8::from) });
    }

    /// Notes the functions of module 0 that this part's journal does not have. Those it has no room for come later.
    fn note_functions(&mut self) {
        let made = self.stand_ins.made();
        while let Some(function) = made.get(self.part.noted_functions) {
            let entry = function.entry(self.part.noted_functions as u64);
            if !self.part.journal.note(&Note::Function(entry)) {
                return;
            }
            self.part.noted_functions += 1;
        }
    }

    /// Ends this part and goes on in another, if it is time to.
    pub(super) fn rotate_if_due(&mut self, volume: &mut Volume) {
        if self.part.is_due(volume) {
            self.rotate(volume);
        }
    }

    fn rotate(&mut self, volume: &mut Volume) {
        let end = EndEntry { how: "rotated".into(), ..EndEntry::default() };
        self.finish(volume, &Ended { end, ..Ended::default() }, false);
        let number = self.part.number.saturating_add(1);
        self.part = Part::new(volume, number, &self.session.catalog());
        // From here on this part's journal can tell by itself where every stream goes on.
        for (&stream, &first) in &self.positions {
            self.part.journal.note(&Note::First { stream, first });
        }
        if let Some(zero) = self.zero {
            self.note_zero(zero);
        }
        self.note_functions();
        // What fails here is tried again when there is something to write.
        let _ = self.open(volume);
    }

    /// Ends this part: it is written to its end now, or as soon as the disk lets it.
    pub(super) fn finish(&mut self, volume: &mut Volume, ended: &Ended, last: bool) {
        // A part that could not be started has nowhere to be finished; this may be the last chance.
        self.part.is_ending = true;
        let opened = self.open(volume);
        if last {
            self.list_silent_threads(volume);
            self.keep_open_spans(volume);
        }
        let before = self.part.spans.lost;
        let has_spans = self.part.spans.end(&self.session);
        volume.counters.lost_spans.add(self.part.spans.lost.saturating_sub(before));
        let manifest = self.manifest(volume, ended);
        let Some(dir) = self.part.dir.clone() else {
            let what = format!("cannot make {}", volume.dir.join(&self.base).display());
            volume.note(&what, opened);
            let lost = self.part.threads.values().map(|thread| u64::from(thread.writer.len()));
            let lost = lost.fold(0, u64::saturating_add);
            volume.pending = volume.pending.saturating_sub(self.part.pending_bytes());
            let cause = volume.failing.as_ref().map_or("collector:disk-error", Failing::cause);
            volume.counters.lose(&self.session.name, lost, cause);
            volume.counters.lost_spans.add(self.part.spans.rows);
            return;
        };
        let mut threads: Vec<_> = std::mem::take(&mut self.part.threads).into_iter().collect();
        threads.sort_by_key(|(stream, _)| *stream);
        let mut sealed = VecDeque::with_capacity(threads.len());
        for (stream, thread) in threads {
            self.positions.insert(stream, thread.next);
            sealed.push_back(SealedThread::new(stream, thread));
        }
        let mut part = Finishing {
            id: self.part.id,
            dir,
            session: Some(self.base.clone()).filter(|_| !last),
            threads: sealed,
            spans: has_spans.then(|| std::mem::replace(&mut self.part.spans, PartSpans::new(Budget::default()))),
            manifest: None,
            journal: std::mem::take(&mut self.part.journal),
            bytes: self.part.bytes,
        };
        let finished = match manifest.to_json() {
            Ok(json) => volume.finish(Finishing { manifest: Some(json), ..part }),
            Err(error) => {
                volume.leave(&mut part, "collector:disk-error");
                Err(io::Error::other(error))
            }
        };
        volume.note(&format!("cannot finish {}", volume.dir.join(&self.base).display()), finished);
    }

    /// Spans that have not ended never will.
    fn keep_open_spans(&mut self, volume: &Volume) {
        let catalog = self.session.catalog();
        let mut lost = 0_u64;
        for span in self.open_spans.take() {
            lost += u64::from(!self.part.spans.push(&catalog, &span));
        }
        volume.counters.lost_spans.add(lost);
    }

    /// Threads that were announced and never had an event are in the list of the last part, with an empty index.
    fn list_silent_threads(&mut self, volume: &Volume) {
        let session = Arc::clone(&self.session);
        let streams: Vec<_> = session.catalog().threads().map(|(stream, _)| stream).collect();
        for stream in streams {
            if !self.positions.contains_key(&stream.0) {
                self.thread(volume, stream, 0);
            }
        }
    }
}
