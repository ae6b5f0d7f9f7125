//! What the fuzz targets do with their input. The ordinary tests run the same functions on mutated goldens.
//!
//! Each panics where something that users rely on does not hold.

use codec::{
    atf::{DetailReader, EDGE_BYTES, IndexReader, Integrity, Manifest, Sealed, ThreadReader},
    heph::{Encode, MAX_PACKET_BYTES, Packet, Packets, Step, StreamDecoder},
    profile::{Message, RunEncoder, RunEvent},
};

/// A byte stream: every byte is a packet's or skipped, and how it was cut into reads does not matter.
pub(crate) fn stream(data: &[u8]) {
    let whole = read_stream(data, data.len().max(1));
    let pieces = read_stream(data, usize::from(data.first().copied().unwrap_or(0) % 64) + 1);
    assert_eq!(whole, pieces);
}

fn read_stream(data: &[u8], read: usize) -> (Vec<&[u8]>, u64) {
    let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
    let (mut packets, mut consumed, mut there) = (Vec::new(), 0, 0);
    loop {
        match decoder.step(&data[consumed..there], there == data.len()) {
            Step::Packet { packet, bytes } => {
                check_packet(packet, bytes);
                packets.push(bytes);
                consumed += bytes.len();
            }
            Step::Skip { bytes, .. } => consumed += bytes,
            Step::More { .. } if there == data.len() => break,
            Step::More { .. } => there = data.len().min(there + read),
        }
    }
    assert_eq!(consumed, data.len());
    let found: usize = packets.iter().map(|packet| packet.len()).sum();
    assert_eq!(found as u64 + decoder.skipped_bytes(), data.len() as u64);
    (packets, decoder.skipped_bytes())
}

/// A datagram: packets, then at most one error, then the end.
pub(crate) fn datagram(data: &[u8]) {
    let mut packets = Packets::new(data, MAX_PACKET_BYTES);
    let mut consumed = 0;
    while let Some(packet) = packets.next() {
        match packet {
            Ok(packet) => {
                let size = packet.encoded_len().expect("it was decoded");
                check_packet(packet, &data[consumed..consumed + size]);
                consumed += size;
            }
            Err(error) => {
                assert!((consumed..=data.len()).contains(&error.offset()));
                assert!(packets.next().is_none());
            }
        }
    }
    assert_eq!(packets.remaining_bytes(), data.len() - consumed);
}

/// A packet encodes to the bytes it was decoded from, and a message to the same message.
fn check_packet(packet: Packet<'_>, bytes: &[u8]) {
    let mut again = Vec::new();
    packet.encode(&mut again).expect("what was decoded can be encoded");
    assert_eq!(again, bytes);
    if let Ok(message) = Message::decode(bytes) {
        again.clear();
        message.encode(&mut again).expect("what was decoded can be encoded");
        assert_eq!(Message::decode(&again), Ok(message));
    }
}

/// A run: it can be read to its end, and its events written again are the same events.
pub(crate) fn run(data: &[u8]) {
    let Ok(Message::Run(run)) = Message::decode(data) else { return };
    let events: Vec<_> = run.function_events().collect();
    assert_eq!(events.len(), run.count as usize);
    let (mut again, mut at) = (Vec::new(), 0);
    while let Some(first) = events.get(at) {
        again.clear();
        let Some(packable) = RunEvent::of(first) else {
            // It lasted longer than a run can say.
            first.encode(&mut again).expect("what was decoded can be encoded");
            assert_eq!(Message::decode(&again), Ok(Message::Function(*first)));
            at += 1;
            continue;
        };
        let mut encoder = RunEncoder::begin(&first.stamp, &packable, usize::MAX, &mut again);
        let rest = events[at..].iter().map_while(RunEvent::of);
        let count = rest.take_while(|event| encoder.push(event, &mut again)).count();
        encoder.finish(&mut again);
        let Ok(Message::Run(other)) = Message::decode(&again) else { panic!("{first:?} does not fit an empty run") };
        assert_eq!(other.function_events().collect::<Vec<_>>(), events[at..at + count]);
        at += count;
    }
}

/// An index file: whatever can be read can be repaired to an intact file with the same events.
pub(crate) fn index(data: &[u8]) {
    let integrity = IndexReader::check_file(data);
    let Ok(reader) = IndexReader::open(data) else {
        assert_ne!(integrity, Integrity::Intact);
        return;
    };
    assert_eq!(reader.events().count(), reader.len() as usize);
    assert!(reader.get(reader.len()).is_none());
    match reader.resume() {
        Ok(writer) => {
            let repaired = finish(data, writer.written_bytes(), writer.seal());
            assert_eq!(IndexReader::check_file(&repaired), Integrity::Intact);
            assert!(IndexReader::open(&repaired).expect("intact").events().eq(reader.events()));
        }
        Err(_) => assert!(matches!(integrity, Integrity::Corrupt(_))),
    }
}

/// A detail file: the same, and every event can be reached by its position.
pub(crate) fn detail(data: &[u8]) {
    let integrity = DetailReader::check_file(data);
    let Ok(reader) = DetailReader::open(data) else {
        assert_ne!(integrity, Integrity::Intact);
        return;
    };
    assert_eq!(reader.events().count() as u64, reader.len());
    for (position, event) in (0..).zip(reader.events()) {
        assert_eq!(reader.get(position), Some(event));
    }
    match reader.resume(u64::MAX) {
        Ok(writer) => {
            let repaired = finish(data, writer.written_bytes(), writer.seal());
            assert_eq!(DetailReader::check_file(&repaired), Integrity::Intact);
            assert!(DetailReader::open(&repaired).expect("intact").events().eq(reader.events()));
        }
        Err(_) => assert!(matches!(integrity, Integrity::Corrupt(_))),
    }
    // The links of any detail file to any index: followed without harm.
    let index = IndexReader::open(EMPTY_INDEX).expect("a header");
    let _ = ThreadReader { index, detail: Some(reader) }.check_links();
}

/// The header of an index file that has just been started.
const EMPTY_INDEX: &[u8; EDGE_BYTES] = b"ATI2\x01\x01\x01\x04\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\
    \x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// A manifest: what can be read can be written and read again.
pub(crate) fn manifest(data: &[u8]) {
    if let Ok(manifest) = Manifest::parse(data) {
        let _ = manifest.check();
        let json = manifest.to_json().expect("it was read");
        assert_eq!(Manifest::parse(&json).expect("it was written"), manifest);
    }
}

fn finish(data: &[u8], written_bytes: u64, mut sealed: Sealed) -> Vec<u8> {
    let mut file = std::io::Cursor::new(data[..written_bytes as usize].to_vec());
    sealed.write_to(&mut file).expect("memory");
    file.into_inner()
}
