//! Decoding allocates nothing, and encoding and appending nothing once their buffers are warm.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint::black_box,
};

use codec::{
    Arch, ClockKind, ClockNs, EventKind, FunctionId, Os,
    atf::{DetailBody, FunctionDetail, IndexEvent, Origin, ThreadWriter},
    heph::{Attribute, Encode, Event, MAX_PACKET_BYTES, Packet, Packets, Value},
    profile::{
        Detail, FunctionEvent, Message, ProfileOption, Progress, Registers, RunEncoder, RunEvent, StreamPosition,
    },
};

/// The system's allocator, counting what this thread asks of it.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments, under the caller's promises.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller of `alloc` promises what `System.alloc` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` allocates.
fn allocations(work: impl FnOnce()) -> usize {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

/// One packet of each sort, with every shape of attribute.
fn packets() -> Vec<u8> {
    let mut bytes = Vec::new();
    let function = FunctionEvent {
        stamp: Default::default(),
        kind: EventKind::Call,
        function: Some(FunctionId(1)),
        ip: None,
        depth: 1,
        detail: Some(Detail::new(&[0; Registers::WORDS], &[1; 16])),
        extra: Default::default(),
    };
    function.encode(&mut bytes).expect("valid");
    FunctionEvent { detail: None, ip: Some(1), ..function }.encode(&mut bytes).expect("valid");
    let attributes = [
        Attribute { name: "a", value: Value::Str("text") },
        Attribute { name: "b", value: Value::Strs((&["x", "yz"]).into()) },
        Attribute { name: "c", value: Value::F64s((&[1.0, 2.0]).into()) },
    ];
    for description in ["anything", "swift_job_run"] {
        let event = Event { stamp: Default::default(), description, attributes: (&attributes).into() };
        event.encode(&mut bytes).expect("valid");
    }
    let streams = [StreamPosition { stream: Default::default(), next: Default::default() }; 3];
    let progress = Progress { now: Default::default(), streams: (&streams).into() };
    ProfileOption::from(progress).encode(&mut bytes).expect("valid");
    bytes
}

#[test]
fn decoding_allocates_nothing() {
    let bytes = packets();
    let count = allocations(|| {
        let mut packets = Packets::new(&bytes, MAX_PACKET_BYTES);
        while let Some(message) = packets.next_with(Message::decode) {
            black_box(message.expect("valid"));
        }
        for packet in Packets::new(&bytes, MAX_PACKET_BYTES) {
            if let Ok(Packet::Event(event)) = packet {
                event.attributes.iter().for_each(|attribute| _ = black_box(attribute));
            }
        }
    });
    assert_eq!(count, 0);
    assert_eq!(allocations(|| _ = black_box(vec![1])), 1, "the count counts");
}

#[test]
fn encoding_into_a_warm_buffer_allocates_nothing() {
    let bytes = packets();
    let mut out = Vec::with_capacity(bytes.len());
    let count = allocations(|| {
        for packet in Packets::new(&bytes, MAX_PACKET_BYTES) {
            packet.expect("valid").encode(&mut out).expect("valid");
        }
        out.clear();
        let mut packets = Packets::new(&bytes, MAX_PACKET_BYTES);
        while let Some(message) = packets.next_with(Message::decode) {
            message.expect("valid").encode(&mut out).expect("valid");
        }
    });
    assert_eq!((count, out), (0, bytes));
}

#[test]
fn runs_allocate_nothing_beyond_the_buffer_they_are_written_to() {
    let registers = [7; Registers::WORDS];
    let time = |number: u32| codec::SessionNs(u64::from(number) + (u64::from(number / 9) << 34));
    let event = |number: u32| RunEvent {
        kind: EventKind::Call,
        depth: number % 100,
        // Every word and every prefix.
        function: (!number.is_multiple_of(5)).then_some(FunctionId(u64::from(number % 3) << 40)),
        ip: 7,
        start: time(number),
        end: time(number),
        detail: number.is_multiple_of(7).then_some(Detail::new(&registers, &registers)),
    };
    let mut out = Vec::with_capacity(1 << 20);
    let encode = |out: &mut Vec<u8>| {
        let mut encoder = RunEncoder::begin(&Default::default(), &event(0), usize::MAX, out);
        let count = (0..1000).filter(|number| encoder.push(&event(*number), out)).count();
        encoder.finish(out);
        count
    };
    let mut pushed = 0;
    assert_eq!(allocations(|| pushed = encode(&mut out)), 0);
    assert_eq!(pushed, 1000);
    let mut decoded = 0;
    let count = allocations(|| {
        let Ok(Message::Run(run)) = Message::decode(black_box(&out)) else { panic!("a run") };
        decoded = run.function_events().inspect(|event| _ = black_box(event)).count();
    });
    assert_eq!((count, decoded), (0, pushed));
}

#[test]
fn appending_to_a_warm_file_allocates_nothing() {
    let origin = Origin { arch: Arch::X86_64, os: Os::Linux, clock: ClockKind::Boottime, thread: 1 };
    let event = IndexEvent {
        timestamp: ClockNs(1),
        function: FunctionId(1),
        thread: 1,
        kind: EventKind::Call,
        depth: 0,
        detail: None,
    };
    let body =
        DetailBody::Call(FunctionDetail { function: FunctionId(1), registers: Registers::default(), stack: &[7; 128] });
    let mut writer = ThreadWriter::new(origin);
    let mut round = || {
        (0..100).for_each(|_| _ = writer.append(&event, &[body]).expect("room"));
        writer.flush_to(&mut std::io::sink(), &mut std::io::sink()).expect("a sink takes everything");
    };
    round();
    round();
    assert_eq!(allocations(round), 0);
}
