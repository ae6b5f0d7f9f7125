//! A run is worth what the single packets that it stands for are worth.

use codec::{
    Counter, EventKind, FunctionId, ModuleId, SessionNs, StreamId, SubstreamId,
    heph::{Attribute, Attributes, Event, Packet, Packets, Stamp, Value},
    profile::{Detail, FunctionEvent, MAX_STACK_WORDS, Message, Run, RunEncoder, RunEvent},
};
use quickcheck::{Arbitrary, Gen, quickcheck};

use crate::{
    fixtures::encoded,
    generate::{AnyMessage, function_event},
};

/// Events of one stream as a thread makes them, with everything that does not fit a word now and then.
#[derive(Debug, Clone)]
struct AnyEvents(Vec<FunctionEvent<'static>>);

impl Arbitrary for AnyEvents {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut time = rare(g, 10_000);
        let mut stack: Vec<(FunctionId, u64)> = Vec::new();
        let mut base = rare(g, 8) as u32;
        let (mut substream, first) = (0, u32::arbitrary(g));
        let count = usize::arbitrary(g) % 400;
        let events = (0..count).map(|number| {
            time = time.saturating_add(rare(g, 500));
            if u8::arbitrary(g) < 3 {
                substream = rare(g, 3);
            }
            if u8::arbitrary(g) < 3 {
                base = rare(g, 100) as u32;
            }
            let depth = |stack: &[(FunctionId, u64)]| base.saturating_add(stack.len() as u32);
            let function = FunctionId::new(ModuleId(rare(g, 20) as u32), rare(g, 1000) as u32);
            let (kind, depth, function, start) = match u8::arbitrary(g) % 8 {
                0..4 => {
                    stack.push((function, time));
                    (EventKind::Call, depth(&stack[1..]), function, time)
                }
                // In place of the one on top.
                4 => {
                    stack.pop();
                    stack.push((function, time));
                    (EventKind::Call, depth(&stack[1..]), function, time)
                }
                5 => {
                    let (function, start) = stack.pop().unwrap_or((function, time.saturating_sub(rare(g, 1000))));
                    (EventKind::Exception, depth(&stack), function, start)
                }
                _ => {
                    let (function, start) = stack.pop().unwrap_or((function, time.saturating_sub(rare(g, 1000))));
                    (EventKind::Return, depth(&stack), function, start)
                }
            };
            let counter = Counter(first.wrapping_add(number as u32));
            let stamp = Stamp {
                stream: StreamId(7),
                counter,
                substream: SubstreamId(substream),
                start: SessionNs(start.min(time)),
                end: SessionNs(time),
            };
            let known = u8::arbitrary(g) > 2;
            let (function, ip) = (known.then_some(function), (!known).then(|| u64::arbitrary(g)));
            let detail = (u8::arbitrary(g) < 30).then(|| {
                let registers: [u64; 11] = std::array::from_fn(|_| rare(g, 2));
                let stack: Vec<u64> = (0..usize::arbitrary(g) % (MAX_STACK_WORDS + 1)).map(|_| rare(g, 2)).collect();
                Detail::new(Box::leak(Box::new(registers)), stack.leak())
            });
            FunctionEvent { stamp, kind, function, ip, depth, detail, extra: Attributes::default() }
        });
        Self(events.collect())
    }
}

/// Mostly a small number, now and then any.
fn rare(g: &mut Gen, small: u64) -> u64 {
    match u8::arbitrary(g) {
        0 => u64::arbitrary(g),
        1 => u64::arbitrary(g) >> (8 + u32::arbitrary(g) % 40),
        _ => u64::arbitrary(g) % small.max(1),
    }
}

/// Packs events as an agent does: into runs as long as they fit, each of which may have so many bytes.
fn packed(events: &[FunctionEvent<'_>], limit: usize) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut open: Option<(RunEncoder, Vec<u8>, SubstreamId)> = None;
    let close = |open: &mut Option<(RunEncoder, Vec<u8>, SubstreamId)>, packets: &mut Vec<Vec<u8>>| {
        if let Some((run, mut out, _)) = open.take() {
            run.finish(&mut out);
            packets.push(out);
        }
    };
    for event in events {
        let Some(packable) = RunEvent::of(event) else {
            close(&mut open, &mut packets);
            packets.push(encoded(event));
            continue;
        };
        if let Some((run, out, substream)) = &mut open
            && *substream == event.stamp.substream
            && run.push(&packable, out)
        {
            continue;
        }
        close(&mut open, &mut packets);
        let mut out = Vec::new();
        let mut run = RunEncoder::begin(&event.stamp, &packable, limit, &mut out);
        assert!(run.push(&packable, &mut out), "{packable:?} does not fit an empty run");
        open = Some((run, out, event.stamp.substream));
    }
    close(&mut open, &mut packets);
    packets
}

/// What packets decode to, event by event.
fn unpacked(packet: &[u8]) -> Vec<FunctionEvent<'_>> {
    match Message::decode(packet) {
        Ok(Message::Run(run)) => {
            let events: Vec<_> = run.function_events().collect();
            assert_eq!(events.len(), run.count as usize);
            assert_eq!(events.last().map(|event| event.stamp.end), Some(run.stamp.end));
            events
        }
        Ok(Message::Function(event)) => vec![event],
        other => panic!("{other:?}"),
    }
}

quickcheck! {
    fn any_packets_that_arrive_are_the_events_that_were_sent(events: AnyEvents, lost: Vec<bool>, limit: u16) -> bool {
        let limit = 1_200 + usize::from(limit) % 10_000;
        let packets = packed(&events.0, limit);
        assert!(packets.iter().all(|packet| packet.len() <= limit));
        let mut at = 0;
        packets.iter().enumerate().all(|(number, packet)| {
            // What came before it makes no difference: each is decoded by itself.
            if lost.get(number) == Some(&true) {
                at += match Message::decode(packet) {
                    Ok(Message::Run(run)) => run.count as usize,
                    _ => 1,
                };
                return true;
            }
            let got = unpacked(packet);
            let sent = &events.0[at..at + got.len()];
            at += got.len();
            got == sent
        })
    }

    fn a_run_is_the_same_bytes_again(events: AnyEvents) -> bool {
        packed(&events.0, 60_000).iter().all(|packet| {
            encoded(&Message::decode(packet).expect("it was encoded")) == *packet
        })
    }

    fn any_function_event_fits_a_run_or_says_that_it_does_not(message: AnyMessage) -> bool {
        let Message::Function(event) = message.0 else { return true };
        packed(&[event], 1_200).iter().flat_map(|packet| unpacked(packet)).eq([event])
    }

    fn any_words_are_a_plain_event_or_a_run_that_reads_to_its_end(words: Vec<u64>, depth: u64, start: u64) -> bool {
        let packet = run_packet(start, &[("depth", Value::U64(depth)), ("events", Value::U64s(words.as_slice().into()))]);
        match Message::decode(&packet).expect("it is Heph") {
            Message::Run(run) => run.events().count() == run.count as usize && run.count > 0,
            Message::Event(_) => true,
            _ => false,
        }
    }
}

/// A packet that is called a run, with these attributes.
fn run_packet(start: u64, attributes: &[(&str, Value<'_>)]) -> Vec<u8> {
    let attributes: Vec<_> = attributes.iter().map(|&(name, value)| Attribute { name, value }).collect();
    let stamp = Stamp { start: SessionNs(start), ..Stamp::default() };
    encoded(&Event { stamp, description: "run", attributes: attributes.as_slice().into() })
}

fn is_run(attributes: &[(&str, Value<'_>)]) -> bool {
    matches!(Message::decode(&run_packet(0, attributes)), Ok(Message::Run(_)))
}

const CALL: u64 = 1 << 61;
const RETURN: u64 = 2 << 61;

/// A prefix with this code.
fn prefix(code: u64, payload: u64) -> u64 {
    code << 56 | payload
}

#[test]
fn what_only_looks_like_a_run_is_an_event() {
    let (depth, words) = (("depth", Value::U64(1)), ("events", Value::U64s((&[CALL]).into())));
    assert!(is_run(&[depth, words]));
    assert!(is_run(&[words, depth, ("colour", Value::Str("red"))]), "other attributes are ignored");
    assert!(!is_run(&[depth]), "no events");
    assert!(!is_run(&[words]), "no depth");
    assert!(!is_run(&[depth, words, depth]), "a depth twice");
    assert!(!is_run(&[depth, words, words]), "events twice");
    assert!(!is_run(&[("depth", Value::I64(1)), words]), "a depth of another type");
    assert!(!is_run(&[depth, ("events", Value::U64(CALL))]), "events that are no array");
    assert!(!is_run(&[("depth", Value::U64(1 << 32)), words]), "a depth that does not fit");

    let made_of = |words: &[u64]| is_run(&[depth, ("events", Value::U64s(words.into()))]);
    assert!(!made_of(&[]), "no event");
    assert!((1..=4).all(|kind| made_of(&[kind << 61])));
    assert!((5..=7).all(|kind| !made_of(&[CALL, kind << 61])), "a kind that does not exist");
    assert!((1..=6).all(|code| made_of(&[prefix(code, 0), CALL, CALL])));
    assert!([0, 7, 31].iter().all(|code| !made_of(&[prefix(*code, 0), CALL])), "a code that does not exist");
    assert!(!made_of(&[prefix(1, 1 << 32), CALL]), "a depth that does not fit");
    assert!(!made_of(&[CALL, prefix(3, 1)]), "a prefix without an event");
    assert!(!made_of(&[prefix(4, 0)]) && !made_of(&[prefix(5, 0), CALL]), "no operand, or no event behind it");
    let stack = |words: usize| [vec![prefix(6, (words as u64) << 11)], vec![0; words], vec![CALL]].concat();
    assert!(made_of(&stack(64)) && !made_of(&stack(65)));
    assert!(!made_of(&[prefix(6, 0b11), 1]), "a register without a value");
}

/// What the words leave open has a meaning, and the last of several prefixes counts.
#[test]
fn every_run_has_one_meaning() {
    let events = |start: u64, words: &[u64]| {
        let packet = run_packet(start, &[("depth", Value::U64(0)), ("events", Value::U64s(words.into()))]);
        let Ok(Message::Run(run)) = Message::decode(&packet) else { panic!("a run") };
        let events = run.events().map(|event| (event.start.0, event.end.0, event.depth, event.function, event.ip));
        events.collect::<Vec<_>>()
    };
    let none = Some(FunctionId(0));
    assert_eq!(events(5, &[RETURN]), [(5, 5, 0, none, 0)], "a return without its call took no time");
    assert_eq!(events(u64::MAX, &[CALL | 7]), [(u64::MAX, u64::MAX, 0, none, 0)], "time ends");
    assert_eq!(events(5, &[prefix(2, 9), RETURN]), [(0, 5, 0, none, 0)], "time has a beginning");
    assert_eq!(events(5, &[prefix(2, 3), CALL]), [(5, 5, 0, none, 0)], "a call takes no time");
    assert_eq!(events(5, &[prefix(1, 3), prefix(1, 4), CALL]), [(5, 5, 4, none, 0)]);
    assert_eq!(events(5, &[prefix(4, 0), 8, prefix(5, 0), 9, CALL]), [(5, 5, 0, None, 9)]);
    assert_eq!(events(5, &[prefix(5, 0), 9, prefix(4, 0), 8, CALL]), [(5, 5, 0, Some(FunctionId(8)), 0)]);
    assert_eq!(events(5, &[prefix(3, 1), prefix(3, 2), CALL | 9]), [(7, 7, 0, none, 0)]);
    // The table keeps the entry behind a return.
    assert_eq!(events(5, &[CALL, RETURN | 1, RETURN | 1])[2], (5, 7, 0, none, 0));
}

#[test]
fn a_stack_that_no_packet_can_carry_is_in_no_run() {
    let stack = [1; MAX_STACK_WORDS + 1];
    let mut event = function_event(&mut Gen::new(5));
    event.stamp.start = event.stamp.end;
    (event.kind, event.function, event.ip) = (EventKind::Call, Some(FunctionId(1)), None);
    event.extra = Attributes::default();
    event.detail = Some(Detail::new(&[0; 11], &stack));
    assert_eq!(RunEvent::of(&event), None);
    event.detail = Some(Detail::new(&[0; 11], &stack[1..]));
    assert!(RunEvent::of(&event).is_some());
}

/// There are two ways to decode a run. Reversing its attributes forces the long one.
#[test]
fn the_order_of_attributes_makes_no_difference() {
    let mut g = Gen::new(50);
    for _ in 0..200 {
        for packet in packed(&AnyEvents::arbitrary(&mut g).0, 2_000) {
            let Ok(Packet::Event(event)) = Packet::decode(&packet) else { panic!("an event") };
            let Ok(Message::Run(run)) = Message::decode(&packet) else { continue };
            let mut attributes: Vec<_> = event.attributes.iter().collect();
            attributes.reverse();
            let reversed = encoded(&Event { attributes: attributes.as_slice().into(), ..event });
            let Ok(Message::Run(other)) = Message::decode(&reversed) else { panic!("a run") };
            assert!(other.events().eq(run.events()) && other.stamp == run.stamp && other.count == run.count);
        }
    }
}

#[test]
fn an_event_is_eight_bytes_in_the_common_case() {
    let event = |number: u64, kind, depth, start| FunctionEvent {
        stamp: Stamp {
            start: SessionNs(start),
            end: SessionNs(100 * number),
            counter: Counter(number as u32),
            ..Stamp::default()
        },
        kind,
        function: Some(FunctionId::new(ModuleId(3), 4711)),
        ip: None,
        depth,
        detail: None,
        extra: Attributes::default(),
    };
    let events: Vec<_> = (0..1000)
        .flat_map(|pair| {
            [event(2 * pair, EventKind::Call, 5, 200 * pair), event(2 * pair + 1, EventKind::Return, 5, 200 * pair)]
        })
        .collect();
    let packets = packed(&events, 60_000);
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0].len(), Run::HEAD_BYTES + 8 * events.len());
    // In datagrams of the usual size.
    let bytes: usize = packed(&events, 1_400).iter().map(Vec::len).sum();
    assert!(bytes <= 17 * events.len() / 2, "{bytes}");
}

#[test]
fn packets_around_a_run_are_found() {
    let mut g = Gen::new(100);
    let events = AnyEvents::arbitrary(&mut g);
    let mut datagram: Vec<u8> = packed(&events.0, 5_000).concat();
    datagram.extend(encoded(&function_event(&mut g)));
    let mut packets = Packets::new(&datagram, codec::heph::MAX_PACKET_BYTES);
    let mut count = 0;
    while let Some(message) = packets.next_with(Message::decode) {
        count += match message.expect("a packet") {
            Message::Run(run) => run.count as usize,
            _ => 1,
        };
    }
    assert_eq!(count, events.0.len() + 1);
}
