//! Damaged packets and files: every truncation is an error, no mutation panics, and what decodes is valid.

use codec::{
    atf::{DetailReader, IndexReader, Integrity, Manifest},
    heph::{MAX_PACKET_BYTES, Packet, Packets},
    profile::Message,
};
use quickcheck::{Arbitrary, Gen};

use crate::fixtures::{encoded, golden, golden_packets};

#[test]
fn every_truncation_of_a_golden_packet_is_an_error() {
    for (name, packet) in golden_packets() {
        for length in 0..packet.len() {
            let cut = &packet[..length];
            assert!(Packet::decode(cut).is_err(), "{name} cut to {length} bytes");
            assert!(Message::decode(cut).is_err(), "{name} cut to {length} bytes, read by the profile");
            let in_datagram: Vec<_> = Packets::new(cut, MAX_PACKET_BYTES).collect();
            assert!(length == 0 || in_datagram.iter().any(Result::is_err), "{name} cut to {length} in a datagram");
        }
    }
}

/// With a size that fits what is left, the cut goes through the contents.
#[test]
fn a_truncation_that_hides_itself_is_an_error_or_another_valid_packet() {
    for (name, packet) in golden_packets() {
        for length in 8..packet.len() {
            let mut cut = packet[..length].to_vec();
            cut[4..8].copy_from_slice(&(length as u32).to_be_bytes());
            check_decoded(&cut);
            if name.starts_with("option-") && name != "option-unknown.hex" {
                let good = matches!(Message::decode(&cut), Ok(Message::Option(_)));
                assert!(!good, "{name} cut to {length}: no field may be missing");
            }
        }
    }
}

#[test]
fn no_mutation_of_a_golden_packet_panics() {
    let goldens = golden_packets();
    let mut g = Gen::new(10);
    for _ in 0..50_000 {
        let (_, packet) = g.choose(&goldens).expect("there are some");
        let mut packet = packet.clone();
        for _ in 0..1 + usize::arbitrary(&mut g) % 4 {
            let at = usize::arbitrary(&mut g) % packet.len();
            packet[at] = u8::arbitrary(&mut g);
        }
        check_decoded(&packet);
    }
}

/// What is valid is valid alone: nothing behind the packet has a say, and it encodes to the same bytes.
fn check_decoded(packet: &[u8]) {
    let decoded = Packet::decode(packet);
    match &decoded {
        Ok(value) => assert_eq!(encoded(value), packet),
        Err(error) => assert!(error.offset() <= packet.len(), "{error} lies in the packet"),
    }
    match Message::decode(packet) {
        Ok(message) => assert_eq!(Message::decode(&encoded(&message)), Ok(message)),
        Err(error) => assert!(error.offset() <= packet.len(), "{error} lies in the packet"),
    }
    let mut followed = packet.to_vec();
    followed.extend([0xee; 50]);
    let framed = Packets::new(&followed, MAX_PACKET_BYTES).next().expect("there are bytes");
    match (decoded, framed) {
        (Ok(alone), Ok(framed)) => assert_eq!(alone, framed),
        (Ok(alone), Err(error)) => panic!("{alone:?} depends on what follows it: {error}"),
        // The size was wrong, and with more bytes there it may be right.
        (Err(_), _) => {}
    }
}

#[test]
fn every_truncation_of_a_golden_file_is_noticed() {
    let (index, detail) = (golden("atf/index.hex"), golden("atf/detail.hex"));
    for length in 0..index.len() {
        assert_ne!(IndexReader::check_file(&index[..length]), Integrity::Intact, "index cut to {length}");
    }
    for length in 0..detail.len() {
        assert_ne!(DetailReader::check_file(&detail[..length]), Integrity::Intact, "detail cut to {length}");
    }
    let manifest = golden("atf/manifest.json");
    let end = manifest.iter().rposition(|&byte| byte == b'}').expect("JSON");
    for length in 0..=end {
        assert!(Manifest::parse(&manifest[..length]).is_err(), "manifest cut to {length}");
    }
}

#[test]
fn every_changed_bit_of_a_golden_file_is_noticed() {
    // Reserved bytes mean nothing, and those that say where events come from may say anything.
    let index_free = [6..8, 12..16, 16..24];
    let detail_free = [6..8, 8..20, 60..64];
    check_changed_bits(
        &golden("atf/index.hex"),
        |at, bit| at == 8 && bit > 0 || (9..12).contains(&at) || index_free.iter().any(|range| range.contains(&at)),
        IndexReader::check_file,
    );
    check_changed_bits(
        &golden("atf/detail.hex"),
        |at, _| detail_free.iter().any(|range| range.contains(&at)),
        DetailReader::check_file,
    );
}

/// Changes every bit up to the footer's reserved bytes. All but the free ones must be noticed.
fn check_changed_bits(file: &[u8], free: impl Fn(usize, u32) -> bool, check: fn(&[u8]) -> Integrity) {
    for (at, bit) in (0..file.len() - 24).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = file.to_vec();
        changed[at] ^= 1 << bit;
        let noticed = check(&changed) != Integrity::Intact;
        assert_ne!(noticed, free(at, bit), "bit {bit} of byte {at}");
    }
}
