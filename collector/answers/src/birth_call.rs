//! The innermost call that was open on a thread at a time, from the events of that thread alone.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use codec::{
    EventKind, Position, SessionNs, StreamId,
    atf::{GapEntry, ThreadEntry},
    profile::{Birth, FunctionEvent, Message},
    span::What,
};
use sinks::name;

use super::{
    printable,
    scan::{MessageConsumer, Messages, Scan},
    trace::Trace,
};

/// The call that a process was made in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BirthCall {
    /// This function was the innermost.
    Function(What),
    /// Events are missing there.
    Missing,
    /// No call was open, as far as functions were traced.
    None,
    /// Nobody knows the thread.
    NoThread,
}

/// Depths beyond are not remembered. They come from a file, which may say anything.
const MOST_DEPTH: u32 = 1 << 16;

impl BirthCall {
    /// The calls of a session that other processes were made in, one for each birth.
    pub fn find(trace: &Trace, births: &[Birth]) -> Vec<Self> {
        let threads = trace.threads();
        let mut found = vec![Self::NoThread; births.len()];
        let mut by_thread: BTreeMap<u32, Vec<(SessionNs, usize)>> = BTreeMap::new();
        for (place, birth) in births.iter().enumerate() {
            let Some(thread) = thread_of(&threads, birth) else { continue };
            by_thread.entry(thread.id).or_default().push((birth.at, place));
        }
        for (thread, mut wanted) in by_thread {
            wanted.sort_unstable_by(|one, other| other.cmp(one));
            let entry: Vec<_> = threads.iter().filter(|entry| entry.id == thread).cloned().collect();
            let mut search = Messages::new(trace, Search { wanted, stack: Vec::new(), found: &mut found });
            // It stops when it has all; where the files are damaged, the rest is not known.
            let read = Scan::open(trace, &entry).and_then(|mut scan| scan.run(&mut search));
            let rest = if read.is_ok() { search.consumer.innermost() } else { Self::Missing };
            search.consumer.settle(None, &rest);
        }
        found
    }

    /// In words: `in fork`.
    pub fn words(&self, trace: &Trace) -> String {
        match self {
            Self::Function(function) => format!("in {}", printable(&name(&trace.catalog, function).pretty)),
            Self::Missing => "in a call that is missing".into(),
            Self::None => "in no call that was traced".into(),
            Self::NoThread => String::new(),
        }
    }
}

/// The thread of a parent that made a process.
pub fn thread_of<'a>(threads: &'a [ThreadEntry], birth: &Birth) -> Option<&'a ThreadEntry> {
    // Ids are used again: the last that had begun by then.
    let is_it = |thread: &&ThreadEntry| birth.tid != 0 && thread.os_id == Some(birth.tid.into());
    threads.iter().filter(is_it).max_by_key(|thread| thread.start_ns.unwrap_or(0))
}

struct Search<'a> {
    /// The times that are looked for and the births they are of, the last first.
    wanted: Vec<(SessionNs, usize)>,
    /// The functions that are open, as far as they are known.
    stack: Vec<Option<What>>,
    found: &'a mut [BirthCall],
}

impl Search<'_> {
    fn innermost(&self) -> BirthCall {
        match self.stack.last() {
            Some(Some(function)) => BirthCall::Function(function.clone()),
            Some(None) => BirthCall::Missing,
            None => BirthCall::None,
        }
    }

    /// The thread has come as far as this time, or to its end.
    fn settle(&mut self, until: Option<SessionNs>, call: &BirthCall) {
        while let Some((_, place)) = self.wanted.pop_if(|(at, _)| until.is_none_or(|until| *at < until)) {
            if let Some(found) = self.found.get_mut(place) {
                *found = call.clone();
            }
        }
    }
}

impl MessageConsumer for Search<'_> {
    fn message(&mut self, stream: StreamId, position: Position, message: &Message<'_>) -> Result<()> {
        match message {
            Message::Function(event) => self.function(stream, position, *event),
            // What runtimes did is told beside the calls.
            _ => Ok(()),
        }
    }

    fn function(&mut self, _: StreamId, _: Position, event: FunctionEvent<'_>) -> Result<()> {
        let at = event.stamp.end;
        if self.wanted.last().is_some_and(|(wanted, _)| *wanted < at) {
            let innermost = self.innermost();
            self.settle(Some(at), &innermost);
        }
        if self.wanted.is_empty() {
            bail!("all are found");
        }
        self.stack.resize(event.depth.min(MOST_DEPTH) as usize, None);
        if event.kind == EventKind::Call {
            let function = event.function.map(What::Function).or(event.ip.map(What::Address));
            self.stack.push(function);
        }
        Ok(())
    }

    fn gap(&mut self, _: &GapEntry, next: Option<SessionNs>) -> Result<()> {
        self.settle(next, &BirthCall::Missing);
        // What was open may have ended, and what it was in.
        self.stack.fill(None);
        if self.stack.is_empty() {
            self.stack.push(None);
        }
        Ok(())
    }
}
