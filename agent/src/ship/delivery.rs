//! What is sent when, and what is done about the collector's answers.

use std::time::{Duration, Instant};

use codec::{
    Position, SessionId, SessionNs,
    heph::Encode,
    profile::{Ack, Known, Lost, Message, Nack, ProfileOption, Progress, Refused, StreamPosition},
};
use rustix::time::{ClockId, clock_gettime};

use super::{
    Shipper, Transport,
    contact::{Contact, Made},
    link::Sent,
    text,
};

/// What may be underway before the collector has said how much.
pub(super) const FIRST_WINDOW_BYTES: u64 = 64 << 10;

/// How often the collector is told how far the streams are.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// How often options are repeated at most, and at least. In a connection none is lost, so that a collector which is slow to
/// acknowledge them is not given more to do.
const REPEAT_EVERY: Duration = Duration::from_millis(100);
const REPEAT_AT_LEAST: Duration = Duration::from_secs(1);
const REPEAT_IN_CONNECTION: Duration = Duration::from_secs(3);

/// How many bytes of options are repeated at once, and how many are underway at most.
const REPEAT_BYTES: usize = 128 << 10;
const FLYING_BYTES: usize = 256 << 10;

/// How long a collector's wish for what was just sent is put down to its not having arrived yet.
const LEAST_GAP: Duration = Duration::from_millis(10);
const MOST_GAP: Duration = Duration::from_millis(500);

/// How many wishes are remembered. The collector repeats those beyond.
const MOST_WANTED: usize = 4_096;

/// Why an event cannot be sent again that a collector before this one has in its files.
const KEPT_BEFORE: &str = "kept-before";

/// How often is looked for options that say nothing any more.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// How long events wait until the collector knows the names of the functions that they may be of.
const NAMES_FIRST: Duration = Duration::from_millis(500);

/// How many stream positions fit a packet of this size.
pub(super) fn positions_per_packet(datagram_bytes: usize) -> usize {
    (datagram_bytes.saturating_sub(64) / 12).clamp(1, u16::MAX.into())
}

impl Shipper {
    /// Takes what has come from the collector. Whether there was anything.
    pub(super) fn receive(&mut self, now: Instant) -> bool {
        let (mut heard, mut is_unknown, mut refused) = (None, false, None);
        let (session, wanted) = (self.session, &mut self.wanted);
        let (replay, options, drops) = (&mut self.replay, &mut self.options, &mut self.drop_reports);
        let (lost, offset, zero_ns) = (&mut self.lost, &mut self.offset, self.clock_zero_ns);
        let asks = &mut self.asks;
        let any = self.contact.receive(now, |packet| match Message::decode(packet) {
            Ok(Message::Option(Known { option: ProfileOption::Ack(ack), .. })) if ack.session == session => {
                let Ack { echo, window_bytes, streams, options: fingerprints, .. } = ack;
                heard = Some((echo, window_bytes));
                options.acknowledge(fingerprints, now);
                drops.acknowledge(fingerprints, now);
                for StreamPosition { stream, next } in streams {
                    replay.receive(stream, next);
                }
            }
            Ok(Message::Option(Known { option: ProfileOption::Kept(kept), .. })) if kept.session == session => {
                for StreamPosition { stream, next } in kept.streams {
                    replay.keep(stream, next);
                }
                kept.lost.iter().for_each(|Lost { count, cause }| lost.add(kept.since, cause, count));
            }
            Ok(Message::Option(Known { option: ProfileOption::Times(times), .. })) if times.session == session => {
                offset.add(&times, session_now(zero_ns));
            }
            Ok(Message::Option(Known { option: ProfileOption::Nack(nack), .. })) if nack.session == session => {
                let Nack { ranges, .. } = nack;
                wanted.extend(ranges.iter().take(MOST_WANTED.saturating_sub(wanted.len())));
            }
            Ok(Message::Option(Known { option: ProfileOption::Nack(nack), .. })) if nack.session == SessionId::NONE => {
                is_unknown = true;
            }
            Ok(Message::Option(Known { option: ProfileOption::Ask(ask), .. })) if ask.session == session => {
                asks.hear(&ask);
            }
            Ok(Message::Option(Known { option: ProfileOption::Refused(Refused { reason }), .. })) => {
                refused = Some(text::printable(reason));
            }
            // Whatever else comes is not for us to understand.
            _ => {}
        });
        if let Some((echo, window_bytes)) = heard {
            self.window_bytes = window_bytes;
            self.time(echo);
            let made = self.contact.answered(now);
            self.make_up(made);
        }
        if is_unknown {
            self.contact.greet_again(now);
        }
        if let Some(reason) = refused {
            self.contact.refuse(reason, now);
        }
        if !self.ended {
            self.tell_offset(false);
        }
        any
    }

    /// Tells how far the clocks are apart, if that is news.
    fn tell_offset(&mut self, is_last: bool) {
        if let Some(offset) = self.offset.news(is_last) {
            self.option(offset.into());
        }
    }

    /// Tells how far the clocks are apart as is best known when the session ends, once.
    pub(super) fn tell_last_offset(&mut self) {
        if !std::mem::replace(&mut self.offset_told, true) {
            self.tell_offset(true);
        }
    }

    /// Contact is there, perhaps again: what the collector may not have is sent again.
    fn make_up(&mut self, made: Made) {
        match made {
            Made::Already => {}
            // It may be another that does not know the options. What it misses of events it asks for.
            Made::Again => self.renew_options(),
            Made::Anew => {
                self.renew_options();
                self.replay.rewind();
            }
        }
    }

    fn renew_options(&mut self) {
        self.kept_before.clear();
        self.drop_reports.forget(|stream| self.replay.kept(stream));
        self.drop_reports.renew();
        // Nothing is taken any more behind the end, so that it is told when all else is known again.
        self.end_is_due |= self.options.withdraw_end();
        self.options.renew();
    }

    /// Learns how long the way there and back takes.
    fn time(&mut self, echo: SessionNs) {
        if echo > self.last_echo {
            self.last_echo = echo;
            let took = Duration::from_nanos(self.now().0.saturating_sub(echo.0)).min(MOST_GAP);
            self.round_trip = if self.round_trip.is_zero() { took } else { (3 * self.round_trip + took) / 4 };
        }
    }

    /// Does what is due.
    pub(super) fn poll(&mut self, now: Instant) {
        let (greeting, replay) = (&self.greeting, &mut self.replay);
        let (datagram_bytes, zero_ns) = (self.settings.packet_bytes(), self.clock_zero_ns);
        self.contact.poll(now, |again| {
            let mut packets = vec![greeting.clone()];
            // The answer tells where these stand, so that nothing is sent again in vain.
            if again {
                packets.extend(progress(session_now(zero_ns), &replay.positions(), datagram_bytes));
            }
            packets
        });
        if !self.is_connected() {
            return;
        }
        self.retransmit(now);
        let repeat_every = match self.settings.transport {
            Transport::Udp => (2 * self.round_trip).clamp(REPEAT_EVERY, REPEAT_AT_LEAST),
            _ => REPEAT_IN_CONNECTION,
        };
        if now.saturating_duration_since(self.repeated) >= REPEAT_EVERY {
            self.repeated = now;
            for options in [&mut self.drop_reports, &mut self.options] {
                let send = sender(&mut self.contact, &mut self.bytes, now);
                options.send_again(now, repeat_every, datagram_bytes, REPEAT_BYTES, send);
            }
        }
        self.asks.send(sender(&mut self.contact, &mut self.bytes, now));
        self.pump(now);
        if now.saturating_duration_since(self.progress_sent) >= PROGRESS_EVERY {
            self.send_progress(now);
        }
        if now.saturating_duration_since(self.forgotten) >= FORGET_EVERY {
            self.forgotten = now;
            self.drop_reports.forget(|stream| self.replay.kept(stream));
        }
    }

    /// Sends what can be sent: drops, options, and events as far as the window allows.
    pub(super) fn pump(&mut self, now: Instant) {
        if !self.is_connected() {
            return;
        }
        let datagram_bytes = self.settings.packet_bytes();
        for (packet, until) in self.drops.take(datagram_bytes) {
            self.drop_reports.add_until(&packet, until);
        }
        let limit = if self.settings.transport == Transport::Udp { FLYING_BYTES } else { usize::MAX };
        for options in [&mut self.drop_reports, &mut self.options] {
            if options.has_fresh() {
                options.send_fresh(now, datagram_bytes, limit, sender(&mut self.contact, &mut self.bytes, now));
            }
        }
        if self.waits_for_names(now) {
            return self.contact.flush(now);
        }
        let now_ms = self.milliseconds(now);
        while let Some(parcel) = self.replay.next_parcel(self.window_bytes) {
            if self.contact.send(parcel, now) != Some(Sent::Yes) {
                break;
            }
            self.bytes += parcel.len() as u64;
            self.replay.parcel_sent(now_ms);
        }
        self.contact.flush(now);
    }

    /// Whether something waits for the socket to take it.
    pub(super) fn is_blocked(&mut self, now: Instant) -> bool {
        !self.waits_for_names(now) && self.replay.next_parcel(self.window_bytes).is_some()
    }

    /// Whether events are held back, so that nobody is shown functions without names. Not for long, and not where that
    /// could cost events.
    fn waits_for_names(&mut self, now: Instant) -> bool {
        if !self.options.lacks_tables(self.settings.transport == Transport::Udp) {
            self.nameless = None;
            return false;
        }
        let since = *self.nameless.get_or_insert(now);
        let has_room = self.replay.kept_bytes() <= self.settings.replay_bytes / 2;
        has_room && now.saturating_duration_since(since) < NAMES_FIRST
    }

    fn send_progress(&mut self, now: Instant) {
        let positions = self.replay.positions();
        let packets = progress(session_now(self.clock_zero_ns), &positions, self.settings.packet_bytes());
        let mut send = sender(&mut self.contact, &mut self.bytes, now);
        let told = packets.iter().all(|packet| send(packet));
        drop(send);
        // What is not taken is tried again with the next turn.
        if told {
            self.progress_sent = now;
            self.contact.expects_answer();
        }
    }

    /// Sends again what the collector asked for.
    fn retransmit(&mut self, now: Instant) {
        if self.wanted.is_empty() {
            return;
        }
        for range in &self.wanted {
            let told = self.kept_before.entry(range.stream).or_default();
            let first = range.first.max(*told);
            let end = Position(range.first.0.saturating_add(range.count)).min(self.replay.kept(range.stream));
            if first < end {
                self.drops.tell(range.stream, first, end.0 - first.0, KEPT_BEFORE);
                *told = end;
            }
        }
        let gap = self.round_trip.clamp(LEAST_GAP, MOST_GAP).as_millis() as u64;
        let (now_ms, datagram_bytes) = (self.milliseconds(now), self.settings.packet_bytes());
        let mut send = sender(&mut self.contact, &mut self.bytes, now);
        let datagram = &mut self.scratch;
        datagram.clear();
        for range in self.wanted.drain(..) {
            self.again += self.replay.again(&range, now_ms, gap, |packets| {
                if datagram.len() + packets.len() > datagram_bytes && !datagram.is_empty() {
                    // What is not taken is asked for once more.
                    send(datagram);
                    datagram.clear();
                }
                datagram.extend_from_slice(packets);
            });
        }
        if !datagram.is_empty() {
            send(datagram);
        }
    }

    /// Now, in nanoseconds since the session's zero.
    fn now(&self) -> SessionNs {
        session_now(self.clock_zero_ns)
    }

    /// Never zero.
    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_millis() as u64 + 1
    }
}

/// Sends packets that need not be waited for, and counts them. Whether they were taken.
fn sender(contact: &mut Contact, bytes: &mut u64, now: Instant) -> impl FnMut(&[u8]) -> bool {
    move |packets| {
        let taken = contact.send(packets, now) == Some(Sent::Yes);
        *bytes += if taken { packets.len() as u64 } else { 0 };
        taken
    }
}

/// Now, in nanoseconds since a time of `CLOCK_BOOTTIME`.
fn session_now(zero_ns: u64) -> SessionNs {
    let time = clock_gettime(ClockId::Boottime);
    let ns = (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64);
    SessionNs(ns.saturating_sub(zero_ns))
}

/// The packets that tell how far streams are. One, where there are none: it is answered all the same.
fn progress(now: SessionNs, positions: &[StreamPosition], datagram_bytes: usize) -> Vec<Vec<u8>> {
    let encoded = |part: &[StreamPosition]| {
        let mut packet = Vec::new();
        // Cut to size, so that it can be encoded.
        let _ = ProfileOption::from(Progress { now, streams: part.into() }).encode(&mut packet);
        packet
    };
    match positions {
        [] => vec![encoded(&[])],
        _ => positions.chunks(positions_per_packet(datagram_bytes)).map(encoded).collect(),
    }
}
