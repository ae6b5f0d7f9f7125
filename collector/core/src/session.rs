//! One traced run of one program.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use codec::{
    Position, SessionId, StreamId,
    atf::{EndEntry, LimitEntry},
};

use crate::{Catalog, CatalogLimits, Cause, Peer};

/// A session. All who work on it share it; what is known of it grows while it lasts.
#[derive(Debug)]
pub struct Session {
    /// Its name, made by the collector and fit for a file name. Nothing in it comes from the wire.
    pub name: String,
    /// Its id, where it announced one before it was started here.
    pub id: Option<SessionId>,
    /// Where it comes from: an address, or a file.
    pub source: String,
    /// When it was first seen, in nanoseconds since the Unix epoch.
    pub seen_unix_ns: u64,
    /// Where it was found in the files of an earlier collector, or of another that writes to the same directory.
    pub found: Option<PathBuf>,
    catalog: RwLock<Catalog>,
}

impl Session {
    /// A session of which only this is known.
    pub fn new(name: String, id: Option<SessionId>, source: String, seen_unix_ns: u64, catalog: Catalog) -> Self {
        Self { name, id, source, seen_unix_ns, found: None, catalog: RwLock::new(catalog) }
    }

    /// The same, and nothing of what its options have told.
    pub(crate) fn without_names(&self) -> Self {
        let catalog = Catalog::new(CatalogLimits::default(), Arc::default());
        let known = Self::new(self.name.clone(), self.id, self.source.clone(), self.seen_unix_ns, catalog);
        Self { found: self.found.clone(), ..known }
    }

    /// What its options have told so far. Options may come after the events they describe.
    pub fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        // Nothing is left half done where a holder panics: entries are replaced whole.
        self.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To enter what options say.
    pub fn catalog_mut(&self) -> RwLockWriteGuard<'_, Catalog> {
        self.catalog.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a session ended, and what its streams came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ended {
    /// How it ended.
    pub end: EndEntry,
    /// What the collector could not keep of it beside gaps: for the manifest, with the limits that the agent told.
    pub limits: Vec<LimitEntry>,
}

/// Names new sessions and finds earlier ones: with what only the driver knows.
pub trait SessionNames: std::fmt::Debug + Send {
    /// The name of a session that was first heard of from this peer, and where that is, for people.
    fn name(&mut self, peer: &Peer) -> SessionName;

    /// The session with this id that an earlier collector recorded and that has not ended by its own account. What is
    /// known of it goes into `catalog`.
    fn earlier(&mut self, id: SessionId, peer: &Peer, catalog: Catalog) -> Option<EarlierSession> {
        let _ = (id, peer, catalog);
        None
    }
}

/// A session that was recorded before and goes on.
#[derive(Debug)]
pub struct EarlierSession {
    /// The session, with the name that it had.
    pub session: Arc<Session>,
    /// Where its streams go on.
    pub positions: HashMap<StreamId, Position>,
    /// How far each would survive the end of the collector.
    pub kept: HashMap<StreamId, Position>,
    /// How many events were written.
    pub written: u64,
    /// How many are missing before these positions, by cause.
    pub missing: BTreeMap<Cause, u64>,
}

/// How a new session is named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionName {
    /// A name that it has not given before, fit for a file name.
    pub name: String,
    /// Where it comes from.
    pub source: String,
    /// The time, in nanoseconds since the Unix epoch.
    pub seen_unix_ns: u64,
}
