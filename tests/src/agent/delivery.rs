//! How an agent ships: what it says first, how it keeps to the window, what it repeats, and what it does about what
//! the collector answers.

use std::{
    io::{self, ErrorKind},
    time::{Duration, Instant},
};

use codec::{
    ClockKind, Position, SessionNs, StreamId,
    heph::Encode,
    profile::{
        Ack, Clock, Epoch, Known, Message, Nack, PROFILE_VERSION, ProfileOption, Progress, Session, StreamPosition,
        Thread,
    },
};

use super::{Agent, CLOCK_ZERO_NS, EPOCH_UNIX_NS, GLANCE, REPEAT_EVERY, Settings, Settled, event, stream::Stream};

/// No event is larger.
const MOST_EVENT_BYTES: u64 = 256;

impl Agent {
    /// The options that every session starts with.
    pub(super) fn announce(&mut self) -> io::Result<()> {
        let Settings { session: id, arch, os, pid, .. } = self.settings;
        let (host, executable) = (self.settings.host.clone(), self.settings.executable.clone());
        let arguments = [executable.as_str(), "--synthetic"];
        let session = Session {
            id,
            profile: PROFILE_VERSION,
            arch,
            os,
            pid,
            agent_version: "synthetic",
            host: &host,
            executable: &executable,
            argument_count: 2,
            arguments: (&arguments).into(),
        };
        self.option(session)?;
        self.option(Epoch { unix_ns: EPOCH_UNIX_NS })?;
        self.option(Clock { clock: ClockKind::Boottime, zero_ns: CLOCK_ZERO_NS })?;
        for stream in 0..self.settings.streams {
            let name = format!("worker {stream}");
            let (stream, os_id) = (StreamId(stream), 1_000 + u64::from(stream));
            self.option(Thread { stream, os_id, start: SessionNs(0), end: None, creator: None, name: &name })?;
        }
        let names: Vec<_> = (0..self.settings.functions).map(|index| format!("function_{index}")).collect();
        self.module(event::MODULE, "/usr/bin/synthetic", &names)
    }

    /// Says who it is until the collector answers on this link: nothing else is sent before.
    pub(super) fn hello(&mut self) -> io::Result<()> {
        let mut greeting = self.options.first().to_vec();
        for progress in self.progress()? {
            greeting.extend_from_slice(&progress);
        }
        let acks = self.acks;
        let deadline = Instant::now() + self.settings.patience;
        self.outgoing.clear();
        while self.acks == acks {
            if Instant::now() > deadline {
                return Err(io::Error::new(ErrorKind::TimedOut, "the collector does not answer"));
            }
            self.transmit(&greeting)?;
            let again = Instant::now() + REPEAT_EVERY;
            while self.acks == acks && Instant::now() < again {
                self.receive(GLANCE)?;
            }
        }
        self.greeted = true;
        self.repeat_options()
    }

    pub(super) fn send_event(&mut self, stream: u32, packet: Vec<u8>) -> io::Result<()> {
        self.append(&packet)?;
        self.streams[stream as usize].keep(packet, self.settings.replay);
        Ok(())
    }

    pub(super) fn send_option(&mut self, packet: Vec<u8>) -> io::Result<()> {
        if self.greeted {
            self.append(&packet)?;
        }
        self.options.add(packet);
        Ok(())
    }

    /// Waits until the window has room for another event. That is done before the event is produced: what progress
    /// tells of should be on its way.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + self.settings.patience;
        loop {
            let window = self.window_bytes.min(self.settings.window_limit_bytes);
            let in_flight = self.in_flight_bytes();
            if !self.settings.pace || in_flight == 0 || in_flight + MOST_EVENT_BYTES <= window {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(ErrorKind::TimedOut, self.waiting_for()));
            }
            self.flush()?;
            self.listen(GLANCE)?;
        }
    }

    /// Adds a packet to the datagram, which is sent first where it would get too large.
    fn append(&mut self, packet: &[u8]) -> io::Result<()> {
        if self.outgoing.len() + packet.len() > self.settings.datagram_bytes {
            self.flush()?;
            self.listen(Duration::ZERO)?;
        }
        self.outgoing.extend_from_slice(packet);
        Ok(())
    }

    pub(super) fn transmit(&mut self, packets: &[u8]) -> io::Result<()> {
        self.sent_bytes += packets.len() as u64;
        self.link.send(packets)
    }

    /// What is done every so often.
    pub(super) fn duties(&mut self) -> io::Result<()> {
        if self.repeated.elapsed() >= REPEAT_EVERY {
            self.repeat_options()?;
            self.tell_progress()?;
            self.flush()?;
        }
        Ok(())
    }

    fn repeat_options(&mut self) -> io::Result<()> {
        self.flush()?;
        self.repeated = Instant::now();
        for datagram in self.options.unacknowledged(self.settings.datagram_bytes) {
            self.transmit(&datagram)?;
        }
        Ok(())
    }

    pub(super) fn tell_progress(&mut self) -> io::Result<()> {
        self.flush()?;
        self.progress()?.iter().try_for_each(|packet| self.transmit(packet))
    }

    /// The packets that tell how far the streams are.
    fn progress(&self) -> io::Result<Vec<Vec<u8>>> {
        let now = SessionNs(self.now_ns());
        let positions = self.positions();
        let parts = positions.chunks(self.settings.datagram_bytes.saturating_sub(48).max(12) / 12);
        let encoded = |part: &[StreamPosition]| {
            let mut packet = Vec::new();
            let progress = ProfileOption::from(Progress { now, streams: part.into() });
            progress.encode(&mut packet).map_err(io::Error::other)?;
            Ok(packet)
        };
        parts.map(encoded).collect()
    }

    pub(super) fn resend_everything(&mut self) -> io::Result<()> {
        let kept: Vec<Vec<u8>> = self.streams.iter().flat_map(|stream| stream.kept_from(0, u64::MAX)).collect();
        kept.iter().try_for_each(|packet| self.append(packet))?;
        self.flush()
    }

    pub(super) fn receive(&mut self, wait: Duration) -> io::Result<()> {
        for packet in self.link.receive(wait)? {
            match Message::decode(&packet) {
                Ok(Message::Option(Known { option: ProfileOption::Ack(ack), .. })) => self.hear_ack(&ack),
                Ok(Message::Option(Known { option: ProfileOption::Nack(nack), .. })) => self.hear_nack(&nack)?,
                other => panic!("the collector sent something that no agent understands: {other:?}"),
            }
        }
        Ok(())
    }

    fn hear_ack(&mut self, ack: &Ack<'_>) {
        assert_eq!(ack.session, self.settings.session, "an acknowledgement for another session");
        self.acks += 1;
        self.window_bytes = ack.window_bytes;
        self.options.acknowledge(ack.options);
        let at = Instant::now();
        for StreamPosition { stream: StreamId(stream), next: Position(next) } in ack.streams {
            let Some(state) = self.streams.get_mut(stream as usize) else { continue };
            assert!(next <= state.next(), "stream {stream} is settled up to {next}, but only at {}", state.next());
            if state.settle(next) {
                self.history.push(Settled { at, stream, next });
            }
        }
    }

    fn hear_nack(&mut self, nack: &Nack<'_>) -> io::Result<()> {
        assert_eq!(nack.session, self.settings.session, "a wish for another session");
        for range in nack.ranges {
            self.nacked_events = self.nacked_events.saturating_add(range.count);
            let Some(stream) = self.streams.get(range.stream.0 as usize) else { continue };
            let again = stream.kept_from(range.first.0, range.count);
            for packet in again {
                if self.outgoing.len() + packet.len() > self.settings.datagram_bytes {
                    self.flush()?;
                }
                self.outgoing.extend_from_slice(&packet);
            }
        }
        self.flush()
    }

    pub(super) fn positions(&self) -> Vec<StreamPosition> {
        let position = |stream: &Stream| StreamPosition { stream: StreamId(stream.id), next: Position(stream.next()) };
        self.streams.iter().map(position).collect()
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// What is not acknowledged, for a message.
    pub(super) fn waiting_for(&self) -> String {
        let behind = self.streams.iter().filter(|stream| !stream.is_settled());
        let behind: Vec<_> = behind.map(|stream| (stream.id, stream.settled(), stream.next())).take(5).collect();
        let (options, window) = (self.options.count_unacknowledged(), self.window_bytes);
        let (acks, nacked) = (self.acks, self.nacked_events);
        format!(
            "not acknowledged: {options} options, and of streams (id, settled, produced) {behind:?}; \
             window {window} bytes, {acks} acks, {nacked} events asked for again"
        )
    }
}
