//! What a session tells its agent: acknowledgements, and requests for what is missing.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use codec::{
    Position, StreamId,
    profile::{Answer, AnswerKind, Ask, Fingerprint, Lost, MAX_ANSWER_BYTES, ProfileOption, Range},
    text::cut,
};

use super::{SessionContext, SessionState, end_state::EndState};
use crate::{
    Answered, NotAsked, Peer, Session, Told, Transmit,
    reply::{MAX_RANGES, nacks, packet},
    stream::Stream,
};

/// How many replies may wait to be sent, of all sessions.
const MAX_TRANSMITS: usize = 4096;

impl SessionState {
    /// Everything of a stream before this position would survive the end of the collector.
    pub(crate) fn kept(&mut self, stream: StreamId, next: Position, by: Duration) {
        let kept = self.kept.entry(stream).or_default();
        *kept = next.max(*kept);
        if self.id.is_some() {
            self.reply.kept(stream, by);
        }
    }

    /// What the session came to would survive the end of the collector: its agent may know that it is over.
    pub(crate) fn end_is_kept(&mut self, by: Duration) {
        let unanswered = self.ending.as_mut().map(EndState::keep).unwrap_or_default();
        unanswered.into_iter().for_each(|fingerprint| self.reply.option(fingerprint, by));
    }

    /// Whether its agent waits to be told that it is over.
    pub(crate) fn has_to_tell_end(&self) -> bool {
        self.ending.as_ref().is_some_and(EndState::is_unanswered)
    }

    /// Acknowledges a packet of the end, now or when that is kept.
    pub(super) fn answer_end(&mut self, fingerprint: Fingerprint, by: Duration) {
        if self.ending.as_mut().is_none_or(|ending| ending.may_answer(fingerprint)) {
            self.reply.option(fingerprint, by);
        }
    }

    /// Asks the agent for something, until it has answered.
    pub(crate) fn ask(&mut self, number: u64, request: &str, now: Duration) -> Result<(), NotAsked> {
        let session = self.id.filter(|_| !self.has_ended()).ok_or(NotAsked::Ended)?;
        let packet = packet(Ask { session, number, request }.into()).ok_or(NotAsked::TooLong)?;
        self.asks.add(number, packet, now).then_some(()).ok_or(NotAsked::TooMany)
    }

    /// The agent has answered. What was not asked for, or of another session, is no answer.
    pub(super) fn answered(&mut self, answer: &Answer<'_>, context: &mut SessionContext<'_>) {
        if self.id != Some(answer.session) || !self.asks.remove(answer.number) {
            return;
        }
        let text = cut(answer.text, MAX_ANSWER_BYTES).into();
        let told = if answer.kind == AnswerKind::Done { Told::Done(text) } else { Told::Refused(text) };
        context.answers.push_back(Answered { number: answer.number, told });
    }

    /// Whether all events that are settled would survive the end of the collector.
    pub(crate) fn is_kept(&self) -> bool {
        let is_kept = |(stream, position)| self.kept.get(&stream).is_some_and(|kept| *kept >= position);
        self.positions().filter(|(_, position)| position.0 > 0).all(is_kept)
    }

    /// Whether events have arrived that wait for others before them.
    pub(crate) fn holds_events(&self) -> bool {
        self.waiting.iter().filter_map(|index| self.streams.get(*index)).any(Stream::holds_events)
    }

    /// What others know of it.
    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }

    /// Whether something is to be told.
    pub(crate) fn owes_reply(&self) -> bool {
        self.reply.is_wanted()
    }

    /// Puts acknowledgements and requests into `transmits`, where it is time for them.
    pub(crate) fn reply(
        &mut self,
        window_bytes: u64,
        context: &mut SessionContext<'_>,
        transmits: &mut VecDeque<Transmit>,
    ) {
        let Some(id) = self.id else { return };
        if transmits.len() >= MAX_TRANSMITS {
            return;
        }
        let mut packets = Vec::new();
        // Without room time stands still, and agents are answered all the same.
        if self.reply.is_due(context.now, window_bytes) || (context.room == 0 && self.reply.is_wanted()) {
            let (streams, by_id) = (&self.streams, &self.by_id);
            let known = |stream| by_id.get(&stream).and_then(|index| streams.get(*index)).map(Stream::settled);
            let next = |stream| known(stream).or_else(|| self.refused.next(stream));
            let kept = |stream| self.kept.get(&stream).copied().or_else(|| self.refused.next(stream));
            let mut missing = self.missing();
            for (cause, count) in &self.lost_by_driver {
                *missing.entry(cause.clone()).or_default() += count;
            }
            let lost: Vec<_> = (missing.iter())
                .filter(|(cause, _)| cause.agent_reason().is_none() && !cause.is_provisional())
                .map(|(cause, count)| Lost { count: *count, cause: cause.as_str() })
                .collect();
            let since = self.session.seen_unix_ns;
            packets = self.reply.acks(id, window_bytes, next, kept, (&lost, since), context.unix_ns);
        }
        let mut ranges = Vec::new();
        let (look, listening) = (context.now >= self.next_look, self.listening(context.now));
        if look {
            self.next_look = context.now + context.config.nack_time / 2;
        }
        for index in self.waiting.iter().filter(|_| look) {
            let Some(stream) = self.streams.get_mut(*index) else { continue };
            let wanted = stream.wanted(listening, context.config, MAX_RANGES - ranges.len());
            ranges.extend(wanted.into_iter().map(|(first, count)| Range { stream: stream.id(), first, count }));
            if ranges.len() >= MAX_RANGES {
                break;
            }
        }
        packets.extend(nacks(id, &ranges));
        packets.extend(self.asks.due(context.now));
        for packet in packets {
            let bytes = packet.len() as u64;
            let is_datagram = matches!(self.peer, Peer::Datagram { .. });
            // A forged address must not be sent much more than was forged.
            if is_datagram && self.sent_bytes.saturating_add(bytes) > self.received_bytes.saturating_mul(3) {
                break;
            }
            self.sent_bytes = self.sent_bytes.saturating_add(bytes);
            context.counts.replies += 1;
            transmits.push_back(Transmit { to: self.peer, packet });
        }
    }

    /// An option of a session that has ended: its agent may not know yet. Only the streams that it asks for are told.
    pub(crate) fn acknowledge_again(&mut self, option: Option<&ProfileOption<'_>>, packet: &[u8], by: Duration) {
        let fingerprint = Fingerprint::of(packet);
        let streams = match option {
            Some(ProfileOption::End(end)) => {
                self.answer_end(fingerprint, by);
                end.streams
            }
            Some(ProfileOption::Progress(progress)) => {
                self.reply.option(fingerprint, by);
                progress.streams
            }
            _ => return self.reply.option(fingerprint, by),
        };
        for position in streams {
            if self.knows(position.stream) {
                self.reply.moved(position.stream, 0, by);
                self.reply.kept(position.stream, by);
            }
        }
    }
}
