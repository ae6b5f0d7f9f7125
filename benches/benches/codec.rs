//! The hot paths of the codec: `cargo bench -p benches --bench codec`.

use std::{hint::black_box, io};

use benches::{
    Table, Work,
    load::{function_event, stamp},
};
use codec::{
    Arch, ClockKind, ClockNs, EventKind, FunctionId, ModuleId, Os,
    atf::{
        DetailBody, DetailReader, EDGE_BYTES, FunctionDetail, IndexEvent, IndexReader, IndexWriter, Integrity, Origin,
        ThreadWriter,
    },
    heph::{Encode, MAX_PACKET_BYTES, Packets, Step, StreamDecoder},
    profile::{Detail, FunctionEvent, Message, Registers, RunEncoder, RunEvent},
};

/// Few enough that packets and their copies stay in the caches, as they do between socket and disk.
const EVENTS: usize = 8192;

/// Enough that a file does not fit the caches, as when it is read from disk.
const MANY: usize = 16_000_000;

/// How many of them differ: values are larger than packets, and are not to be fetched from memory.
const DIFFERENT: usize = 128;

/// How large a run may get.
const DATAGRAM_BYTES: usize = 1400;

fn main() {
    let stack: Vec<u64> = (0..16).map(|word| 0x7ffd_0000_0000 + word).collect();

    let mut table = Table::start("Heph packets");
    for (name, stack) in [("index-only", None), ("full detail, 128 bytes of stack", Some(&stack[..]))] {
        let events: Vec<_> = (0..DIFFERENT).map(|at| event(at, stack)).collect();
        let mut bytes = Vec::new();
        encode_all(&events, &mut bytes);
        let work = Work { events: EVENTS, bytes: bytes.len() };
        let mut out = Vec::with_capacity(bytes.len());
        table.row(&format!("encode, {name}"), work, || {
            out.clear();
            encode_all(black_box(&events), &mut out);
            black_box(&out);
        });
        table.row(&format!("decode to function events, {name}"), work, || {
            let mut packets = Packets::new(black_box(&bytes), MAX_PACKET_BYTES);
            while let Some(message) = packets.next_with(Message::decode) {
                black_box(&message.expect("valid"));
            }
        });
        table.row(&format!("decode to plain packets, {name}"), work, || {
            for packet in Packets::new(black_box(&bytes), MAX_PACKET_BYTES) {
                black_box(&packet.expect("valid"));
            }
        });
        table.row(&format!("decode from a stream, {name}"), work, || {
            let (mut decoder, mut rest) = (StreamDecoder::new(MAX_PACKET_BYTES), black_box(&bytes[..]));
            while let Step::Packet { packet, bytes } = decoder.step_with(rest, false, Message::decode) {
                black_box(&packet);
                rest = &rest[bytes.len()..];
            }
            assert!(rest.is_empty());
        });
        let mut runs = Vec::new();
        encode_runs(&events, &mut runs);
        let work = Work { events: EVENTS, bytes: runs.len() };
        table.row(&format!("encode as runs, {name}"), work, || {
            out.clear();
            encode_runs(black_box(&events), &mut out);
            black_box(&out);
        });
        table.row(&format!("decode runs to their events, {name}"), work, || {
            let mut packets = Packets::new(black_box(&runs), MAX_PACKET_BYTES);
            while let Some(message) = packets.next_with(Message::decode) {
                let Ok(Message::Run(run)) = message else { panic!("a run") };
                run.events().for_each(|event| _ = black_box(&event));
            }
        });
    }

    let origin = Origin { arch: Arch::X86_64, os: Os::Linux, clock: ClockKind::Boottime, thread: 4711 };
    let records: Vec<_> = (0..EVENTS).map(record).collect();
    let work = Work { events: EVENTS, bytes: EVENTS * 32 };

    let mut table = Table::start("ATF on memory");
    let mut writer = IndexWriter::new(origin);
    table.row("append to an index, checksum included", work, || {
        for event in black_box(&records) {
            writer.append(event).expect("room");
        }
        writer.flush_to(&mut io::sink()).expect("a sink takes everything");
    });
    let index = {
        let mut writer = IndexWriter::new(origin);
        (0..MANY).for_each(|at| _ = writer.append(&record(at)).expect("room"));
        let mut file = io::Cursor::new(Vec::new());
        writer.seal().write_to(&mut file).expect("memory");
        file.into_inner()
    };
    let reader = IndexReader::open(&index).expect("written above");
    let work = Work { events: MANY, bytes: MANY * 32 };
    table.row("scan an index", work, || {
        let mut sum = 0;
        for event in black_box(&reader).events() {
            let event = event.expect("written above");
            sum += event.timestamp.0 ^ event.function.0 ^ u64::from(event.depth);
        }
        black_box(sum);
    });
    table.row("check an index, checksum included", work, || {
        assert_eq!(IndexReader::check_file(black_box(&index)), Integrity::Intact);
    });

    let stack: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
    let body = DetailBody::Call(FunctionDetail {
        function: FunctionId(7),
        registers: Registers::from_words(REGISTERS),
        stack: &stack,
    });
    let work = Work { events: EVENTS, bytes: EVENTS * (32 + 24 + 100 + 128) };
    let mut writer = ThreadWriter::new(origin);
    table.row("append to index and detail", work, || {
        for event in black_box(&records) {
            writer.append(event, &[body]).expect("room");
        }
        writer.flush_to(&mut io::sink(), &mut io::sink()).expect("a sink takes everything");
    });
    let detail = {
        let mut writer = ThreadWriter::new(origin);
        records.iter().for_each(|event| _ = writer.append(event, &[body]).expect("room"));
        let mut file = io::Cursor::new(Vec::new());
        writer.seal().1.expect("has details").write_to(&mut file).expect("memory");
        file.into_inner()
    };
    let work = Work { events: EVENTS, bytes: detail.len() - 2 * EDGE_BYTES };
    table.row("open a detail file", work, || {
        black_box(DetailReader::open(black_box(&detail)).expect("written above"));
    });
    let reader = DetailReader::open(&detail).expect("written above");
    table.row("scan a detail file", work, || {
        for event in black_box(&reader).events() {
            black_box(&event.expect("written above"));
        }
    });
}

/// Eight nested calls and their returns, over and over.
fn event(at: usize, stack: Option<&[u64]>) -> FunctionEvent<'_> {
    let step = at % 16;
    let (kind, depth) = if step < 8 { (EventKind::Call, step) } else { (EventKind::Return, 15 - step) };
    let call = at - step + depth;
    let time = |at: usize| 1_000_000 + 40 * at as u64;
    let function = FunctionId::new(ModuleId(2), call as u32 % 4000);
    let detail = stack.map(|stack| Detail::new(&REGISTERS, stack));
    function_event(stamp(3, at as u64, time(call), time(at)), kind, function, depth as u32, detail)
}

const REGISTERS: [u64; Registers::WORDS] = [0x5555_0000_1234; Registers::WORDS];

fn record(at: usize) -> IndexEvent {
    IndexEvent {
        timestamp: ClockNs(9_000_000 + 40 * at as u64),
        function: FunctionId::new(ModuleId(2), at as u32 % 4000),
        thread: 4711,
        kind: if at.is_multiple_of(2) { EventKind::Call } else { EventKind::Return },
        depth: at as u32 % 30,
        detail: None,
    }
}

fn encode_all(events: &[FunctionEvent<'_>], out: &mut Vec<u8>) {
    for _ in 0..EVENTS / events.len() {
        for event in events {
            event.encode(out).expect("valid");
        }
    }
}

/// The same events as runs that fit a datagram.
fn encode_runs(events: &[FunctionEvent<'_>], out: &mut Vec<u8>) {
    for _ in 0..EVENTS / events.len() {
        let mut rest = events;
        while let [first, ..] = rest {
            let limit = out.len() + DATAGRAM_BYTES;
            let packable = RunEvent::of(first).expect("it fits a run");
            let mut run = RunEncoder::begin(&first.stamp, &packable, limit, out);
            let fitting = rest.iter().map_while(RunEvent::of).take_while(|event| run.push(event, out)).count();
            run.finish(out);
            rest = &rest[fitting.max(1)..];
        }
    }
}
