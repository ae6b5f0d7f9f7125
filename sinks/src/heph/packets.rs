//! The packets that a session is written as again, for whoever reads them as if they came from its agent.

use codec::{
    Arch, Os, SessionId,
    heph::{Encode, MAX_PACKET_BYTES, Metadata, Packets},
    profile::{Dropped, Drops, Fingerprint, PROFILE_VERSION, ProfileOption, Session as SessionOption},
};

use super::Packer;
use crate::{Gap, RunEvents, Session, cut};

/// What a string in a packet may have.
const MOST_NAME_BYTES: usize = u16::MAX as usize;

/// The id that a session goes by: its own, or one made of its name.
pub fn id(session: &Session) -> SessionId {
    session.id.unwrap_or_else(|| {
        let mut id = [0; 16];
        let hashes = [Fingerprint::of(session.name.as_bytes()), Fingerprint::of(session.source.as_bytes())];
        id.as_chunks_mut().0.iter_mut().zip(hashes).for_each(|(to, hash)| *to = hash.0.to_be_bytes());
        SessionId(id)
    })
}

/// Appends the `session` option of a session, or one made of its name. The latter says that what follows is plain Heph.
pub fn session(session: &Session, out: &mut Vec<u8>) {
    if session.id.is_some() {
        let catalog = session.catalog();
        let written = catalog.with_session_option(|option| ProfileOption::from(option).encode(out).is_ok());
        if written == Some(true) {
            return;
        }
    }
    let option = SessionOption {
        id: id(session),
        profile: if session.id.is_some() { PROFILE_VERSION } else { 0 },
        arch: Arch::from(0),
        os: Os::from(0),
        pid: 0,
        agent_version: "",
        host: "",
        executable: cut(&session.name, MOST_NAME_BYTES),
        argument_count: 0,
        arguments: (&[]).into(),
    };
    // A short name always fits.
    let _ = ProfileOption::from(option).encode(out);
}

/// Appends options as they came. One that was started without a name is called by another here, from its first packet on.
pub fn options(session: &Session, packets: &[u8], out: &mut Vec<u8>) {
    if session.id.is_some() {
        return out.extend_from_slice(packets);
    }
    for_each_named(packets, |name, packet| {
        if name != "session" {
            out.extend_from_slice(packet);
        }
    });
}

/// Calls `with` for each of these options, with its name.
pub fn for_each_named<'a>(packets: &'a [u8], mut with: impl FnMut(&str, &'a [u8])) {
    let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
    let named = |packet| Metadata::decode(packet).map(|metadata| (metadata.name, packet));
    while let Some(Ok((name, packet))) = packets.next_with(named) {
        with(name, packet);
    }
}

/// Appends the events of a run: their packets, or where these hold others as well, new ones.
pub fn run(run: RunEvents<'_>, out: &mut Vec<u8>) {
    if run.has_whole_packets() {
        return out.extend_from_slice(run.bytes);
    }
    let mut packer = Packer::default();
    for message in run {
        // What came in a packet fits into one.
        let _ = packer.push(&message, out);
    }
    packer.finish(out);
}

/// Appends a `drops` option whose reason is the cause of a gap.
pub fn gap(gap: &Gap, out: &mut Vec<u8>) {
    let reason = cut(gap.cause.as_str(), MOST_NAME_BYTES);
    let drops = [Dropped { stream: gap.stream, first: gap.first, count: gap.count, reason }];
    // One range with a short reason always fits.
    let _ = ProfileOption::from(Drops { drops: (&drops).into() }).encode(out);
}
