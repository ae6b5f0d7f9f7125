//! Calls of `pthread_create` that have not returned.

use std::collections::HashMap;

use codec::{
    SessionNs, StreamId,
    span::{Span, SpanId},
};

use super::super::store::push_bounded;

/// How many calls of `pthread_create` a thread can be in at once: one may be another's, and a handler may make one more.
const MOST_UNDER_WAY: usize = 4;

/// The calls, by the thread that makes them.
#[derive(Debug, Clone, Default)]
pub(super) struct Makings {
    by_stream: HashMap<StreamId, Vec<Making>>,
}

/// A call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Making {
    pub(super) id: SpanId,
    pub(super) entered: SessionNs,
    pub(super) routine: Option<u64>,
    pub(super) argument: Option<u64>,
    /// The handle that a thread said it has which seems to be the one.
    pub(super) started: Option<u64>,
}

impl Makings {
    pub(super) fn add(&mut self, stream: StreamId, making: Making) {
        push_bounded(self.by_stream.entry(stream).or_default(), making);
    }

    /// The call of a thread that was entered then returns.
    pub(super) fn take(&mut self, stream: StreamId, entered: SessionNs) -> Option<Making> {
        let all = self.by_stream.get_mut(&stream)?;
        let place = all.iter().rposition(|making| making.entered == entered)?;
        // Those within it have not been seen to return.
        all.truncate(place.saturating_add(1));
        let making = all.pop();
        if all.is_empty() {
            self.by_stream.remove(&stream);
        }
        making
    }

    /// Which of the threads that are being created this is, and whether that is a guess among several.
    pub(super) fn guess(&mut self, handle: u64, routine: Option<u64>, argument: Option<u64>) -> (Option<SpanId>, bool) {
        let same =
            |making: &&mut Making| making.started.is_none() && making.routine == routine && making.argument == argument;
        // What a thread began to create before that, it is not creating any more: only its return is missing.
        let under_way = self.by_stream.values_mut().flat_map(|all| all.iter_mut().rev().take(MOST_UNDER_WAY));
        let mut candidates: Vec<&mut Making> = under_way.filter(same).collect();
        let several = candidates.len() > 1;
        candidates.sort_by_key(|making| making.id);
        let Some(first) = candidates.into_iter().next() else { return (None, false) };
        first.started = Some(handle);
        (Some(first.id), several)
    }

    /// Forgets a span that was evicted.
    pub(super) fn forget(&mut self, span: &Span) {
        if let Some(creator) = span.more.as_ref().and_then(|more| more.creator)
            && let Some(all) = self.by_stream.get_mut(&creator)
        {
            all.retain(|making| making.id != span.id);
        }
    }
}
