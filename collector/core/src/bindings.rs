//! Who is behind a peer.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use codec::SessionId;

use crate::{Peer, output::SessionKey};

/// Which session the bytes of each peer belong to.
pub(crate) type Bindings = HashMap<Peer, Binding>;

/// What is known of a peer.
#[derive(Debug)]
pub(crate) enum Binding {
    /// Its bytes belong to this session.
    Open(SessionKey),
    /// Its bytes belong to a session that has ended.
    Past(SessionId),
    /// It has not said who it is, and may yet.
    Unknown(Unknown),
}

/// Datagrams of a sender that has not said who it is.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    pub(crate) datagrams: Vec<Box<[u8]>>,
    pub(crate) bytes: usize,
    pub(crate) since: Duration,
    /// Whether it can only be an agent, whose session began before this collector did.
    pub(crate) is_agent: bool,
}

/// The open session that a peer belongs to.
pub(crate) fn session(bindings: &Bindings, peer: &Peer) -> Option<SessionKey> {
    match bindings.get(peer)? {
        Binding::Open(key) => Some(*key),
        Binding::Past(_) | Binding::Unknown(_) => None,
    }
}

/// A session has ended: its peers are free, or lead to what is remembered of it.
pub(crate) fn release(bindings: &mut Bindings, key: SessionKey, past: Option<SessionId>) {
    bindings.retain(|_, binding| match (&*binding, past) {
        (Binding::Open(bound), Some(id)) if *bound == key => {
            *binding = Binding::Past(id);
            true
        }
        (Binding::Open(bound), None) => *bound != key,
        _ => true,
    });
}

/// Makes room: forgets peers of sessions that have ended, and those that sessions have left.
pub(crate) fn purge(bindings: &mut Bindings, current: &HashSet<Peer>) {
    bindings.retain(|peer, binding| match binding {
        Binding::Open(_) => current.contains(peer),
        Binding::Past(_) => false,
        Binding::Unknown(_) => true,
    });
}

/// The peers that have been unknown since this time or longer.
pub(crate) fn unknown_since(bindings: &Bindings, time: Duration) -> Vec<Peer> {
    let overdue = |binding: &Binding| matches!(binding, Binding::Unknown(unknown) if unknown.since <= time);
    bindings.iter().filter(|(_, binding)| overdue(binding)).map(|(peer, _)| *peer).collect()
}
