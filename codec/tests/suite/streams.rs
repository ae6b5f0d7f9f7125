//! Streams: packets however they are cut into reads, and found again after bytes that are none.

use std::cell::Cell;

use codec::heph::{MAX_PACKET_BYTES, Packet, Step, StreamDecoder};
use quickcheck::{Arbitrary, Gen, quickcheck};

use crate::fixtures::{call, encoded, golden, golden_packets};

/// Feeds `stream` to a decoder in reads of these lengths, over and over. Returns the packets it found and how
/// many bytes it skipped.
pub(crate) fn decode(stream: &[u8], reads: &[usize]) -> (Vec<Vec<u8>>, u64) {
    let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
    let (mut packets, mut skipped, mut consumed, mut there) = (Vec::new(), 0, 0, 0);
    let mut reads = reads.iter().cycle();
    loop {
        let input = &stream[consumed..there];
        match decoder.step(input, there == stream.len()) {
            Step::Packet { packet, bytes } => {
                assert_eq!(Packet::decode(bytes), Ok(packet));
                packets.push(bytes.to_vec());
                consumed += bytes.len();
            }
            Step::Skip { bytes, .. } => {
                assert!(bytes > 0 && bytes <= input.len());
                skipped += bytes as u64;
                consumed += bytes;
            }
            Step::More { needed } => {
                assert!(needed > input.len(), "it asks for more than it has");
                if there == stream.len() {
                    assert!(input.is_empty(), "at the end nothing is left");
                    break;
                }
                there = stream.len().min(there + 1.max(*reads.next().expect("a read")));
            }
        }
    }
    assert_eq!(skipped, decoder.skipped_bytes());
    let found: usize = packets.iter().map(Vec::len).sum();
    assert_eq!(found as u64 + skipped, stream.len() as u64, "every byte is a packet's or skipped");
    (packets, skipped)
}

/// Golden packets with noise between some of them, and how they are read.
#[derive(Debug, Clone)]
struct NoisyStream {
    stream: Vec<u8>,
    packets: Vec<Vec<u8>>,
    noise: u64,
    reads: Vec<usize>,
}

impl Arbitrary for NoisyStream {
    fn arbitrary(g: &mut Gen) -> Self {
        let goldens = golden_packets();
        let (mut stream, mut packets, mut noise) = (Vec::new(), Vec::new(), 0);
        for _ in 0..usize::arbitrary(g) % 12 {
            if bool::arbitrary(g) {
                let bytes = Vec::<u8>::arbitrary(g);
                noise += bytes.len() as u64;
                stream.extend(bytes);
            }
            let (_, packet) = g.choose(&goldens).expect("there are some");
            stream.extend(packet);
            packets.push(packet.clone());
        }
        let reads = (0..5).map(|_| 1 + usize::arbitrary(g) % 200).collect();
        Self { stream, packets, noise, reads }
    }
}

quickcheck! {
    fn packets_are_found_between_noise_however_they_are_read(noisy: NoisyStream) -> bool {
        decode(&noisy.stream, &noisy.reads) == (noisy.packets, noisy.noise)
    }
}

#[test]
fn a_clean_stream_is_read_byte_by_byte() {
    let packets: Vec<_> = golden_packets().into_iter().map(|(_, packet)| packet).collect();
    assert_eq!(decode(&packets.concat(), &[1]), (packets, 0));
}

/// Whether nothing in the stream contradicts a packet of `size` bytes of which only `there` are its own, before
/// packets of `next` bytes: it ends where one of those ends, or has swallowed less than a magic constant.
fn goes_unnoticed(size: usize, there: usize, next: usize) -> bool {
    size >= there && ((size - there).is_multiple_of(next) || size - there < 4)
}

#[test]
fn half_a_packet_between_two_costs_only_itself() {
    let good = golden("packets/function-call.hex");
    for (name, cut) in golden_packets() {
        for length in (1..cut.len()).filter(|&length| !goes_unnoticed(cut.len(), length, good.len())) {
            let stream = [&good[..], &cut[..length], &good, &good, &good, &good].concat();
            let expected = vec![good.clone(); 5];
            assert_eq!(decode(&stream, &[usize::MAX >> 1]), (expected, length as u64), "{name} cut to {length}");
        }
    }
}

#[test]
fn a_wrong_size_costs_no_other_packet() {
    let good = golden("packets/function-call.hex");
    for (name, packet) in golden_packets() {
        let sizes = [42, 70, 74, 76, 149, 151, 400, 1000, 30_000, 1 << 20].into_iter();
        for wrong in sizes.filter(|&wrong| !goes_unnoticed(wrong, packet.len(), good.len())) {
            let mut bad = packet.clone();
            bad[4..8].copy_from_slice(&(wrong as u32).to_be_bytes());
            let stream = [&good[..], &bad, &good.repeat(500)].concat();
            let (mut found, _) = decode(&stream, &[usize::MAX >> 1]);
            // With too small a size it may itself be taken for a shorter packet.
            found.retain(|packet| packet[..] != bad[..wrong.min(bad.len())]);
            assert_eq!(found.len(), 501, "{name} of size {wrong}");
            assert!(found.iter().all(|packet| *packet == good), "{name} of size {wrong}");
        }
    }
}

/// The decoder looks at what is behind a packet, but waits for it only where it matters.
#[test]
fn a_packet_is_not_held_back_for_the_next_one() {
    for (name, packet) in golden_packets() {
        // Whatever it ends with: a magic constant that has only begun is none.
        for end in [&b"\x75"[..], b"\xc1", b"\xc1\xfc\x1f"] {
            let mut packet = packet.clone();
            let start = packet.len() - end.len();
            packet[start..].copy_from_slice(end);
            let held = matches!(StreamDecoder::new(MAX_PACKET_BYTES).step(&packet, false), Step::More { .. });
            assert_eq!(held, Packet::decode(&packet).is_err(), "{name} ending in {end:x?}");
        }
    }
}

/// A packet that waits for what follows it is not decoded again for every byte that comes.
#[test]
fn dribbled_streams_take_linear_work() {
    // A good packet, with heads inside of packets that go on behind it, each a byte further than the one before.
    let words = 20_000;
    let mut outer = b"\xc1\xfc\x1f\xb7\0\0\0\0".to_vec();
    outer.extend([0; 34]);
    outer.extend(b"\0\0\x81");
    outer.extend((words as u16).to_be_bytes());
    let start = outer.len();
    outer.extend(vec![0; 8 * words]);
    let size = outer.len();
    outer[4..8].copy_from_slice(&(size as u32).to_be_bytes());
    for head in 0..1000 {
        let at = start + 8 * (words - 10 * (1000 - head));
        outer[at..at + 4].copy_from_slice(b"\xc1\xfc\x1f\xb7");
        outer[at + 4..at + 8].copy_from_slice(&((size - at + 8 + head) as u32).to_be_bytes());
    }
    assert!(Packet::decode(&outer).is_ok());
    let stream = [outer, vec![0xee; 3000]].concat();
    let work = Cell::new(0);
    let count = |packet| {
        let decoded = Packet::decode(packet);
        work.set(work.get() + decoded.map_or_else(|error| error.offset(), |_| packet.len()));
        decoded
    };
    let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
    for there in size..stream.len() {
        if let Step::Packet { bytes, .. } = decoder.step_with(&stream[..there], false, count) {
            assert_eq!(bytes.len(), size);
            let work = work.get() / stream.len();
            assert!(work < 32, "each byte was decoded {work} times");
            return;
        }
    }
    panic!("the packet is good, and nothing inside it is");
}

#[test]
fn a_stack_that_holds_a_packet_is_a_stack() {
    let inner = golden("packets/function-call.hex");
    let words: Vec<_> = inner.chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().unwrap())).collect();
    let detail = Some(codec::profile::Detail::new(&[0; 11], &words));
    let event = codec::profile::FunctionEvent { detail, ..call() };
    let packet = encoded(&event);
    for reads in [1, 7, 100_000] {
        assert_eq!(decode(&packet.repeat(3), &[reads]), (vec![packet.clone(); 3], 0));
    }
}

/// A traced program's stack may hold anything, packets included.
#[test]
fn a_packet_inside_a_bad_packet_is_not_taken_for_one() {
    let inner = golden("packets/function-call.hex");
    let mut outer = b"\xc1\xfc\x1f\xb7\0\0\0\0".to_vec();
    outer.extend([0; 34]);
    outer.extend(b"\0\x01x\x04");
    outer.extend((inner.len() as u16).to_be_bytes());
    outer.extend(&inner);
    outer.extend(b"\0\x01y\x80\0\0");
    let size = outer.len() as u32;
    outer[4..8].copy_from_slice(&size.to_be_bytes());
    assert!(Packet::decode(&outer).is_err());

    let good = golden("packets/function-return.hex");
    let (packets, skipped) = decode(&[&outer[..], &good].concat(), &[7]);
    assert_eq!((packets, skipped), (vec![good], outer.len() as u64));
    assert_eq!(decode(&outer, &[7]), (vec![], outer.len() as u64), "not at the end of the stream either");
}

#[test]
fn a_stream_waits_for_no_more_than_the_limit() {
    let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
    let four_gigabytes = b"\xc1\xfc\x1f\xb7\xff\xff\xff\xff";
    assert!(matches!(decoder.step(four_gigabytes, false), Step::Skip { bytes: 8, .. }));
    let one_megabyte = b"\xc1\xfc\x1f\xb7\0\x10\0\0";
    assert_eq!(decoder.step(one_megabyte, false), Step::More { needed: 1 << 20 });
}

/// Packets inside packets, each going on for a megabyte before it turns out bad, or good with nothing behind it:
/// the worst a sender can do.
#[test]
fn hostile_streams_take_linear_work() {
    for size in [0x000f_fffe_u32, 42 + 53 * 19_700] {
        // An array whose last bytes are the head of an event that goes on with the next array.
        let mut block = b"\0\0\x81\0\x06\0\0\0\0\0\0\xc1\xfc\x1f\xb7".to_vec();
        block.extend(size.to_be_bytes());
        block.extend([0; 34]);
        let stream: Vec<u8> = block.iter().copied().cycle().take(6 << 20).collect();
        let work = Cell::new(0);
        let count = |packet| {
            let decoded = Packet::decode(packet);
            work.set(work.get() + decoded.map_or_else(|error| error.offset(), |_| packet.len()));
            decoded
        };
        let (mut decoder, mut consumed) = (StreamDecoder::new(MAX_PACKET_BYTES), 0);
        while consumed < stream.len() {
            match decoder.step_with(&stream[consumed..], true, count) {
                Step::Packet { bytes, .. } => consumed += bytes.len(),
                Step::Skip { bytes, .. } => consumed += bytes,
                Step::More { needed } => panic!("{needed} more bytes at the end"),
            }
        }
        let work = work.get() / stream.len();
        assert!(work < 32, "each byte was decoded {work} times, with packets of {size} bytes");
    }
}
