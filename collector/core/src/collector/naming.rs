//! What sessions are called. No two of a collector have the same name: sinks know them by it.

use std::sync::Arc;

use codec::SessionId;

use super::Collector;
use crate::{Catalog, EarlierSession, Peer, Session, SessionName, output::SessionKey};

impl Collector {
    /// A session of which nothing is known but who sends it.
    pub(super) fn new_session(&mut self, id: Option<SessionId>, peer: &Peer) -> Session {
        let mut named = self.names.name(peer);
        // One that was found may have it: from a collector that was killed in this second, or that writes to the same directory.
        while self.is_named(&named.name) {
            named = self.names.name(peer);
        }
        let SessionName { name, source, seen_unix_ns } = named;
        Session::new(name, id, source, seen_unix_ns, self.new_catalog())
    }

    /// A session in the files of another collector. Where one of this collector has its name already, in another directory, it
    /// is called by another.
    pub(super) fn find_earlier(&mut self, id: SessionId, peer: &Peer, key: SessionKey) -> Option<EarlierSession> {
        let mut earlier = self.names.earlier(id, peer, self.new_catalog())?;
        if self.is_named(&earlier.session.name)
            && let Some(session) = Arc::get_mut(&mut earlier.session)
        {
            session.name += &format!("+{}", key.0);
        }
        Some(earlier)
    }

    /// Another collector may have gone on with a session that has ended here: only files tell where it stands.
    pub fn forget(&mut self, id: SessionId) {
        self.past.resume(id);
    }

    /// Whether a session has this name, or had it and may go on.
    fn is_named(&self, name: &str) -> bool {
        let past = self.past.iter().map(|(state, _)| state);
        self.sessions.values().chain(past).any(|state| state.has_name(name))
    }

    fn new_catalog(&self) -> Catalog {
        Catalog::new(self.limits, Arc::clone(&self.catalog_bytes))
    }
}
