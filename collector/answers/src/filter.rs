//! What part of a session is asked for: the same for every question.

mod pick;
mod threads;

use std::{borrow::Cow, collections::BTreeSet};

use anyhow::{Result, bail};
use codec::{
    SessionNs, StreamId,
    atf::ThreadEntry,
    quantity::Moment,
    span::{Reason, Span, SpanKind, SpanStatus},
    text::Glob,
};
use sinks::KnownName;

pub use self::pick::Pick;
use super::{seconds, trace::Trace};

/// What somebody asks for, as they wrote it. Nothing stands for everything.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// What ran at this time or later.
    pub from: Option<Moment>,
    /// What ran before this time.
    pub to: Option<Moment>,
    /// A thread: its stream, its id with the operating system, or its name.
    pub thread: Option<String>,
    /// A task.
    pub task: Option<u64>,
    /// A process of a family, or of a directory of sessions.
    pub process: Option<String>,
    /// The modules that match: the path or the name of the file.
    pub module: Option<String>,
    /// The functions whose names match, demangled or not.
    pub function: Option<String>,
    /// What took at least so many nanoseconds.
    pub min_duration_ns: u64,
    /// Frames that have fewer than so many above them.
    pub depth: Option<u32>,
    /// So many at most, of whatever a question is answered with.
    pub limit: Option<usize>,
}

/// What is asked for of one session.
#[derive(Debug)]
pub struct Filter {
    /// Times since the session's zero.
    from: u64,
    to: u64,
    threads: Option<BTreeSet<StreamId>>,
    task: Option<u64>,
    module: Option<Glob>,
    function: Option<Glob>,
    min_duration_ns: u64,
    depth: Option<u32>,
    limit: Option<usize>,
}

/// What of a span counts, for those who add up counts and times.
#[derive(Debug)]
pub enum Share<'a> {
    /// It counts, with the part of it that is inside the times that are asked for.
    Counts(Cow<'a, Span>),
    /// It does not count, but its time is not its caller's own, and what it called may count.
    Hidden(Cow<'a, Span>),
    /// It has no part in it.
    None,
}

impl Filter {
    /// What is asked for of this session.
    ///
    /// # Errors
    ///
    /// Where that cannot be: times that end before they begin, and threads that are not there.
    pub fn new(trace: &Trace, wanted: &Wanted) -> Result<Self> {
        if let (Some(from), Some(to)) = (wanted.from, wanted.to)
            && from > to
        {
            let text = |time: Moment| seconds(u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX));
            bail!("--from {} s is after --to {} s: nothing lies between them", text(from), text(to));
        }
        let threads = match &wanted.thread {
            Some(thread) => {
                Some(threads::named(trace, thread)?.iter().map(|thread| StreamId(thread.id)).collect::<BTreeSet<_>>())
            }
            None => None,
        };
        Ok(Self {
            from: wanted.from.map_or(0, |from| trace.given_ns(from)),
            to: wanted.to.map_or(u64::MAX, |to| trace.given_ns(to)),
            threads,
            task: wanted.task,
            module: wanted.module.as_deref().map(Glob::new),
            function: wanted.function.as_deref().map(Glob::new),
            min_duration_ns: wanted.min_duration_ns,
            depth: wanted.depth,
            limit: wanted.limit,
        })
    }

    /// What ran between two times.
    #[cfg(test)]
    pub(crate) fn between(from: u64, to: u64) -> Self {
        Self {
            from,
            to,
            threads: None,
            task: None,
            module: None,
            function: None,
            min_duration_ns: 0,
            depth: None,
            limit: None,
        }
    }

    /// How many are asked for at most.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// The threads that are asked for, of those of a session.
    pub fn threads(&self, trace: &Trace) -> Vec<ThreadEntry> {
        let mut threads = trace.threads();
        threads.retain(|thread| self.has_thread(StreamId(thread.id)));
        threads
    }

    /// The streams that are asked for, where those are not all.
    pub fn streams(&self) -> Option<&BTreeSet<StreamId>> {
        self.threads.as_ref()
    }

    /// Whether a thread is asked for.
    pub fn has_thread(&self, stream: StreamId) -> bool {
        self.threads.as_ref().is_none_or(|threads| threads.contains(&stream))
    }

    /// The task that is asked for.
    pub fn task(&self) -> Option<u64> {
        self.task
    }

    /// How many frames may be above those that are asked for.
    pub fn depth(&self) -> Option<u32> {
        self.depth
    }

    /// Whether anything is left out, but for what is beyond the limit.
    pub fn is_any(&self) -> bool {
        self.has_window()
            || self.threads.is_some()
            || self.task.is_some()
            || self.has_names()
            || self.min_duration_ns > 0
            || self.depth.is_some()
    }

    /// Whether calls are left out by something that calls which were only counted do not say of themselves.
    pub fn leaves_out_calls(&self) -> bool {
        self.has_window() || self.task.is_some() || self.min_duration_ns > 0 || self.depth.is_some()
    }

    /// Whether functions are asked for by their names or modules.
    pub fn has_names(&self) -> bool {
        self.function.is_some() || self.module.is_some()
    }

    fn has_window(&self) -> bool {
        self.from > 0 || self.to < u64::MAX
    }

    /// Whether what has this name is asked for.
    pub fn has_name(&self, name: &KnownName) -> bool {
        self.function.as_ref().is_none_or(|glob| name.matches(glob))
            && self.module.as_ref().is_none_or(|glob| name.is_in(glob))
    }

    /// Whether this moment is asked for. Without an end even the last moment there is counts.
    pub fn has_time(&self, time: u64) -> bool {
        time >= self.from && (time < self.to || self.to == u64::MAX)
    }

    /// Whether the end of the trace is asked for, whenever that is.
    pub fn has_end(&self) -> bool {
        self.to == u64::MAX
    }

    /// Whether an event is asked for that was in this task, so deep, and says that something took so long.
    pub fn has_event(&self, task: u64, depth: u32, took: u64) -> bool {
        self.task.is_none_or(|wanted| wanted == task)
            && self.depth.is_none_or(|most| depth < most)
            && took >= self.min_duration_ns
    }

    /// Whether gaps are asked for: of what is missing nobody knows what it was.
    pub fn has_gaps(&self) -> bool {
        !self.has_names() && self.task.is_none() && self.min_duration_ns == 0 && self.depth.is_none()
    }

    /// Whether a span is asked for, whatever its name. It counts as a whole if any part of it ran in time.
    pub fn has_span(&self, span: &Span) -> bool {
        self.ran_inside(span) && self.is_of_owner(span) && self.took_enough(span) && self.is_shallow(span)
    }

    /// What counts of a span for those who add up. How deep it is does not matter to a tree, which shows that itself.
    pub fn share<'a>(&self, span: &'a Span, is_tree: bool) -> Share<'a> {
        // What is missing is told of everything.
        if span.kind == SpanKind::Gap || !self.is_any() {
            return Share::Counts(Cow::Borrowed(span));
        }
        if !self.ran_inside(span) || !self.is_of_owner(span) {
            return Share::None;
        }
        // One whose end is missing may have ended before.
        let is_over = span.has_lost_its_end() && span.start.0 < self.from;
        let counts = !is_over && self.took_enough(span) && (is_tree || self.is_shallow(span));
        let part = self.part(span);
        if counts { Share::Counts(part) } else { Share::Hidden(part) }
    }

    fn part<'a>(&self, span: &'a Span) -> Cow<'a, Span> {
        let (start, end) = (span.start.0.max(self.from), span.end.map(|end| end.0.min(self.to)));
        if start == span.start.0 && end == span.end.map(|end| end.0) {
            return Cow::Borrowed(span);
        }
        Cow::Owned(Span { start: SessionNs(start), end: end.map(SessionNs), ..span.clone() })
    }

    fn ran_inside(&self, span: &Span) -> bool {
        (span.start.0 < self.to || self.to == u64::MAX)
            // What has not ended goes on. What takes no time is where it is.
            && known_end(span).is_none_or(|end| end.0 > self.from || span.start.0 >= self.from)
    }

    fn is_of_owner(&self, span: &Span) -> bool {
        let others = span.more.as_deref().map_or(&[][..], |more| &more.threads);
        let is_task = |task: u64| span.substream.0 == task || span.kind == SpanKind::Task && span.key() == Some(task);
        (self.has_thread(span.stream) || others.iter().any(|stream| self.has_thread(*stream)))
            && self.task.is_none_or(is_task)
    }

    fn took_enough(&self, span: &Span) -> bool {
        let is_open = || {
            let is_running = span.status == SpanStatus::Open || span.kind == SpanKind::Frame;
            is_running && !span.has_lost_its_end() && known_end(span).is_none()
        };
        self.min_duration_ns == 0 || span.duration().map_or_else(is_open, |took| took >= self.min_duration_ns)
    }

    fn is_shallow(&self, span: &Span) -> bool {
        self.depth.is_none_or(|most| span.depth < most)
    }
}

/// When a span was over, as far as anybody knows. Where only entries are watched, nobody knows more than when it began.
pub(crate) fn known_end(span: &Span) -> Option<SessionNs> {
    let is_entry = span.reason == Some(Reason::EntryOnly);
    span.end.or_else(|| is_entry.then_some(span.start))
}

#[cfg(test)]
mod tests;
