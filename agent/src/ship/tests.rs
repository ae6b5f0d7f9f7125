//! Delivering to a collector that is not there, that loses things, that restarts, and that talks nonsense.

use std::{
    collections::BTreeSet,
    net::UdpSocket,
    time::{Duration, Instant},
};

use codec::{
    EventKind, FunctionId, ModuleId, Position, SessionId, SessionNs, StreamId, SubstreamId,
    heph::Encode,
    profile::{Ask, EndReason, FunctionName, Limit, Module, Nack, ProfileOption, Range, RunEvent, Thread},
};

use super::{
    Settings, ShipError, Shipper, Transport, Wire,
    fake::{Fake, SESSION, WIRES},
};

const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::Tcp];

/// Every transport with every way to pack events.
const WAYS: [(Transport, Wire); 4] = [
    (Transport::Udp, Wire::Runs),
    (Transport::Udp, Wire::Plain),
    (Transport::Tcp, Wire::Runs),
    (Transport::Tcp, Wire::Plain),
];

fn event(position: u64) -> RunEvent<'static> {
    RunEvent {
        kind: if position.is_multiple_of(2) { EventKind::Call } else { EventKind::Return },
        depth: 1,
        function: Some(FunctionId(position)),
        ip: 0,
        start: SessionNs(position),
        end: SessionNs(position),
        detail: None,
    }
}

fn push(shipper: &mut Shipper, stream: u32, positions: std::ops::Range<u64>) {
    for position in positions {
        let (stream, substream) = (StreamId(stream), SubstreamId(0));
        shipper.push_function(stream, substream, Position(position), &event(position)).expect("it can be encoded");
    }
}

fn thread(stream: u32, name: &str) -> Thread<'_> {
    let (stream, start) = (StreamId(stream), SessionNs(0));
    Thread { stream, os_id: 1, start, end: None, creator: None, name }
}

#[track_caller]
fn has_all(fake: &Fake, expected: &[(u32, u64)]) {
    let got: Vec<_> = fake.got.events.keys().copied().collect();
    let expected: Vec<_> = expected.iter().flat_map(|(stream, count)| (0..*count).map(|at| (*stream, at))).collect();
    assert_eq!(got.len(), expected.len());
    assert!(got == expected, "the events are others");
    for ((_, position), (stamp, _)) in &fake.got.events {
        assert_eq!(stamp.end, SessionNs(*position));
    }
}

/// Ends the session while the fake collector has its turns.
fn finish(shipper: &mut Shipper, fake: &mut Fake) {
    shipper.flush();
    fake.until(shipper, |shipper, _| shipper.is_over(EndReason::Exited(0), SessionNs(5)));
    assert!(shipper.report().complete);
}

#[test]
fn everything_arrives_over_both_transports() {
    for (transport, wire) in WAYS {
        let mut fake = Fake::new(wire);
        let mut shipper = fake.shipper(transport);
        assert_eq!(fake.got.order[..3], ["session", "epoch", "clock"]);
        shipper.option(thread(0, "a").into());
        for turn in 0..50 {
            push(&mut shipper, 0, turn * 100..(turn + 1) * 100);
            push(&mut shipper, 1, turn * 10..(turn + 1) * 10);
            shipper.flush();
            shipper.turn(Duration::ZERO);
            fake.turn();
        }
        finish(&mut shipper, &mut fake);
        has_all(&fake, &[(0, 5_000), (1, 500)]);
        assert_eq!(fake.got.end.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>(), [(0, 5_000), (1, 500)]);
        let report = shipper.report();
        assert_eq!((report.events, report.unsettled, report.unacknowledged), (5_500, 0, 0));
        assert_eq!(shipper.replay.in_flight_bytes(), 0);
    }
}

#[test]
fn nothing_comes_before_the_greeting_is_answered() {
    for wire in WIRES {
        let mut fake = Fake::new(wire);
        fake.answers = false;
        let mut shipper = Shipper::new(fake.settings(Transport::Udp), &Fake::who()).expect("a session");
        shipper.option(thread(0, "early").into());
        push(&mut shipper, 0, 0..100);
        shipper.flush();
        fake.until(&mut shipper, |_, fake| fake.got.packets >= 8);
        let greeting = ["session", "epoch", "clock", "context"].iter().cycle().take(fake.got.order.len());
        assert!(fake.got.order.iter().eq(greeting), "{:?}", fake.got.order);
        fake.answers = true;
        fake.settle(&mut shipper);
        has_all(&fake, &[(0, 100)]);
    }
}

#[test]
fn what_the_network_loses_is_sent_again() {
    for wire in WIRES {
        let mut fake = Fake::new(wire);
        fake.overlook = 3;
        let mut shipper = fake.shipper(Transport::Udp);
        for stream in 0..3 {
            shipper.option(thread(stream, "lossy").into());
            push(&mut shipper, stream, 0..2_000);
        }
        shipper.dropped(StreamId(1), Position(2_000), 7, "ring-full");
        push(&mut shipper, 1, 2_007..2_010);
        finish(&mut shipper, &mut fake);
        assert!(shipper.report().again > 100);
        assert_eq!(fake.got.events.len(), 6_003);
        assert_eq!(fake.got.dropped.len(), 7);
        assert_eq!(fake.got.settled[&1], 2_010);
    }
}

#[test]
fn the_window_is_honoured() {
    for (transport, wire) in WAYS {
        let mut fake = Fake::new(wire);
        fake.window_bytes = 10_000;
        let mut shipper = fake.shipper(transport);
        push(&mut shipper, 0, 0..5_000);
        shipper.flush();
        fake.until(&mut shipper, |shipper, _| {
            assert!(shipper.replay.in_flight_bytes() <= 10_000);
            shipper.report().unsettled == 0
        });
        // One that shuts completely is tried with one parcel at a time.
        fake.window_bytes = 0;
        fake.settle(&mut shipper);
        push(&mut shipper, 0, 5_000..5_200);
        fake.settle(&mut shipper);
        has_all(&fake, &[(0, 5_200)]);
    }
}

#[test]
fn progress_tells_only_of_what_was_sent() {
    for wire in WIRES {
        let mut fake = Fake::new(wire);
        fake.window_bytes = 3_000;
        let mut shipper = fake.shipper(Transport::Udp);
        fake.answers = false;
        push(&mut shipper, 0, 0..1_000);
        shipper.dropped(StreamId(0), Position(1_000), 5, "ring-full");
        shipper.flush();
        fake.until(&mut shipper, |_, fake| fake.got.known.contains_key(&0));
        assert_eq!(fake.got.known[&0], fake.got.events.len() as u64);
        assert!(fake.got.known[&0] < 500);
        fake.answers = true;
        fake.settle(&mut shipper);
        fake.until(&mut shipper, |_, fake| fake.got.settled[&0] == 1_005);
    }
}

#[test]
fn there_is_room_for_so_much_and_no_more() {
    for wire in WIRES {
        let mut fake = Fake::new(wire);
        let settings = Settings { replay_bytes: 1 << 20, ..fake.settings(Transport::Udp) };
        let mut shipper = Shipper::new(settings, &Fake::who()).expect("a session");
        let mut position = 0;
        while shipper.has_room() {
            push(&mut shipper, 0, position..position + 100);
            position += 100;
            assert!(position < 200_000, "it never ends");
        }
        assert!(shipper.replay.kept_bytes() <= 1 << 20);
        fake.settle(&mut shipper);
        assert!(shipper.has_room());
        has_all(&fake, &[(0, position)]);
    }
}

#[test]
fn a_collector_that_restarts_is_told_everything_it_can_be() {
    for (transport, wire) in WAYS {
        let mut fake = Fake::new(wire);
        let mut shipper = fake.shipper(transport);
        shipper.option(thread(0, "lasting").into());
        push(&mut shipper, 0, 0..300);
        shipper.dropped(StreamId(0), Position(300), 10, "ring-full");
        fake.settle(&mut shipper);
        // Sent, and not settled when it dies.
        fake.answers = false;
        push(&mut shipper, 0, 310..400);
        shipper.dropped(StreamId(0), Position(400), 10, "ring-full");
        shipper.flush();
        shipper.turn(Duration::ZERO);
        fake.turn();
        fake.close();
        // It is sent into the void, which is noticed.
        push(&mut shipper, 0, 410..420);
        shipper.flush();
        fake.until(&mut shipper, |shipper, _| !shipper.is_connected());
        fake.open();
        // This one has been told that all before is settled, which a real one finds out by waiting.
        fake.got.settled.insert(0, 310);
        fake.answers = true;
        push(&mut shipper, 0, 420..500);
        fake.settle(&mut shipper);
        fake.until(&mut shipper, |_, fake| fake.got.settled[&0] == 500);
        let events: Vec<_> = fake.got.events.keys().map(|(_, position)| *position).collect();
        assert!(events.iter().copied().eq((310..400).chain(410..500)), "{transport}: {events:?}");
        assert_eq!(fake.got.dropped.len(), 10, "what was settled before is not told again");
        assert!(fake.got.options.contains_key("thread 0") && fake.got.options.contains_key("session"));
        assert_eq!(shipper.report().reconnects, 1);
    }
}

#[test]
fn a_collector_that_has_forgotten_without_a_word_is_told_again() {
    for wire in WIRES {
        let mut fake = Fake::new(wire);
        let mut shipper = fake.shipper(Transport::Udp);
        shipper.option(thread(0, "lasting").into());
        push(&mut shipper, 0, 0..300);
        fake.settle(&mut shipper);
        // The port is never closed, so that nobody says so.
        fake.got = Default::default();
        fake.got.settled.insert(0, 300);
        push(&mut shipper, 0, 300..400);
        fake.settle(&mut shipper);
        assert!(fake.got.options.contains_key("thread 0") && fake.got.options.contains_key("session"));
        assert_eq!((fake.got.events.len(), shipper.report().reconnects), (100, 0));
    }
}

#[test]
fn nobody_there_is_said_so() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = socket.local_addr().expect("an address");
    let settings = |transport| Settings { patience: Duration::from_millis(300), ..Settings::new(vec![to], transport) };
    let error = |transport| Shipper::connect(settings(transport), &Fake::who()).expect_err("nobody is there");
    // Somebody has the port, and says nothing.
    assert!(matches!(error(Transport::Udp), ShipError::NoAnswer { .. }));
    drop(socket);
    for transport in TRANSPORTS {
        let error = error(transport);
        assert!(matches!(error, ShipError::Refused { .. }), "{transport}: {error}");
        assert!(error.to_string().contains("is a collector running there?") && !error.to_string().contains('\n'));
    }
    let nowhere = Settings::new(Vec::new(), Transport::Udp);
    assert!(matches!(Shipper::connect(nowhere, &Fake::who()), Err(ShipError::NoAddress)));
}

#[test]
fn the_next_address_is_tried() {
    for (transport, wire) in WAYS {
        let mut fake = Fake::new(wire);
        let mut settings = fake.settings(transport);
        let dead = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("an address");
        settings.to.insert(0, dead);
        let mut shipper = Shipper::new(settings, &Fake::who()).expect("a session");
        fake.until(&mut shipper, |shipper, _| shipper.is_connected());
        assert_ne!(shipper.address(), dead);
        assert_eq!(shipper.last_error().map(|(to, _)| to), Some(dead));
    }
}

#[test]
fn nonsense_is_not_believed() {
    for (transport, wire) in WAYS {
        let mut fake = Fake::new(wire);
        let mut shipper = fake.shipper(transport);
        push(&mut shipper, 0, 0..100);
        shipper.flush();
        // Everything is settled, says one who has not seen it; and of streams that there are not.
        fake.got.settled.extend([(0, u64::MAX >> 1), (77, 5), (u32::MAX, 5)]);
        fake.got.known.extend([(5, 10)]);
        for seed in 0..200_u32 {
            let byte = |at: u32| (at.wrapping_mul(seed).wrapping_mul(2_654_435_761) >> 24) as u8;
            fake.say(&(0..seed * 7 % 300).map(byte).collect::<Vec<_>>());
            shipper.turn(Duration::ZERO);
            fake.turn();
        }
        push(&mut shipper, 0, 100..200);
        shipper.flush();
        shipper.turn(Duration::ZERO);
        assert!(shipper.report().events == 200);
    }
}

#[test]
fn what_is_asked_for_is_handed_over_once_and_answered_to_who_asks() {
    for transport in TRANSPORTS {
        let mut fake = Fake::new(Wire::Runs);
        let mut shipper = fake.shipper(transport);
        let ask = |session, number| {
            let mut packet = Vec::new();
            ProfileOption::from(Ask { session, number, request: "status" }).encode(&mut packet).expect("it fits");
            packet
        };
        fake.say(&ask(SessionId([1; 16]), 1));
        fake.say(&ask(SESSION, 2));
        fake.say(&ask(SESSION, 2));
        let mut asked = None;
        fake.until(&mut shipper, |shipper, _| {
            asked = shipper.next_ask();
            asked.is_some()
        });
        assert_eq!(asked.map(|asked| (asked.number, asked.request)), Some((2, "status".into())), "{transport}");
        // Meanwhile there is another collector, which has asked for nothing.
        fake.close();
        fake.open();
        fake.until(&mut shipper, |_, fake| fake.got.options.contains_key("session"));
        fake.until(&mut shipper, |shipper, _| shipper.is_connected());
        assert!(shipper.next_ask().is_none());
        shipper.answer(2, Ok("fine"));
        fake.until(&mut shipper, |_, fake| fake.got.options.contains_key("answer"));
        assert!(fake.got.options["answer"].contains("fine"));
        let answers = |fake: &Fake| fake.got.order.iter().filter(|name| **name == "answer").count();
        assert_eq!(answers(&fake), 1, "it is not repeated");
        fake.say(&ask(SESSION, 2));
        fake.until(&mut shipper, |_, fake| answers(fake) == 2);
        assert!(shipper.next_ask().is_none());
        finish(&mut shipper, &mut fake);
    }
}

#[test]
fn time_is_up_at_some_time() {
    for wire in WIRES {
        let mut fake = Fake::new(wire);
        fake.window_bytes = 2_000;
        let mut shipper = fake.shipper(Transport::Udp);
        push(&mut shipper, 0, 0..1_000);
        shipper.flush();
        let report = shipper.finish(EndReason::Exited(0), SessionNs(0), Duration::from_millis(20));
        assert!(!report.complete && report.unacknowledged > 0);
        let not_sent = report.dropped["not-sent"];
        assert!((800..1_000).contains(&not_sent), "{not_sent}");
        // It was told all the same, and adds up.
        fake.turn();
        assert_eq!(fake.got.events.len() as u64 + not_sent, 1_000);
        assert_eq!((fake.got.dropped.len() as u64, fake.got.end[&0]), (not_sent, 1_000));
        assert!(report.to_string().contains("not-sent"), "{report}");
    }
}

#[test]
fn modules_and_limits_are_cut_to_size() {
    let mut fake = Fake::new(Wire::Runs);
    let mut shipper = fake.shipper(Transport::Udp);
    let names: Vec<_> = (0..500).map(|number| "long_é".repeat(number % 300)).collect();
    let functions = names.iter().zip(0..).map(|(name, offset)| FunctionName { offset, name });
    let functions: Vec<_> = functions.collect();
    let module = Module {
        id: ModuleId(3),
        base: 1,
        size: 2,
        loaded: SessionNs(3),
        unloaded: None,
        function_count: 0,
        table_hash: 0,
        build_id: &[7; 200],
        path: &"/x".repeat(5_000),
    };
    shipper.module(&module, &functions);
    let limit = |detail| Limit { module: ModuleId(3), count: 1, reason: "too-short", detail };
    let details: Vec<_> = (0..100).map(|number| format!("{number}").repeat(100)).collect();
    shipper.limits(&details.iter().map(|detail| limit(detail)).collect::<Vec<_>>());
    fake.settle(&mut shipper);
    let sent = fake.got.packets;
    let parts: Vec<_> = fake.got.options.keys().filter(|about| about.starts_with("functions 3 ")).collect();
    assert!(parts.len() > 100);
    assert!(fake.got.options.values().any(|part| part.contains('…')));
    // The same once more is not told again, but for what changed (twice, where the answer is late).
    shipper.module(&Module { unloaded: Some(SessionNs(9)), ..module }, &functions);
    fake.settle(&mut shipper);
    let again = fake.got.order[sent as usize..].iter().filter(|name| **name != "progress").copied();
    assert_eq!(again.collect::<BTreeSet<_>>(), BTreeSet::from(["module"]));
    assert!(fake.got.options["module 3"].contains("unloaded: Some(SessionNs(9))"));
}

#[test]
fn who_asks_for_the_middle_of_a_run_is_sent_all_of_it_once() {
    for transport in TRANSPORTS {
        let mut fake = Fake::new(Wire::Runs);
        let mut shipper = fake.shipper(transport);
        fake.answers = false;
        push(&mut shipper, 0, 0..50);
        shipper.dropped(StreamId(0), Position(50), 5, "ring-full");
        push(&mut shipper, 0, 55..100);
        shipper.flush();
        fake.until(&mut shipper, |_, fake| fake.got.events.len() == 95);
        assert_eq!(fake.got.runs, [50, 45], "drops end a run");
        let range = |first, count| Range { stream: StreamId(0), first: Position(first), count };
        let ranges = [range(10, 3), range(20, 1), range(45, 5), range(99, 1)];
        let mut nack = Vec::new();
        let asked = Nack { session: SESSION, ranges: ranges.as_slice().into() };
        ProfileOption::from(asked).encode(&mut nack).expect("it fits");
        // Right after they were sent, they may still be on their way.
        std::thread::sleep(Duration::from_millis(20));
        fake.say(&nack);
        fake.until(&mut shipper, |shipper, fake| shipper.report().again > 0 && fake.got.runs.len() >= 4);
        assert_eq!(fake.got.runs, [50, 45, 50, 45]);
        assert_eq!((shipper.report().again, shipper.report().events, shipper.report().unsettled), (95, 95, 95));
        fake.answers = true;
        fake.settle(&mut shipper);
        assert_eq!((fake.got.settled[&0], shipper.report().unsettled), (100, 0));
    }
}

#[test]
fn runs_take_few_bytes_and_plain_packets_are_single() {
    for wire in WIRES {
        let mut fake = Fake::new(wire);
        let mut shipper = fake.shipper(Transport::Udp);
        let before = shipper.report().bytes;
        push(&mut shipper, 0, 0..10_000);
        fake.settle(&mut shipper);
        let bytes = (shipper.report().bytes - before) / 10_000;
        match wire {
            Wire::Runs => assert!(bytes < 15 && fake.got.runs.len() < 100, "{bytes} in {:?}", fake.got.runs),
            Wire::Plain => assert!(bytes > 60 && fake.got.runs.is_empty()),
        }
    }
}

fn module(id: u32) -> Module<'static> {
    Module {
        id: ModuleId(id),
        base: 1,
        size: 2,
        loaded: SessionNs(0),
        unloaded: None,
        function_count: 0,
        table_hash: 0,
        build_id: &[],
        path: "/lib/module",
    }
}

#[test]
fn names_are_there_before_events_of_their_functions() {
    for (transport, wire) in WAYS {
        let mut fake = Fake::new(wire);
        let mut shipper = fake.shipper(transport);
        // More than may be underway at a time.
        let functions: Vec<_> = (0..6_000)
            .map(|offset| FunctionName { offset, name: "a_name_of_a_function_with_fifty_characters_or_so_xx" })
            .collect();
        shipper.module(&module(1), &functions);
        push(&mut shipper, 0, 0..100);
        fake.settle(&mut shipper);
        let parts = fake.got.options.keys().filter(|about| about.starts_with("functions 1 ")).count();
        let before = fake.got.order.iter().take_while(|name| **name != "event");
        let told = before.filter(|name| **name == "functions").count();
        assert!(parts > 10 && told >= parts, "{transport}: {told} of {parts}");
    }
}

#[test]
fn events_wait_for_names_only_so_long() {
    let mut fake = Fake::new(Wire::Runs);
    let mut shipper = fake.shipper(Transport::Udp);
    fake.answers = false;
    shipper.module(&module(1), &[FunctionName { offset: 0, name: "main" }]);
    push(&mut shipper, 0, 0..10);
    shipper.flush();
    let begun = Instant::now();
    fake.until(&mut shipper, |_, fake| fake.got.events.len() == 10);
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
    // Nor where they would take the room of others.
    let mut settings = fake.settings(Transport::Udp);
    settings.replay_bytes = 16;
    let mut shipper = Shipper::new(settings, &Fake::who()).expect("a session");
    fake.answers = true;
    fake.got = Default::default();
    fake.until(&mut shipper, |shipper, _| shipper.is_connected());
    fake.answers = false;
    shipper.module(&module(1), &[FunctionName { offset: 0, name: "main" }]);
    push(&mut shipper, 0, 0..10);
    shipper.flush();
    fake.turn();
    assert_eq!(fake.got.events.len(), 10);
}

#[test]
fn another_collector_is_told_the_end_last_too() {
    for overlook in [0, 3, 5] {
        let mut fake = Fake::new(Wire::Runs);
        let mut shipper = fake.shipper(Transport::Udp);
        for stream in 0..300 {
            shipper.option(thread(stream, "a thread with a name").into());
        }
        push(&mut shipper, 0, 0..10);
        finish(&mut shipper, &mut fake);
        // The next one knows nothing but the events, and asks who that is.
        fake.got = Default::default();
        fake.got.settled.insert(0, 10);
        fake.overlook = overlook;
        let who = Nack { session: SessionId::NONE, ranges: [].as_slice().into() };
        let mut packet = Vec::new();
        ProfileOption::from(who).encode(&mut packet).expect("it fits");
        fake.say(&packet);
        fake.until(&mut shipper, |shipper, _| !shipper.is_complete());
        fake.until(&mut shipper, |shipper, fake| {
            shipper.is_over(EndReason::Exited(0), SessionNs(5)) || !fake.got.end.is_empty()
        });
        let threads = fake.got.options.keys().filter(|about| about.starts_with("thread ")).count();
        assert_eq!(threads, 300);
        finish(&mut shipper, &mut fake);
        assert_eq!(fake.got.end.len(), 300, "it is told again");
    }
}
