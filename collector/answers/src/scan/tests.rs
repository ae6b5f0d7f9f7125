use std::{collections::BTreeMap, fs, path::Path};

use codec::{
    Counter, EventKind, FunctionId, ModuleId, Position, SessionNs, StreamId, SubstreamId,
    atf::Manifest,
    heph::{Attribute, Attributes, Encode, Event, MAX_PACKET_BYTES, Packets, Stamp, Value},
    profile::{Detail, FunctionEvent, Message, Registers, RuntimeEvent},
};

use sinks::Sink;

use super::*;
use crate::scene::Scene;

/// Keeps what it is given.
#[derive(Default)]
struct Keep {
    sent: BTreeMap<u32, Vec<Vec<u8>>>,
    times: Vec<u64>,
    settled: u64,
}

impl MessageConsumer for Keep {
    fn message(&mut self, stream: StreamId, position: Position, message: &Message<'_>) -> Result<()> {
        let stamp = match message {
            Message::Function(event) => event.stamp,
            Message::Runtime(event) => event.stamp,
            Message::Event(event) => event.stamp,
            _ => unreachable!("these are events"),
        };
        assert_eq!(stamp.counter, position.counter());
        assert!(stamp.end.0 >= self.settled, "nothing comes from before what is settled");
        self.times.push(stamp.end.0);
        let mut packet = Vec::new();
        message.encode(&mut packet)?;
        self.sent.entry(stream.0).or_default().push(packet);
        Ok(())
    }

    fn gap(&mut self, gap: &GapEntry, _: Option<SessionNs>) -> Result<()> {
        let text = format!("gap {} {}", gap.first, gap.count);
        self.sent.entry(gap.thread).or_default().push(text.into_bytes());
        Ok(())
    }

    fn settle(&mut self, until: SessionNs) -> Result<()> {
        self.settled = until.0;
        Ok(())
    }
}

fn replay(folder: &Path) -> Result<Keep> {
    let trace = Trace::open(folder)?;
    let mut messages = Messages::new(&trace, Keep::default());
    Scan::open(&trace, &trace.threads())?.run(&mut messages)?;
    Ok(messages.consumer)
}

fn stamp(start: u64, end: u64, substream: u64) -> Stamp {
    let (start, end, substream) = (SessionNs(start), SessionNs(end), SubstreamId(substream));
    Stamp { stream: StreamId(0), counter: Counter(0), substream, start, end }
}

fn call(kind: EventKind, start: u64, end: u64, depth: u32) -> FunctionEvent<'static> {
    let function = Some(FunctionId::new(ModuleId(1), depth));
    let (detail, extra) = (None, Attributes::default());
    FunctionEvent { stamp: stamp(start, end, 0), kind, function, ip: None, depth, detail, extra }
}

/// Whatever can come, of one stream, from this time on.
fn send_all(scene: &mut Scene, stream: u32, from: u64) {
    let words: [u64; Registers::WORDS] = std::array::from_fn(|at| at as u64 + 7);
    let stack = [1, u64::MAX, 3];
    let attributes =
        [Attribute { name: "note", value: Value::Str("x") }, Attribute { name: "n", value: Value::U64(4) }];
    let (at, call_at) = (|after: u64| from + after * 10, |kind, start, end, depth| call(kind, start, end, depth));
    let functions = [
        call_at(EventKind::Call, at(0), at(0), 0),
        // One that says when it was entered itself.
        call_at(EventKind::Call, at(0), at(1), 1),
        FunctionEvent { detail: Some(Detail::new(&words, &stack)), ..call_at(EventKind::Return, at(0), at(2), 1) },
        // Its call was at another time than the last of its depth.
        call_at(EventKind::Return, at(1) + 1, at(3), 1),
        FunctionEvent { extra: (&attributes).into(), ..call_at(EventKind::Call, at(4), at(4), 1) },
        FunctionEvent { ip: Some(0x1234), ..call_at(EventKind::Call, at(5), at(5), 2) },
        FunctionEvent {
            ip: Some(0x1234),
            extra: (&attributes).into(),
            detail: Some(Detail::new(&words, &[])),
            ..call_at(EventKind::Exception, at(5), at(6), 2)
        },
        // No function that anybody knows.
        FunctionEvent { function: None, ip: Some(0xdead), ..call_at(EventKind::Call, at(7), at(7), 0) },
        FunctionEvent {
            function: None,
            ip: Some(0xdead),
            extra: (&attributes).into(),
            ..call_at(EventKind::Return, at(7), at(8), 0)
        },
        FunctionEvent { function: None, ip: Some(0), ..call_at(EventKind::Call, at(8), at(8), 3) },
        FunctionEvent { function: Some(FunctionId(5)), ..call_at(EventKind::Call, at(8), at(8), 4) },
        // Another task.
        FunctionEvent { stamp: stamp(at(9), at(9), 77), ..call_at(EventKind::Call, 0, 0, 0) },
        FunctionEvent { stamp: stamp(at(9), at(10), 77), ..call_at(EventKind::Return, 0, 0, 0) },
        call_at(EventKind::Return, at(0), at(11), 100_000),
        call_at(EventKind::Call, at(12), at(12), 90_000),
    ];
    for event in functions {
        scene.send(stream, Message::Function(event));
    }
    scene.lose(stream, 3);
    let keys = Attributes::from(&attributes);
    for (function, phase) in [
        ("pthread_create", EventKind::Call),
        ("pthread_create", EventKind::Return),
        ("dispatch_async", EventKind::Exception),
        ("swift_task_create", EventKind::Call),
    ] {
        scene.send(stream, Message::Runtime(RuntimeEvent { stamp: stamp(at(12), at(13), 8), function, phase, keys }));
    }
    let wrong = [Attribute { name: "phase", value: Value::U64(9) }];
    for (description, attributes) in [
        ("plain", keys),
        ("0x12", keys),
        ("0:5", Attributes::default()),
        ("", Attributes::default()),
        ("call", Attributes::default()),
        ("pthread_join", (&wrong).into()),
    ] {
        scene.send(stream, Message::Event(Event { stamp: stamp(at(13), at(14), 5), description, attributes }));
    }
    scene.lose(stream, 1);
}

#[test]
fn what_came_over_the_wire_is_made_again() {
    let mut scene = Scene::new();
    for round in 0..3 {
        for stream in [0, 7, 2] {
            send_all(&mut scene, stream, round * 1000 + u64::from(stream));
        }
    }
    scene.end();
    let found = replay(&scene.folder()).expect("it is whole");
    for (stream, sent) in &scene.sent {
        let found = &found.sent[stream];
        assert_eq!(found.len(), sent.len());
        for (number, (found, sent)) in found.iter().zip(sent).enumerate() {
            let text = |bytes: &[u8]| match Packets::new(bytes, MAX_PACKET_BYTES).next_with(Message::decode) {
                Some(Ok(message)) => format!("{message:?}"),
                _ => String::from_utf8_lossy(bytes).into_owned(),
            };
            assert_eq!(text(found), text(sent), "stream {stream}, {number}");
            assert_eq!(found, sent, "stream {stream}, {number}");
        }
    }
    assert!(found.times.is_sorted(), "in the order of time");
}

#[test]
fn long_threads_are_read_page_by_page_and_in_order() {
    let mut scene = Scene::new();
    let text = "y".repeat(300_000);
    for round in 0..6_000_u64 {
        for stream in [0, 1] {
            let at = round * 3 + u64::from(stream);
            scene.send(stream, Message::Function(call(EventKind::Call, at, at, 0)));
        }
        if round % 1000 == 10 {
            // Larger than a page.
            let attributes = [Attribute { name: "long", value: Value::Str(&text[..50_000]) }; 8];
            let attributes = (&attributes).into();
            let event = Event { stamp: stamp(round * 3, round * 3 + 1, 0), description: "large", attributes };
            scene.send(1, Message::Event(event));
        }
    }
    scene.end();
    let found = replay(&scene.folder()).expect("it is whole");
    assert!(found.sent == scene.sent && found.times.is_sorted());
    assert!(found.settled > 10_000, "it is told how far all have come: {}", found.settled);
}

#[test]
fn what_lacks_its_end_is_read_as_far_as_it_goes() {
    let mut scene = Scene::new();
    for at in 0..100 {
        scene.send(0, Message::Function(call(EventKind::Call, at, at, 0)));
    }
    let keys = [Attribute { name: "note", value: Value::Str("x") }];
    let extra = Attributes::from(&keys);
    scene.send(0, Message::Function(FunctionEvent { extra, ..call(EventKind::Call, 200, 200, 0) }));
    scene.sink.flush().expect("written");
    let folder = scene.folder();
    assert!(folder.join("journal.heph").exists() && Manifest::parse(b"{").is_err());
    assert_eq!(replay(&folder).expect("it goes on").sent, scene.sent);
    let (index, detail) = (folder.join("thread_0/index.atf"), folder.join("thread_0/detail.atf"));
    let (whole, details) = (fs::read(&index).expect("there"), fs::read(&detail).expect("there"));
    let events = |bytes: &[u8]| {
        fs::write(&index, bytes).expect("written");
        replay(&folder).map(|found| found.sent.get(&0).map_or(0, Vec::len))
    };
    assert_eq!(events(&whole[..64 + 32 * 10 + 5]).expect("cut"), 10, "a part of an event is none");
    assert_eq!(events(&[&whole[..64 + 32 * 10], &[0; 1000][..]].concat()).expect("cut"), 10, "nor are zeros");
    assert_eq!(events(&whole[..64]).expect("cut"), 0);
    assert_eq!(events(&whole[..20]).expect("cut"), 0);
    let mut wrong = whole.clone();
    wrong[64 + 32 * 50 + 20] = 9;
    let error = events(&wrong).expect_err("it is damaged");
    assert!(format!("{error:#}").contains("thread_0/index.atf: at byte 1684"), "{error:#}");
    // The index leads to what is not there.
    fs::write(&detail, &details[..70]).expect("written");
    let error = events(&whole).expect_err("it is damaged");
    assert!(format!("{error:#}").contains("event 100"), "{error:#}");
}
