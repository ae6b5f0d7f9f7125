//! What only the sinks of packets do.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use codec::profile::ProfileOption;
use sinks::{HephCompatSink, HephSink, Sink, SinkError};

use crate::{
    scene::{batch, introduction, packet, session, stamp},
    subject::{Shared, Story, read_packets},
};

#[test]
fn one_session_is_written_just_as_it_came() {
    let shared = Shared::default();
    let mut sink = HephSink::new(shared.clone());
    let session = session("a");
    sink.start(&session).expect("it starts");
    let options = introduction(&session, &[1]);
    sink.options(&session, &options).expect("it takes options");
    let events = batch(&session, &[(1, 0, (0..9).map(|variety| packet(stamp(1, 0, 1), variety)).collect())]);
    sink.events(&events).expect("it takes events");
    sink.flush().expect("it flushes");
    assert_eq!(shared.bytes(), [options, events.bytes.to_vec()].concat());
}

#[test]
fn sessions_without_a_name_get_one_once_there_are_two() {
    let shared = Shared::default();
    let mut sink = HephSink::new(shared.clone());
    let (a, b) = (session("a"), session("b"));
    let event = |session, end| batch(session, &[(0, 0, vec![packet(stamp(0, 0, end), 0)])]);
    sink.events(&event(&a, 1)).expect("it takes events");
    sink.flush().expect("it flushes");
    assert_eq!(shared.bytes(), event(&a, 1).bytes, "nothing is made up for one");
    sink.events(&event(&b, 2)).expect("it takes events");
    sink.events(&event(&a, 3)).expect("it takes events");
    sink.close().expect("it closes");
    let mut names = Vec::new();
    let bytes = shared.bytes();
    let mut packets = codec::heph::Packets::new(&bytes, codec::heph::MAX_PACKET_BYTES);
    while let Some(Ok(message)) = packets.next_with(codec::profile::Message::decode) {
        if let codec::profile::Message::Option(known) = message
            && let ProfileOption::Session(session) = known.option
        {
            names.push((session.executable, session.id));
        }
    }
    assert_eq!(names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["b", "a"]);
    assert_ne!(names[0].1, names[1].1);
}

#[test]
fn a_pipe_in_heph_s_own_format_holds_one_session() {
    let shared = Shared::default();
    let mut sink = HephCompatSink::new(shared.clone());
    let (a, b) = (session("a"), session("b"));
    let events = |session| batch(session, &[(0, 0, vec![packet(stamp(0, 0, 1), 3), packet(stamp(0, 0, 2), 6)])]);
    sink.start(&a).expect("there is room for one");
    sink.events(&events(&a)).expect("it takes events");
    assert!(matches!(sink.start(&b), Err(SinkError::Failed { .. })));
    assert!(matches!(sink.events(&events(&b)), Err(SinkError::Failed { .. })));
    assert_eq!(sink.lost_events(), 2);
    sink.close().expect("it closes");
    assert_eq!(read_packets(&shared.bytes(), &["a"]).0.values().map(Vec::len).sum::<usize>(), 2);
    // Registers and stack, and three arrays of the other event.
    assert_eq!(sink.left_out().load(Ordering::Relaxed), 5);
}

/// A file that takes nothing while it is full, and otherwise a few bytes at a time.
struct Full(Shared, Arc<AtomicBool>);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.0.write(&bytes[..bytes.len().min(1000)]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_costs_events_that_are_told_and_leaves_no_half_packets() {
    let (shared, full) = (Shared::default(), Arc::new(AtomicBool::new(false)));
    let mut sink = HephSink::new(Full(shared.clone(), Arc::clone(&full)));
    let session = session("a");
    sink.start(&session).expect("it starts");
    let options = introduction(&session, &[]);
    sink.options(&session, &options).expect("it takes options");
    let (mut expected, mut refused) = (Story::default(), 0);
    for round in 0..8000 {
        full.store((100..7990).contains(&round), Ordering::Relaxed);
        let events = batch(&session, &[(0, round * 10, (0..10).map(|n| packet(stamp(0, 0, n), 0)).collect())]);
        match sink.events(&events) {
            Ok(()) => (0..10).for_each(|n| expected.event("a", 0, n)),
            Err(SinkError::Failed { .. }) => {
                expected.gap("a", 0, round * 10, 10, "collector:output-error");
                refused += 10;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!((10_000..70_000).contains(&refused), "{refused} refused");
    assert_eq!(sink.lost_events(), refused);
    sink.close().expect("it closes");
    assert!(read_packets(&shared.bytes(), &["a"]) == expected.telling(|_| true));
}
