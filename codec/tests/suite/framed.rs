//! The same streams through the `tokio_util` codec.

use bytes::{Bytes, BytesMut};
use codec::heph::{Frame, HephCodec, Packet, PacketBuf};
use tokio_util::codec::{Decoder, Encoder};

use crate::fixtures::{golden, golden_packets};

#[test]
fn packets_and_skipped_bytes_come_in_order() {
    let call = golden("packets/function-call.hex");
    let mut input = BytesMut::from(&[&call[..], b"noise", &call, &call[..20]].concat()[..]);
    let mut codec = HephCodec::default();
    let packet = |item| match item {
        Ok(Some(Frame::Packet(packet))) => packet,
        other => panic!("expected a packet, found {other:?}"),
    };
    assert_eq!(packet(codec.decode(&mut input)).bytes(), &call);
    assert!(matches!(codec.decode(&mut input), Ok(Some(Frame::Skipped { bytes: 5, .. }))));
    let second = packet(codec.decode(&mut input));
    assert_eq!(Ok(second.packet()), Packet::decode(&call));
    assert!(matches!(codec.decode(&mut input), Ok(None)), "the third is not whole yet");
    assert!(matches!(codec.decode_eof(&mut input), Ok(Some(Frame::Skipped { bytes: 20, .. }))));
    assert!(matches!(codec.decode_eof(&mut input), Ok(None)));
    assert_eq!(codec.skipped_bytes(), 25);
}

#[test]
fn what_is_encoded_is_decoded() {
    let mut codec = HephCodec::default();
    let mut stream = BytesMut::new();
    for (_, packet) in golden_packets() {
        codec.encode(Packet::decode(&packet).expect("golden"), &mut stream).expect("valid");
    }
    for (name, packet) in golden_packets() {
        let expected = PacketBuf::new(Bytes::from(packet)).expect("golden");
        assert_eq!(codec.decode(&mut stream).expect("never fails"), Some(Frame::Packet(expected)), "{name}");
    }
    assert!(stream.is_empty());
}

#[test]
fn a_packet_buffer_holds_only_packets() {
    assert!(PacketBuf::new(Bytes::from_static(b"no packet")).is_err());
}
