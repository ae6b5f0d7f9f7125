//! The contract, told to every sink.

use std::{collections::BTreeMap, sync::Arc};

use codec::{
    Position, StreamId,
    atf::EndEntry,
    profile::{End, EndReason, Epoch},
};
use quickcheck::{Arbitrary, Gen, QuickCheck};
use sinks::{Ended, Gap, Session};

use crate::{
    scene::{announce, batch, batch_in, introduction, packet, session, stamp},
    subject::{Story, Subject, all},
};

/// Tells a sink what happens, and remembers it.
pub(crate) struct Teller<'s> {
    pub(crate) subject: &'s mut Subject,
    pub(crate) story: Story,
    positions: BTreeMap<(String, u32), u64>,
    time: u64,
}

impl<'s> Teller<'s> {
    pub(crate) fn new(subject: &'s mut Subject) -> Self {
        Self { subject, story: Story::default(), positions: BTreeMap::new(), time: 0 }
    }

    pub(crate) fn start(&mut self, session: &Arc<Session>) {
        self.subject.sink.start(session).expect("it starts");
    }

    pub(crate) fn options(&mut self, session: &Arc<Session>, packets: &[u8]) {
        self.subject.sink.options(session, packets).expect("it takes options");
    }

    /// Events of several streams in one batch. The counters on the wire are `offset` away from the positions.
    pub(crate) fn events(&mut self, session: &Arc<Session>, runs: &[(u32, &[u8])], offset: u32) {
        let mut built = Vec::new();
        for (stream, varieties) in runs {
            let position = self.positions.entry((session.name.clone(), *stream)).or_default();
            let first = *position;
            let mut packets = Vec::new();
            for variety in *varieties {
                self.time += 1;
                let counter = Position(*position).counter().0.wrapping_add(offset);
                packets.push(packet(stamp(*stream, counter, self.time), *variety));
                self.story.event(&session.name, *stream, self.time);
                *position += 1;
            }
            built.push((*stream, first, packets));
        }
        self.subject.sink.events(&batch_in(self.subject.form, session, &built)).expect("it takes events");
    }

    pub(crate) fn gap(&mut self, session: &Arc<Session>, stream: u32, count: u64, cause: &str) {
        let position = self.positions.entry((session.name.clone(), stream)).or_default();
        let gap = Gap { stream: StreamId(stream), first: Position(*position), count, cause: cause.into() };
        self.story.gap(&session.name, stream, *position, count, cause);
        *position += count;
        self.subject.sink.gap(session, &gap).expect("it takes gaps");
    }

    pub(crate) fn end(&mut self, session: &Arc<Session>) {
        let end = EndEntry { how: "exited".into(), code: Some(0), ..EndEntry::default() };
        self.subject.sink.end(session, &Ended { end, ..Ended::default() }).expect("it ends");
    }

    /// Closes the sink, and compares what it wrote with what it was told.
    pub(crate) fn check(self, sessions: &[&str]) {
        self.subject.sink.close().expect("it closes");
        let expected = self.story.telling(self.subject.tells);
        let found = (self.subject.read)(sessions).telling(self.subject.tells);
        assert_eq!(found, expected, "{}, {:?}", self.subject.name, self.subject.form);
    }
}

const A: &str = "20260101-000000-1";
const B: &str = "20260101-000000-2";

#[test]
fn sessions_take_turns_and_lose_nothing() {
    for mut subject in all() {
        let (a, b) = (session(A), session(B));
        let mut teller = Teller::new(&mut subject);
        for session in [&a, &b] {
            teller.start(session);
            let packets = introduction(session, &[0, 1]);
            teller.options(session, &packets);
        }
        for round in 0..20 {
            teller.events(&a, &[(0, &[1, 2, 3]), (1, &[round, 4, 5]), (0, &[6])], 0);
            teller.events(&b, &[(1, &[7, 8])], 0);
            teller.gap(&b, 1, 3, "network");
            teller.gap(&b, 1, 2, "network");
            teller.gap(&b, 1, 1, "agent:ring-full");
        }
        teller.end(&a);
        teller.events(&b, &[(0, &[0])], 0);
        teller.end(&b);
        teller.check(&[A, B]);
    }
}

#[test]
fn options_may_come_after_what_they_describe() {
    for mut subject in all() {
        let a = session(A);
        let mut teller = Teller::new(&mut subject);
        teller.start(&a);
        teller.options(&a, &announce(&a, &[Epoch { unix_ns: 3 }.into()]));
        teller.events(&a, &[(5, &[0, 5, 6])], 0);
        let packets = introduction(&a, &[5, 6]);
        teller.options(&a, &packets);
        let end = End { reason: EndReason::Exited(0), at: codec::SessionNs(9), stream_count: 0, streams: (&[]).into() };
        teller.options(&a, &announce(&a, &[end.into()]));
        teller.events(&a, &[(5, &[0, 1])], 0);
        teller.end(&a);
        teller.check(&[A]);
    }
}

#[test]
fn positions_count_where_counters_were_restarted_or_wrap() {
    for mut subject in all() {
        let a = session(A);
        let mut teller = Teller::new(&mut subject);
        teller.start(&a);
        let packets = introduction(&a, &[]);
        teller.options(&a, &packets);
        teller.events(&a, &[(0, &[0; 5])], u32::MAX - 2);
        teller.events(&a, &[(0, &[0; 5])], 7);
        teller.gap(&a, 0, u64::from(u32::MAX) * 2, "network");
        teller.events(&a, &[(0, &[0; 5])], 1 << 31);
        teller.end(&a);
        teller.check(&[A]);
    }
}

#[test]
fn a_session_may_have_no_events_or_no_end() {
    for mut subject in all() {
        let (a, b) = (session(A), session(B));
        let mut teller = Teller::new(&mut subject);
        teller.start(&a);
        let packets = introduction(&a, &[3]);
        teller.options(&a, &packets);
        teller.end(&a);
        teller.start(&b);
        let packets = introduction(&b, &[3]);
        teller.options(&b, &packets);
        teller.events(&b, &[(3, &[1])], 0);
        teller.check(&[A, B]);
    }
}

#[test]
fn packets_that_no_agent_would_write_do_no_harm() {
    for mut subject in all() {
        let a = session(A);
        let sink = &mut subject.sink;
        sink.start(&a).expect("it starts");
        sink.options(&a, b"no packets at all").expect("it is ignored");
        let mut lying = batch(&a, &[(0, 0, vec![packet(stamp(9, 9, u64::MAX), 3)]), (1, 0, vec![])]);
        let runs = &mut Arc::get_mut(&mut lying).expect("only one").runs;
        runs[0].events = 3;
        runs[1].bytes = 1000;
        // Each may refuse it, none may panic, and all go on.
        let _ = sink.events(&lying);
        let beyond =
            Gap { stream: StreamId(0), first: Position(u64::MAX), count: u64::MAX, cause: "x".repeat(1 << 20).into() };
        let _ = sink.gap(&a, &beyond);
        let _ = sink.gap(&a, &beyond);
        let unknown = session(B);
        let _ = sink.events(&batch(&unknown, &[(0, u64::MAX, vec![packet(stamp(0, 0, 0), 0); 3])]));
        sink.flush().expect("it flushes");
        sink.end(&a, &Ended::default()).expect("it ends");
        sink.close().expect("it closes");
    }
}

/// What may happen to one of two sessions.
#[derive(Debug, Clone)]
enum Action {
    Options,
    Events(u32, Vec<u8>),
    Gap(u32, u8, bool),
    Flush,
}

impl Arbitrary for Action {
    fn arbitrary(g: &mut Gen) -> Self {
        let stream = u32::from(u8::arbitrary(g) % 3);
        match u8::arbitrary(g) % 8 {
            0 => Self::Options,
            1 => Self::Flush,
            2 | 3 => Self::Gap(stream, u8::arbitrary(g) % 4 + 1, bool::arbitrary(g)),
            _ => Self::Events(stream, Vec::arbitrary(g)),
        }
    }
}

#[test]
fn whatever_happens_every_position_is_accounted_for() {
    fn check(actions: Vec<(bool, Action)>) {
        for mut subject in all() {
            let sessions = [session(A), session(B)];
            let mut teller = Teller::new(&mut subject);
            for session in &sessions {
                teller.start(session);
                let packets = introduction(session, &[0]);
                teller.options(session, &packets);
            }
            for (second, action) in &actions {
                let session = &sessions[usize::from(*second)];
                match action {
                    Action::Options => {
                        let packets = introduction(session, &[1, 2]);
                        teller.options(session, &packets);
                    }
                    Action::Events(stream, varieties) => teller.events(session, &[(*stream, varieties)], 0),
                    Action::Gap(stream, count, agent) => {
                        let cause = if *agent { "agent:ring-full" } else { "network" };
                        teller.gap(session, *stream, (*count).into(), cause);
                    }
                    Action::Flush => teller.subject.sink.flush().expect("it flushes"),
                }
            }
            teller.end(&sessions[1]);
            teller.end(&sessions[0]);
            teller.check(&[A, B]);
        }
    }
    QuickCheck::new().tests(10).quickcheck(check as fn(Vec<(bool, Action)>));
}
