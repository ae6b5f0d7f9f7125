//! A run is worth what the single packets that it stands for are worth.

use codec::{
    Counter, EventKind, FunctionId, ModuleId, SessionNs, StreamId, SubstreamId,
    heph::{Attributes, Encode, Event, Packet, Packets, Stamp},
    profile::{Detail, FunctionEvent, MAX_STACK_WORDS, Message, Run, RunEncoder, RunEvent},
};
use quickcheck::{Arbitrary, Gen, quickcheck};

use crate::generate::{AnyMessage, function_event};

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
            let mut out = Vec::new();
            event.encode(&mut out).expect("it fits");
            packets.push(out);
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
            let mut again = Vec::new();
            Message::decode(packet).expect("it was encoded").encode(&mut again).expect("it fits");
            again == *packet
        })
    }

    fn any_function_event_fits_a_run_or_says_that_it_does_not(message: AnyMessage) -> bool {
        let Message::Function(event) = message.0 else { return true };
        packed(&[event], 1_200).iter().flat_map(|packet| unpacked(packet)).eq([event])
    }

    fn any_words_are_a_plain_event_or_a_run_that_reads_to_its_end(words: Vec<u64>, depth: u64, start: u64) -> bool {
        let attributes = [
            codec::heph::Attribute { name: "depth", value: codec::heph::Value::U64(depth) },
            codec::heph::Attribute { name: "events", value: codec::heph::Value::U64s(words.as_slice().into()) },
        ];
        let stamp = Stamp { start: SessionNs(start), ..Stamp::default() };
        let mut packet = Vec::new();
        Event { stamp, description: "run", attributes: (&attributes).into() }.encode(&mut packet).expect("it fits");
        match Message::decode(&packet).expect("it is Heph") {
            Message::Run(run) => run.events().count() == run.count as usize && run.count > 0,
            Message::Event(_) => true,
            _ => false,
        }
    }
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
            let mut reversed = Vec::new();
            Event { attributes: attributes.as_slice().into(), ..event }.encode(&mut reversed).expect("it fits");
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
    let single = function_event(&mut g);
    single.encode(&mut datagram).expect("it fits");
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
