//! Packets on their way to the session that they belong to.

use std::time::Duration;

use codec::{
    SessionId, access,
    heph::{DecodeError, Packets, Step, StreamDecoder},
    profile::{Epoch, Message, ProfileOption},
};

use super::Collector;
use crate::{
    How, Peer,
    bindings::{self, Binding},
    output::SessionKey,
    session_state::{SessionContext, SessionState},
};

/// A packet and its bytes.
type Packet<'a> = (Message<'a>, &'a [u8]);

/// What is known of who sends the packets of a connection, or of a datagram.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// The session whose secret it has shown.
    claimed: Option<SessionId>,
    /// Whether it has named a session that it does not get, that there is no room for, or that has ended.
    is_refused: bool,
}

/// What a packet can say about the session of those that follow.
enum Turn {
    /// Its sender has the secret of this one.
    Claim(SessionId),
    /// It is this one.
    To(Named),
    /// Its zero is this one.
    Epoch(Epoch),
}

/// The name of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named {
    pub(super) id: SessionId,
    /// Whether its sender has shown that it is its own, where that can be shown.
    pub(super) is_proven: bool,
    /// Whether its packets are plain Heph, and the name was made up by a collector that wrote them to a file.
    pub(super) plain: bool,
}

/// The session that a datagram says it is of, if it does.
pub(super) fn announced(datagram: &[u8], limit: u32) -> Option<Named> {
    let mut claimed = None;
    find(datagram, limit, |message| match turn(message, claimed)? {
        Turn::To(name) => Some(name),
        Turn::Claim(id) => {
            claimed = Some(id);
            None
        }
        Turn::Epoch(_) => None,
    })
}

/// Whether a datagram says what only agents say.
pub(super) fn is_of_agent(datagram: &[u8], limit: u32) -> bool {
    let said = |option: &ProfileOption<'_>| {
        matches!(option, ProfileOption::Progress(_) | ProfileOption::End(_) | ProfileOption::Drops(_))
    };
    let by_agent = |message: &Message<'_>| match message {
        Message::Option(known) => said(&known.option),
        message => matches!(message, Message::Run(_)),
    };
    find(datagram, limit, |message| by_agent(message).then_some(())).is_some()
}

/// The first that is found in the packets before one that cannot be read.
fn find<T>(datagram: &[u8], limit: u32, mut find: impl FnMut(&Message<'_>) -> Option<T>) -> Option<T> {
    let mut packets = Packets::new(datagram, limit);
    while let Some(Ok(message)) = packets.next_with(Message::decode) {
        if let Some(found) = find(&message) {
            return Some(found);
        }
    }
    None
}

/// Whether there is anything in a datagram: at least its first packet can be read.
pub(super) fn is_readable(datagram: &[u8], limit: u32) -> bool {
    Packets::new(datagram, limit).next_with(Message::decode).is_some_and(|packet| packet.is_ok())
}

/// What a packet says of the session of those that follow, where its sender has shown the secret of `claimed`.
#[inline]
fn turn(message: &Message<'_>, claimed: Option<SessionId>) -> Option<Turn> {
    match message {
        Message::Option(known) => match &known.option {
            ProfileOption::Claim(claim) => Some(Turn::Claim(access::claimed_id(claim.secret))),
            ProfileOption::Session(session) => {
                let (id, plain) = (session.id, session.profile == 0);
                let is_proven = !access::is_claimed(id) || claimed == Some(id);
                Some(Turn::To(Named { id, is_proven, plain }))
            }
            ProfileOption::Epoch(epoch) => Some(Turn::Epoch(*epoch)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a packet says anything of that.
#[inline]
fn is_turn(message: &Message<'_>) -> bool {
    use ProfileOption::{Claim, Epoch, Session};
    matches!(message, Message::Option(known) if matches!(known.option, Claim(_) | Session(_) | Epoch(_)))
}

fn decode(packet: &[u8]) -> Result<Packet<'_>, DecodeError> {
    Message::decode(packet).map(|message| (message, packet))
}

impl Collector {
    /// The packets of a datagram, for this session until they say otherwise.
    pub(super) fn take_datagram(&mut self, now: Duration, peer: Peer, key: Option<SessionKey>, datagram: &[u8]) {
        let mut packets = Packets::new(datagram, self.shared.config.max_packet_bytes);
        let mut failed = false;
        self.take_packets(now, peer, key, &mut Sender::default(), || match packets.next_with(decode)? {
            Ok(packet) => Some(packet),
            Err(_) => {
                failed = true;
                None
            }
        });
        if failed {
            self.shared.counts.bad_datagrams += 1;
            self.shared.counts.skipped_bytes += packets.remaining_bytes() as u64;
        }
    }

    /// The packets of a connection or file. Returns how many bytes are consumed.
    pub(super) fn take_stream(
        &mut self,
        now: Duration,
        peer: Peer,
        (decoder, sender): &mut (StreamDecoder, Sender),
        input: &[u8],
        ended: bool,
    ) -> usize {
        let key = bindings::session(&self.bindings, &peer);
        let mut consumed = 0;
        let mut skipped = 0;
        let next = || loop {
            let rest = input.get(consumed..).unwrap_or_default();
            if rest.is_empty() {
                return None;
            }
            match decoder.step_with(rest, ended, Message::decode) {
                Step::Packet { packet, bytes } => {
                    consumed += bytes.len();
                    return Some((packet, bytes));
                }
                Step::Skip { bytes, .. } => {
                    consumed += bytes;
                    skipped += bytes as u64;
                }
                Step::More { .. } => return None,
            }
        };
        self.take_packets(now, peer, key, sender, next);
        self.shared.counts.skipped_bytes += skipped;
        consumed
    }

    /// Gives packets to the session, and to another where they say that they belong to another.
    fn take_packets<'p>(
        &mut self,
        now: Duration,
        peer: Peer,
        mut key: Option<SessionKey>,
        sender: &mut Sender,
        mut next: impl FnMut() -> Option<Packet<'p>>,
    ) {
        // An agent that was silent for too long need not know that.
        if let Some(Binding::Past(id)) = self.bindings.get(&peer)
            && self.past.may_return(*id)
        {
            key = self.session_for(now, peer, Named { id: *id, is_proven: true, plain: false });
        }
        let mut carried = next();
        // Whether what follows belongs to a session that there is none of.
        let mut without = sender.is_refused;
        while let Some((message, bytes)) = carried {
            key = match turn(&message, sender.claimed) {
                Some(Turn::Claim(id)) => {
                    sender.claimed = Some(id);
                    carried = next();
                    continue;
                }
                Some(Turn::To(name)) => {
                    let key = self.session_for(now, peer, name);
                    without = key.is_none();
                    sender.is_refused = without;
                    key
                }
                Some(Turn::Epoch(epoch)) => self.session_for_epoch(now, peer, key, &epoch),
                None => key,
            };
            let is_past = matches!(self.bindings.get(&peer), Some(Binding::Past(_)));
            if key.is_none() && !is_past && !without {
                key = self.open_session(now, peer, None);
                without = key.is_none();
            }
            let Some((key, session)) = key.and_then(|key| Some((key, self.sessions.get_mut(&key)?))) else {
                self.take_without_session(now, peer, &message, bytes);
                carried = next();
                continue;
            };
            if self.touched.last() != Some(&key) {
                self.touched.push(key);
            }
            let mut context = self.shared.context(now);
            let mut heard = bytes.len();
            session.hear(peer, 0, now);
            give(session, &message, bytes, &mut context);
            // The way of nearly all packets: the session stays the same.
            carried = loop {
                match next() {
                    Some(packet) if is_turn(&packet.0) => break Some(packet),
                    Some((message, bytes)) => {
                        heard += bytes.len();
                        give(session, &message, bytes, &mut context);
                    }
                    None => break None,
                }
            };
            session.hear(peer, heard, now);
        }
    }

    /// The session after an `epoch`: another one, where a sender without a name has started anew.
    fn session_for_epoch(
        &mut self,
        now: Duration,
        peer: Peer,
        key: Option<SessionKey>,
        epoch: &Epoch,
    ) -> Option<SessionKey> {
        let other = key.and_then(|key| self.sessions.get(&key)).is_some_and(|session| session.is_other_epoch(epoch));
        match key {
            Some(key) if other => {
                self.finish_session(now, key, How::Closed);
                self.open_session(now, peer, None)
            }
            _ => key,
        }
    }

    /// A packet of a session that has ended, or that there is no room for.
    fn take_without_session(&mut self, now: Duration, peer: Peer, message: &Message<'_>, bytes: &[u8]) {
        let events = match message {
            Message::Run(run) => u64::from(run.count),
            Message::Function(_) | Message::Runtime(_) | Message::Event(_) => 1,
            Message::Option(_) | Message::Metadata(_) | Message::BadOption { .. } => 0,
        };
        let past = match self.bindings.get(&peer) {
            Some(Binding::Past(id)) => self.past.session_mut(*id),
            _ => None,
        };
        match past {
            Some(_) if events > 0 => self.shared.counts.late += events,
            Some(session) => {
                let option = match message {
                    Message::Option(known) => Some(&known.option),
                    _ => None,
                };
                let told_again = matches!(option, Some(ProfileOption::End(_) | ProfileOption::Progress(_)));
                self.shared.counts.late_options += u64::from(!told_again);
                session.hear(peer, bytes.len(), now);
                session.acknowledge_again(option, bytes, now + self.shared.config.ack_time);
                self.answering.extend(session.id);
            }
            None => self.shared.counts.refused_session_events += events,
        }
    }
}

#[inline]
fn give(session: &mut SessionState, message: &Message<'_>, bytes: &[u8], context: &mut SessionContext<'_>) {
    let option = match message {
        Message::Run(run) => return session.events(&run.stamp, run.count, bytes, context),
        Message::Function(event) => return session.events(&event.stamp, 1, bytes, context),
        Message::Runtime(event) => return session.events(&event.stamp, 1, bytes, context),
        Message::Event(event) => return session.events(&event.stamp, 1, bytes, context),
        Message::Option(known) => Some(&known.option),
        Message::Metadata(_) => None,
        Message::BadOption { .. } => {
            context.counts.bad_options += 1;
            None
        }
    };
    context.counts.options += 1;
    session.option(option, bytes, context);
}
