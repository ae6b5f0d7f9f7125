//! What came out of a collector, entered as a sink would, and held to the contract.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use codec::{
    heph::{MAX_PACKET_BYTES, Packets},
    profile::Message,
};
use collector_core::{
    CatalogLimits, Cause, Collector, Config, Output, Peer, Session, SessionName, SessionNames, Summary, Transmit,
};

use crate::agent::Agent;

/// An agent, and a collector that has not heard of it.
pub(crate) fn link(config: Config) -> (Agent, Ledger) {
    (Agent::new(1, 5000), Ledger::new(config))
}

/// A collector, and all that it has told.
pub(crate) struct Ledger {
    pub(crate) collector: Collector,
    pub(crate) now: Duration,
    /// By name, in the order in which they started.
    pub(crate) sessions: BTreeMap<String, Entry>,
    pub(crate) transmits: Vec<Transmit>,
    /// Those that have ended, which nobody has kept yet.
    pub(crate) ended: Vec<Arc<Session>>,
}

/// What was told of a session.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) streams: BTreeMap<u32, Story>,
    pub(crate) options: Vec<String>,
    pub(crate) ended: Option<Summary>,
}

/// What was told of a stream, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) next: Option<u64>,
    /// The marks of the events, with their positions.
    pub(crate) events: Vec<(u64, u64)>,
    /// The gaps: first, count, cause.
    pub(crate) gaps: Vec<(u64, u64, String)>,
}

/// Names sessions by numbers.
#[derive(Debug)]
struct Numbers(u64);

impl SessionNames for Numbers {
    fn name(&mut self, _: &Peer) -> SessionName {
        self.0 += 1;
        SessionName { name: format!("{:08}", self.0), ..SessionName::default() }
    }
}

impl Story {
    fn advance(&mut self, first: u64, count: u64) {
        let next = self.next.unwrap_or(first);
        assert_eq!(first, next, "a stream is told without holes and overlaps");
        self.next = Some(first + count);
    }

    pub(crate) fn positions(&self) -> Vec<u64> {
        self.events.iter().map(|(position, _)| *position).collect()
    }

    pub(crate) fn missing(&self) -> u64 {
        self.gaps.iter().map(|(_, count, _)| count).sum()
    }
}

impl Ledger {
    pub(crate) fn new(config: Config) -> Self {
        let collector = Collector::new(config, CatalogLimits::default(), Numbers(0));
        Self {
            collector,
            now: Duration::from_secs(1),
            sessions: BTreeMap::new(),
            transmits: Vec::new(),
            ended: Vec::new(),
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.collector.tick(self.now);
        self.take();
    }

    /// A datagram of this agent's arrives.
    pub(crate) fn send(&mut self, agent: &Agent, packets: &[u8]) {
        self.collector.datagram(self.now, agent.peer, packets);
        self.take();
    }

    /// Takes what the collector has to tell, checks it, and enters it.
    pub(crate) fn take(&mut self) {
        self.collector.flush(self.now);
        while let Some(output) = self.collector.poll_output() {
            self.enter(output);
        }
        while let Some(transmit) = self.collector.poll_transmit() {
            self.transmits.push(transmit);
        }
    }

    fn enter(&mut self, output: Output) {
        match output {
            Output::Started(session) => {
                assert!(self.sessions.insert(session.name.clone(), Entry::default()).is_none(), "started once");
            }
            Output::Resumed(session) => {
                let entry = self.sessions.get_mut(&session.name).expect("it was there before");
                assert!(entry.ended.take().is_some(), "it had ended");
                for story in entry.streams.values_mut() {
                    let is_provisional = |gap: &(u64, u64, String)| Cause::from(gap.2.as_str()).is_provisional();
                    if let Some((first, ..)) = story.gaps.pop_if(|gap| is_provisional(gap)) {
                        story.next = Some(first);
                    }
                }
            }
            Output::Ending(session, packets) => {
                assert!(!packets.is_empty() && self.open(&session).ended.is_none(), "it is not over yet");
            }
            Output::Options(session, packets) => {
                let entry = self.open(&session);
                for packet in Packets::new(&packets, MAX_PACKET_BYTES) {
                    match packet.expect("valid packets come out") {
                        codec::heph::Packet::Metadata(metadata) => entry.options.push(metadata.name.into()),
                        codec::heph::Packet::Event(_) => panic!("an event among options"),
                    }
                }
            }
            Output::Events(batch) => {
                let entry = self.open(&batch.session);
                let bytes: usize = batch.runs.iter().map(|run| run.bytes as usize).sum();
                assert_eq!(bytes, batch.bytes.len(), "runs cover the batch");
                for events in batch.iter() {
                    let run = events.run;
                    let story = entry.streams.entry(run.stream.0).or_default();
                    story.advance(run.first.0, run.events.into());
                    let before = story.events.len();
                    for (position, message) in (run.first.0..).zip(events) {
                        let Message::Function(event) = message else { panic!("a function event") };
                        assert_eq!(event.stamp.stream, run.stream);
                        story.events.push((position, event.function.expect("a mark").0));
                    }
                    assert_eq!(story.events.len() - before, run.events as usize, "as many as the run says");
                }
            }
            Output::Gap(session, gap) => {
                let story = self.open(&session).streams.entry(gap.stream.0).or_default();
                story.advance(gap.first.0, gap.count);
                assert!(gap.count > 0, "a gap is not empty");
                story.gaps.push((gap.first.0, gap.count, gap.cause.to_string()));
            }
            Output::Ended(session, summary) => {
                self.ended.push(Arc::clone(&session));
                let entry = self.open(&session);
                let written: usize = entry.streams.values().map(|story| story.events.len()).sum();
                let missing: u64 = entry.streams.values().map(Story::missing).sum();
                assert_eq!(summary.written, written as u64);
                let refused = summary.missing.get(&Cause::streams()).unwrap_or(&0);
                assert_eq!(summary.missing.values().sum::<u64>(), missing + refused);
                entry.ended = Some(summary);
            }
        }
    }

    fn open(&mut self, session: &Session) -> &mut Entry {
        let entry = self.sessions.get_mut(&session.name).expect("a session is started first");
        assert!(entry.ended.is_none(), "nothing follows the end");
        entry
    }

    /// The only session there is.
    pub(crate) fn only(&self) -> &Entry {
        assert_eq!(self.sessions.len(), 1, "one session");
        self.sessions.values().next().expect("one session")
    }

    /// What all sessions together come to agrees with the collector's counts.
    pub(crate) fn balance(&self) {
        let stories = || self.sessions.values().flat_map(|entry| entry.streams.values());
        let counts = self.collector.counts();
        assert_eq!(counts.written, stories().map(|story| story.events.len() as u64).sum::<u64>());
        assert_eq!(counts.missing(), stories().map(Story::missing).sum::<u64>());
        assert_eq!(counts.produced(), counts.written + counts.missing());
    }
}
