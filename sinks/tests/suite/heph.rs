//! What only the sinks of packets do.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use codec::{
    heph::{Encode, MAX_PACKET_BYTES, Packets},
    profile::{Message, ProfileOption},
};
use quickcheck::QuickCheck;
use sinks::{HephCompatSink, HephSink, Sink, SinkError};

use crate::{
    scene::{Form, batch, batch_in, fresh_dir, introduction, packet, session, stamp, unnamed},
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

/// The same events, each in a packet of its own.
fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut packets = Packets::new(bytes, MAX_PACKET_BYTES);
    let mut single = Vec::new();
    while let Some(message) = packets.next_with(Message::decode) {
        match message.expect("whole packets") {
            Message::Run(run) => {
                run.function_events().for_each(|event| _ = event.encode(&mut single).expect("it fits"));
            }
            message => _ = message.encode(&mut single).expect("it fits"),
        }
    }
    single
}

/// Runs stay runs, and the events that are not the batch's are left out, in whatever packets the others are.
#[test]
fn the_events_of_a_batch_are_written_whatever_else_is_in_their_packets() {
    fn check(varieties: Vec<u8>) -> bool {
        let session = session("a");
        let single: Vec<_> =
            (0..).zip(&varieties).map(|(at, variety)| packet(stamp(1, at, u64::from(at) * 10), *variety)).collect();
        Form::ALL.into_iter().all(|form| {
            let events = batch_in(form, &session, &[(1, 0, single.clone())]);
            let shared = Shared::default();
            let mut sink = HephSink::new(shared.clone());
            sink.events(&events).expect("it takes events");
            sink.close().expect("it closes");
            let written = shared.bytes();
            let is_kept = form == Form::Overlapping || written == events.bytes;
            is_kept && unpacked(&written) == single.concat()
        })
    }
    QuickCheck::new().tests(50).quickcheck(check as fn(Vec<u8>) -> bool);
}

#[test]
fn runs_are_smaller_than_the_packets_they_stand_for() {
    let session = session("a");
    let single: Vec<_> = (0..1000).map(|at| packet(stamp(1, at, u64::from(at)), 0)).collect();
    let events = batch_in(Form::Runs, &session, &[(1, 0, single.clone())]);
    assert!(events.bytes.len() < single.concat().len() / 6, "{}", events.bytes.len());
}

#[test]
fn sessions_without_a_name_get_one_and_are_called_plain() {
    let shared = Shared::default();
    let mut sink = HephSink::new(shared.clone());
    let (a, b) = (unnamed("a"), unnamed("b"));
    let event = |session, end| batch(session, &[(0, 0, vec![packet(stamp(0, 0, end), 0)])]);
    for (session, end) in [(&a, 1), (&a, 2), (&b, 3), (&a, 4)] {
        sink.events(&event(session, end)).expect("it takes events");
    }
    // A name that comes late would make two sessions of it.
    sink.options(&a, &introduction(&a, &[1])).expect("it takes options");
    sink.close().expect("it closes");
    let mut names = Vec::new();
    let bytes = shared.bytes();
    let mut packets = Packets::new(&bytes, MAX_PACKET_BYTES);
    while let Some(Ok(message)) = packets.next_with(Message::decode) {
        if let Message::Option(known) = message
            && let ProfileOption::Session(session) = known.option
        {
            assert_eq!(session.profile, 0);
            names.push((session.executable, session.id));
        }
    }
    assert_eq!(names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "b", "a"]);
    assert!(names[0].1 == names[2].1 && names[0].1 != names[1].1);
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
    sink.close().expect("it closes");
    assert!(read_packets(&shared.bytes(), &["a"]) == expected.telling(|_| true));
}

#[test]
fn a_compat_file_is_made_for_something_only_and_where_it_can_be() {
    let dir = fresh_dir("compat-lazy");
    assert!(HephCompatSink::open(dir.join("trace.heph")).is_err(), "there is no folder");
    assert!(HephCompatSink::open("/proc/trace.heph").is_err(), "nothing can be made there");
    std::fs::create_dir_all(&dir).expect("made");
    assert!(HephCompatSink::open(&dir).is_err(), "it is a folder");
    let mut sink = HephCompatSink::open(dir.join("trace.heph")).expect("it opens");
    let names = || std::fs::read_dir(&dir).expect("it is there").map(|entry| entry.expect("one").file_name());
    assert_eq!(names().count(), 0, "trying it leaves nothing");
    let (a, b) = (session("a"), session("b"));
    for session in [&a, &b] {
        sink.start(session).expect("it starts");
        sink.flush().expect("it flushes");
    }
    assert_eq!(names().count(), 0, "nothing is to be said");
    sink.events(&batch(&b, &[(0, 0, vec![packet(stamp(0, 0, 1), 0)])])).expect("it takes events");
    sink.end(&a, &sinks::Ended::default()).expect("it ends");
    sink.close().expect("it closes");
    assert_eq!(names().collect::<Vec<_>>(), ["trace.heph"]);
    assert!(std::fs::metadata(dir.join("trace.heph")).expect("it is there").len() > 0);
    std::fs::remove_dir_all(&dir).expect("it is there");
}
