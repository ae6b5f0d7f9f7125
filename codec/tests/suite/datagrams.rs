//! Datagrams: whole packets to the end, or what was good and one error.

use codec::heph::{DecodeError, MAX_PACKET_BYTES, Packet, Packets};

use crate::fixtures::{golden, golden_packets};

#[test]
fn a_datagram_yields_its_packets_in_order() {
    let goldens = golden_packets();
    let datagram: Vec<u8> = goldens.iter().flat_map(|(_, packet)| packet.clone()).collect();
    let mut packets = Packets::new(&datagram, MAX_PACKET_BYTES);
    for (name, packet) in &goldens {
        assert_eq!(packets.next(), Some(Packet::decode(packet)), "{name}");
    }
    assert_eq!(packets.remaining_bytes(), 0);
    assert_eq!(packets.next(), None);
    assert_eq!(Packets::new(&[], MAX_PACKET_BYTES).next(), None, "an empty datagram has none");
}

#[test]
fn a_datagram_that_goes_bad_yields_what_was_good_and_one_error() {
    let good = golden("packets/function-call.hex");
    let size = good.len();
    let with = |bad: &[u8]| [&good[..], bad, &good[..]].concat();
    let mut bad_inside = good.clone();
    bad_inside[size - 9] = 0x80;
    let cases: [(Vec<u8>, &str); 5] = [
        (with(b"garbage!"), "magic at byte 75: expected 0x75D11D4D (metadata) or 0xC1FC1FB7 (event), found 0x67617262"),
        (with(&bad_inside), "attribute type at byte 141: expected an element type beside the array marker 0x80"),
        (with(b"\xc1\xfc\x1f\xb7\xff\0\0\0"), "size at byte 79: expected at most 1048576, found 4278190080"),
        ([&good[..], &good[..50]].concat(), "packet at byte 75: expected 75 bytes, found 50"),
        ([&good[..], b"abc"].concat(), "expected the end at byte 75, found 3 more bytes"),
    ];
    for (datagram, message) in cases {
        let mut packets = Packets::new(&datagram, MAX_PACKET_BYTES);
        assert_eq!(packets.next(), Some(Packet::decode(&good)));
        let error = packets.next().expect("an error").expect_err("an error");
        assert_eq!(error.to_string(), message);
        assert_eq!(packets.remaining_bytes(), datagram.len() - size, "all bytes behind the good packet are lost");
        assert_eq!(packets.next(), None, "one error, and then the end");
    }
}

#[test]
fn the_limit_is_the_callers() {
    let packet = golden("packets/function-call.hex");
    assert!(matches!(Packets::new(&packet, 75).next(), Some(Ok(_))));
    let refused = Packets::new(&packet, 74).next();
    assert_eq!(refused, Some(Err(DecodeError::SizeAboveLimit { offset: 4, limit: 74, found: 75 })));
}
