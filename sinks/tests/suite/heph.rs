//! What only the sinks of packets do.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use codec::{
    EventKind, FunctionId, ModuleId, SessionNs,
    heph::{Encode, Event, MAX_PACKET_BYTES, Packet, Packets, Value},
    profile::{Epoch, FunctionEvent, Message, ProfileOption},
};
use quickcheck::QuickCheck;
use serde_json::Value as Json;
use sinks::{Ended, HephCompatSink, HephSink, Sink, SinkError};

use crate::{
    scene::{Form, announce, batch, batch_in, fresh_dir, function, introduction, packet, session, stamp, unnamed},
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
    sink.end(&a, &Ended::default()).expect("it ends");
    sink.close().expect("it closes");
    assert_eq!(names().collect::<Vec<_>>(), ["trace.heph"]);
    assert!(std::fs::metadata(dir.join("trace.heph")).expect("it is there").len() > 0);
    std::fs::remove_dir_all(&dir).expect("it is there");
}

/// What Heph's converter makes of a file: names, starts and durations, in microseconds. It fails where that one does,
/// and where that one takes more steps than there may be.
fn converted(file: &[u8], most_steps: usize) -> Vec<(String, u64, u64)> {
    let (mut shown, mut steps, mut epoch) = (Vec::new(), 0, 0);
    let mut taken: BTreeMap<_, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut packets = Packets::new(file, MAX_PACKET_BYTES);
    let mut next = || packets.next_with(|bytes| Packet::decode(bytes).map(|packet| (bytes.len(), packet)));
    while let Some(packet) = next() {
        let (size, packet) = packet.expect("whole packets");
        assert!(size <= 128, "it may not have read more");
        let event = match packet {
            Packet::Metadata(metadata) => {
                assert_eq!(metadata.name, "epoch");
                epoch = u64::from_be_bytes(metadata.value.try_into().expect("a number"));
                continue;
            }
            Packet::Event(event) => event,
        };
        let mut text = format!("{{\"\": \"{}\"", event.description);
        for attribute in event.attributes.iter() {
            text += &match attribute.value {
                Value::U64(value) => format!(", \"{}\": {value}", attribute.name),
                Value::I64(value) => format!(", \"{}\": {value}", attribute.name),
                Value::F64(value) => format!(", \"{}\": {value}", attribute.name),
                Value::Str(value) => format!(", \"{}\": \"{value}\"", attribute.name),
                other => panic!("{other:?}"),
            };
        }
        serde_json::from_str::<Json>(&(text + "}")).expect("what it writes is JSON");
        let mut start = (epoch + event.stamp.start.0) / 1000;
        let mut duration = (event.stamp.end.0 - event.stamp.start.0) / 1000;
        let taken = taken.entry((event.stamp.stream, event.stamp.substream)).or_default();
        while let Some(other) = taken.get(&start).copied() {
            steps += 1;
            assert!(steps <= most_steps, "it does not end");
            (start, duration) = match other > duration {
                true => (start + 1, duration.checked_sub(1).expect("it does not fail")),
                false => (start - 1, duration + 1),
            };
        }
        taken.insert(start, duration);
        shown.push((event.description.to_owned(), start, duration));
    }
    shown
}

/// Writes packets of one stream to a file of that kind, and ends the session.
fn compat_file(packets: Vec<Vec<u8>>) -> Vec<u8> {
    let dir = fresh_dir("compat-frames");
    std::fs::create_dir_all(&dir).expect("made");
    let session = session("a");
    let _ = introduction(&session, &[]);
    announce(&session, &[Epoch { unix_ns: 1_700_000_000_123_456_789 }.into()]);
    let mut sink = HephCompatSink::open(dir.join("trace.heph")).expect("it opens");
    sink.events(&batch(&session, &[(0, 0, packets)])).expect("it takes events");
    sink.end(&session, &Ended::default()).expect("it ends");
    sink.close().expect("it closes");
    let file = std::fs::read(dir.join("trace.heph")).unwrap_or_default();
    std::fs::remove_dir_all(&dir).expect("it is there");
    file
}

fn event_of(kind: EventKind, index: u32, depth: u32, start: u64, end: u64) -> Vec<u8> {
    let stamp = codec::heph::Stamp { start: SessionNs(start), ..stamp(0, 0, end) };
    let function =
        FunctionEvent { function: Some(FunctionId::new(ModuleId(1), index)), ..function(stamp, kind, depth) };
    let mut packet = Vec::new();
    function.encode(&mut packet).expect("it fits");
    packet
}

#[test]
fn heph_s_converter_shows_calls_by_the_names_of_functions() {
    use EventKind::{Call, Return};
    let packets = vec![
        event_of(Call, 0, 0, 10_900, 10_900),
        event_of(Call, 1, 1, 11_000, 11_000),
        event_of(Call, 1, 2, 11_050, 11_050),
        event_of(Return, 1, 2, 11_050, 11_100),
        event_of(Return, 1, 1, 11_000, 14_000),
        event_of(Call, 1, 1, 20_000, 20_000),
        event_of(Return, 1, 1, 20_000, 21_000),
    ];
    let shown = converted(&compat_file(packets), 0);
    let zero = 1_700_000_000_123_456;
    let shown: Vec<_> = shown.iter().map(|(name, start, took)| (name.as_str(), start - zero, *took)).collect();
    // The inner one has a microsecond of its own, and what has not returned lasts until the end.
    assert_eq!(shown, [("work", 12, 0), ("work", 11, 3), ("work", 20, 1), ("main", 10, 11)]);
}

/// Whatever a thread does, however quickly, and whatever of it is missing.
#[test]
fn heph_s_converter_comes_to_an_end() {
    fn check(actions: Vec<(u8, u16)>) {
        let (mut packets, mut stack, mut time, mut calls) = (Vec::new(), Vec::new(), 0, 0);
        for (action, passed) in &actions {
            time += u64::from(passed % 3000);
            let depth = u32::try_from(stack.len()).expect("few");
            match action % 16 {
                // Some are lost on the way.
                0 => stack.push(time),
                1 => _ = stack.pop(),
                2 => {
                    // A tail call.
                    let start = stack.pop();
                    stack.extend(start.map(|_| time));
                    packets.extend(start.map(|_| event_of(EventKind::Call, 0, depth - 1, time, time)));
                }
                3 => packets.push(packet(stamp(0, 0, time), 5 + action % 3)),
                4..=10 => {
                    stack.push(time);
                    packets.push(event_of(EventKind::Call, 1, depth, time, time));
                    calls += 1;
                }
                _ => packets.extend(stack.pop().map(|start| event_of(EventKind::Return, 1, depth - 1, start, time))),
            }
        }
        let steps = 4 * packets.len() * packets.len();
        let shown = converted(&compat_file(packets), steps);
        let named = shown.iter().filter(|(name, ..)| name == "work").count();
        assert!(named >= calls, "{named} of {calls}");
    }
    QuickCheck::new().tests(200).quickcheck(check as fn(Vec<(u8, u16)>));
    // In order, everything has its own microsecond.
    let quick = (0..5000).flat_map(|at| {
        [event_of(EventKind::Call, 0, 1, at * 9, at * 9), event_of(EventKind::Return, 0, 1, at * 9, at * 9 + 5)]
    });
    let quick: Vec<_> = [event_of(EventKind::Call, 0, 0, 0, 0)].into_iter().chain(quick).collect();
    assert_eq!(converted(&compat_file(quick), 0).len(), 5001);
}

#[test]
fn each_session_has_a_compat_file_and_packets_no_agent_would_write_do_no_harm() {
    let dir = fresh_dir("compat-many");
    std::fs::create_dir_all(&dir).expect("made");
    let mut sink = HephCompatSink::open(dir.join("trace.heph")).expect("it opens");
    for name in ["a", "b"] {
        let session = session(name);
        let packets = (0..9).flat_map(|variety| {
            [(9, 9, u64::MAX), (0, 0, 5), (0, u32::MAX, 3)]
                .map(|(stream, counter, end)| packet(stamp(stream, counter, end), variety))
        });
        let mut lying = batch(&session, &[(0, 0, packets.collect()), (1, 0, vec![])]);
        let runs = &mut Arc::get_mut(&mut lying).expect("only one").runs;
        runs[0].events += 2;
        runs[1].bytes = 1000;
        sink.options(&session, b"no packets at all").expect("it is ignored");
        sink.events(&lying).expect("it takes what it can");
        sink.end(&session, &Ended::default()).expect("it ends");
    }
    sink.close().expect("it closes");
    let names: BTreeSet<_> =
        std::fs::read_dir(&dir).expect("it is there").map(|entry| entry.expect("one").file_name()).collect();
    assert_eq!(names, BTreeSet::from(["trace.heph".into(), "trace-2.heph".into()]));
    let file = std::fs::read(dir.join("trace-2.heph")).expect("it is there");
    let mut packets = Packets::new(&file, MAX_PACKET_BYTES);
    while let Some(event) = packets.next_with(Event::decode) {
        assert_eq!(event.expect("whole packets").stamp.stream.0, 0, "they are of the stream that they came for");
    }
    std::fs::remove_dir_all(&dir).expect("it is there");
}
