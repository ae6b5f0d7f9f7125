//! Events on their way to the sinks.

use std::{iter::Take, sync::Arc};

use bytes::Bytes;
use codec::{
    Position, StreamId,
    heph::{MAX_PACKET_BYTES, Packets, Stamp},
    profile::{self, Message},
};

use crate::Session;

/// Events of one session, in order within each stream. All sinks share one batch: nobody copies it.
#[derive(Debug)]
pub struct Batch {
    /// The session.
    pub session: Arc<Session>,
    /// The event packets, just as they came, one behind the other.
    pub bytes: Bytes,
    /// Which streams they are of.
    pub runs: Vec<Run>,
}

/// Events of one stream without a gap between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The stream.
    pub stream: StreamId,
    /// The position of the first event. The counter on the wire may be another, where the stream was restarted.
    pub first: Position,
    /// How many events there are.
    pub events: u32,
    /// How many bytes their packets have.
    pub bytes: u32,
    /// How many events of the first packet are not meant: they were here before.
    pub skip: u32,
}

impl Batch {
    /// How many events it holds.
    pub fn events(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.events)).sum()
    }

    /// The runs, each with its events.
    pub fn iter(&self) -> impl Iterator<Item = RunEvents<'_>> {
        let mut rest = self.bytes.as_ref();
        self.runs.iter().map(move |run| {
            let (bytes, behind) = rest.split_at_checked(run.bytes as usize).unwrap_or((rest, &[]));
            rest = behind;
            let packets = Packets::new(bytes, MAX_PACKET_BYTES);
            RunEvents { run: *run, bytes, packets, left: run.events, skip: run.skip, open: None }
        })
    }
}

/// The events of one [`Run`], each by itself, in whatever form they came.
#[derive(Debug, Clone)]
pub struct RunEvents<'a> {
    /// Whose they are.
    pub run: Run,
    /// Their packets.
    pub bytes: &'a [u8],
    packets: Packets<'a>,
    left: u32,
    skip: u32,
    /// A packet with several events, of which not all have been taken.
    open: Option<OpenPacket<'a>>,
}

#[derive(Debug, Clone)]
struct OpenPacket<'a> {
    stamp: Stamp,
    /// The number of the next event in the packet.
    number: u32,
    events: profile::RunEvents<'a>,
}

impl<'a> RunEvents<'a> {
    /// Whether the packets hold these events only.
    pub fn has_whole_packets(&self) -> bool {
        if self.run.skip > 0 {
            return false;
        }
        let mut packets = Packets::new(self.bytes, MAX_PACKET_BYTES);
        let mut held = 0_u32;
        while let Some(Ok(message)) = packets.next_with(Message::decode) {
            held = held.saturating_add(match message {
                Message::Run(run) => run.count,
                _ => 1,
            });
        }
        held <= self.run.events
    }

    /// The next packet with a single event, if one comes before the next packet with several, which is opened then.
    fn next_packet(&mut self) -> Option<Message<'a>> {
        // The collector has decoded it once already, so it is never in error.
        match self.packets.next_with(Message::decode)?.ok()? {
            Message::Run(run) => {
                self.open = Some(OpenPacket { stamp: run.stamp, number: 0, events: run.events() });
                None
            }
            message => Some(message),
        }
    }

    fn next_message(&mut self) -> Option<Message<'a>> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(event) = open.events.next() {
                    let message = Message::Function(event.function_event(&open.stamp, open.number));
                    open.number += 1;
                    return Some(message);
                }
                self.open = None;
            }
            match self.next_packet() {
                None if self.open.is_some() => {}
                message => return message,
            }
        }
    }

    fn skip_known(&mut self) {
        while self.skip > 0 {
            self.skip -= 1;
            self.next_message();
        }
    }

    /// Hands over the events that are left in a packet with several, at most so many, with the packet's stamp and the
    /// number of the first of them in it; `take` says how many it took. Only a packet whose first event was taken by
    /// [`next`](Iterator::next) is handed over.
    #[inline]
    pub fn with_run<T>(
        &mut self,
        most: u64,
        take: impl FnOnce(&Stamp, u32, Take<&mut profile::RunEvents<'a>>) -> (u32, T),
    ) -> Option<T> {
        let open = self.open.as_mut().filter(|_| self.skip == 0)?;
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.left as usize);
        let (taken, value) = take(&open.stamp, open.number, open.events.by_ref().take(most));
        open.number += taken;
        self.left = self.left.saturating_sub(taken);
        Some(value)
    }
}

impl<'a> Iterator for RunEvents<'a> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        if self.skip > 0 {
            self.skip_known();
        }
        self.left = self.left.checked_sub(1)?;
        self.next_message()
    }
}
