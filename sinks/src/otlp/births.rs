//! Where processes came from: the span of the call that made each of them, in the session of its parent.

use std::{collections::VecDeque, sync::Arc};

use ahash::HashMap;
use codec::{SessionId, StreamId, profile::Birth, span::SpanId};

use super::{
    ids::Identity,
    message::{ResourceMessage, SpanMessage},
    recording::Exported,
};
use crate::Session;

/// How many of the frames that were exported last are remembered of a session: a child may be heard of after the call
/// that made it.
const MOST_RECENT: usize = 256;

/// How many sessions are remembered that have ended: what a process runs after an `exec` begins then.
const MOST_PAST: usize = 64;

/// The processes that others came from, or may come from.
#[derive(Debug, Default)]
pub(super) struct Births {
    parents: HashMap<SessionId, Parent>,
    past: VecDeque<SessionId>,
}

#[derive(Debug)]
struct Parent {
    session: Arc<Session>,
    identity: Identity,
    recent: VecDeque<Exported>,
    children: Vec<Child>,
    has_ended: bool,
}

/// A process whose call is looked for.
#[derive(Debug)]
struct Child {
    session: String,
    birth: Birth,
    stream: Option<StreamId>,
    /// The innermost frame that was exported of those that it was made in.
    found: Option<SpanId>,
    /// Its own span, if it has ended.
    waiting: Option<ProcessSpan>,
}

/// The span of a process that has ended, without its parent.
#[derive(Debug)]
pub(super) struct ProcessSpan {
    pub(super) resource: ResourceMessage,
    pub(super) message: SpanMessage,
    pub(super) identity: Identity,
}

impl ProcessSpan {
    /// The request that exports it, below what made it.
    pub(super) fn request(mut self, made_by: Option<(&Identity, [u8; 8])>) -> Vec<u8> {
        let remote = self.identity.remote;
        // What the program was started in by others goes before what its parent is known to have been in.
        let parent = match made_by {
            Some((parent, span)) if parent.trace == self.identity.trace && parent.remote == remote => Some(span),
            Some((parent, span)) => {
                self.message.link(parent.trace, span, "created_by");
                remote.map(|remote| remote.span)
            }
            None => remote.map(|remote| remote.span),
        };
        let mut spans = Vec::new();
        self.message.write(parent, &mut spans);
        self.resource.request(&spans)
    }
}

impl Births {
    /// A session may have children from now on.
    pub(super) fn start(&mut self, id: SessionId, session: &Arc<Session>, identity: &Identity) {
        let parent = self.parents.entry(id).or_insert_with(|| Parent {
            session: Arc::clone(session),
            identity: identity.clone(),
            recent: VecDeque::new(),
            children: Vec::new(),
            has_ended: false,
        });
        parent.has_ended = false;
    }

    /// A session came from another. Nothing is known where that is not here.
    pub(super) fn born(&mut self, session: &Session, birth: Birth) {
        let Some(parent) = self.parents.get_mut(&birth.parent) else { return };
        if parent.children.iter().any(|child| child.session == session.name) {
            return;
        }
        let made = |(stream, thread): (StreamId, &crate::CatalogThread)| {
            (thread.os_id == u64::from(birth.tid)).then_some(stream)
        };
        let stream = parent.session.catalog().threads().find_map(made);
        let around = parent.recent.iter().filter(|frame| contains(frame, stream, &birth));
        let found = around.max_by_key(|frame| frame.start).map(|frame| frame.id);
        parent.children.push(Child { session: session.name.clone(), birth, stream, found, waiting: None });
    }

    /// A frame was exported. What is in another comes before that, so the first that a process was made in is the
    /// innermost.
    pub(super) fn exported(&mut self, id: SessionId, frame: Exported) {
        let Some(parent) = self.parents.get_mut(&id) else { return };
        for child in parent.children.iter_mut().filter(|child| child.found.is_none()) {
            if contains(&frame, child.stream, &child.birth) {
                child.found = Some(frame.id);
            }
        }
        if parent.recent.len() >= MOST_RECENT {
            parent.recent.pop_front();
        }
        parent.recent.push_back(frame);
    }

    /// The spans of processes whose calls were found, as requests.
    pub(super) fn settled(&mut self, id: SessionId) -> Vec<Vec<u8>> {
        let Some(parent) = self.parents.get_mut(&id) else { return Vec::new() };
        if !parent.children.iter().any(|child| child.found.is_some() && child.waiting.is_some()) {
            return Vec::new();
        }
        let mut requests = Vec::new();
        parent.children.retain_mut(|child| {
            let Some(found) = child.found.filter(|_| child.waiting.is_some()) else { return true };
            let made_by = Some((&parent.identity, parent.identity.span(found)));
            requests.extend(child.waiting.take().map(|span| span.request(made_by)));
            false
        });
        requests
    }

    /// A process has ended. Returns its span as a request, unless the call that made it is still to come.
    pub(super) fn died(&mut self, session: &str, birth: Option<Birth>, span: ProcessSpan) -> Option<Vec<u8>> {
        let parent = birth.and_then(|birth| self.parents.get_mut(&birth.parent));
        let Some(parent) = parent else { return Some(span.request(None)) };
        let place = parent.children.iter().position(|child| child.session == session);
        match place.and_then(|place| parent.children.get_mut(place)) {
            Some(child) if child.found.is_none() && !parent.has_ended => {
                child.waiting = Some(span);
                None
            }
            child => {
                let found = child.and_then(|child| child.found).map(|found| parent.identity.span(found));
                place.map(|place| parent.children.swap_remove(place));
                let made_by = found.unwrap_or_else(|| parent.identity.process());
                Some(span.request(Some((&parent.identity, made_by))))
            }
        }
    }

    /// The threads that made processes whose calls are not exported: those are below the threads.
    pub(super) fn unfound(&self, id: SessionId) -> impl Iterator<Item = StreamId> {
        let children = self.parents.get(&id).into_iter().flat_map(|parent| &parent.children);
        children.filter(|child| child.found.is_none() && child.waiting.is_some()).filter_map(|child| child.stream)
    }

    /// A session has ended. Returns the spans of its children that have ended before, as requests.
    pub(super) fn end(&mut self, id: SessionId) -> Vec<Vec<u8>> {
        let mut requests = self.settled(id);
        let Some(parent) = self.parents.get_mut(&id) else { return requests };
        parent.has_ended = true;
        let identity = &parent.identity;
        parent.children.retain_mut(|child| {
            let Some(span) = child.waiting.take() else { return true };
            let thread = child.stream.map_or_else(|| identity.process(), |stream| identity.thread(stream));
            requests.push(span.request(Some((identity, thread))));
            false
        });
        self.past.push_back(id);
        if self.past.len() > MOST_PAST
            && let Some(oldest) = self.past.pop_front()
            && self.parents.get(&oldest).is_some_and(|parent| parent.has_ended)
        {
            self.parents.remove(&oldest);
        }
        requests
    }
}

/// Whether a process was made in a frame.
fn contains(frame: &Exported, stream: Option<StreamId>, birth: &Birth) -> bool {
    Some(frame.stream) == stream && frame.start <= birth.at && birth.at <= frame.end
}
