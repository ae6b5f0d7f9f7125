//! Each way of being wrong has an error of its own, which names the field, the place and what was expected.

use std::collections::HashSet;

use bytes::BufMut;
use codec::{
    SessionId, SessionNs,
    heph::{
        Attribute, Encode, EncodeError, Event, List, MAX_PACKET_BYTES, Metadata, Packet, Packets, Value, packet_size,
    },
    profile::{
        Birth, BirthKind, Detail, FunctionEvent, FunctionName, Known, Message, ProfileOption, Registers, RuntimeEvent,
        Thread,
    },
};

use crate::fixtures::{call, encoded};

/// An event packet with an empty description and these bytes behind it.
fn event(attributes: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xc1, 0xfc, 0x1f, 0xb7];
    packet.extend((42 + attributes.len() as u32).to_be_bytes());
    packet.extend([0; 34]);
    packet.extend(attributes);
    packet
}

/// A metadata packet with these bytes behind its size.
fn metadata(rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x75, 0xd1, 0x1d, 0x4d];
    packet.extend((8 + rest.len() as u32).to_be_bytes());
    packet.extend(rest);
    packet
}

#[test]
fn each_fault_has_its_own_error() {
    let mut small = event(b"");
    small[7] = 41;
    let cases: [(Vec<u8>, &str); 19] = [
        (event(b"")[..20].into(), "packet at byte 0: expected 42 bytes, found 20"),
        (b"\xc1".into(), "packet at byte 0: expected 8 bytes, found 1"),
        (
            b"HTTP/1.1 200 OK".into(),
            "magic at byte 0: expected 0x75D11D4D (metadata) or 0xC1FC1FB7 (event), found 0x48545450",
        ),
        (small, "size at byte 4: expected at least 42, found 41"),
        (b"\x75\xd1\x1d\x4d\0\0\0\x09\0".into(), "size at byte 4: expected at least 10, found 9"),
        ([&event(b"")[..], b"abc"].concat(), "expected the end at byte 42, found 3 more bytes"),
        (event(b"\0\0\x04\0"), "expected the end at byte 42, found 4 more bytes"),
        (event(b"\0\x09name\x01"), "attribute name at byte 44: expected a string of 9 bytes, 5 left in the packet"),
        (
            event(b"\0\x01x\x04\0\x09text"),
            "attribute value at byte 48: expected a string of 9 bytes, 4 left in the packet",
        ),
        (metadata(b"\0\x05"), "option name at byte 10: expected a string of 5 bytes, 0 left in the packet"),
        (event(b"\0\x01x\x01\0\0\0\0"), "attribute value at byte 46: expected 8 bytes, 4 left in the packet"),
        (
            event(b"\0\x01x\x81\xff\xff\0\0\0\0"),
            "attribute value at byte 48: expected 524280 bytes, 4 left in the packet",
        ),
        (event(b"\0\x03ab\xff\x01\0\0\0\0\0\0\0\0"), "attribute name at byte 46: expected UTF-8"),
        (event(b"\0\x01x\x84\0\x02\0\x01a\0\x01\xff"), "attribute value at byte 53: expected UTF-8"),
        (metadata(b"\0\x01\xc0"), "option name at byte 10: expected UTF-8"),
        (
            event(b"\0\x01x\x05\0\0"),
            "attribute type at byte 45: expected 1 to 4, or 0x81 to 0x84 for arrays, found 0x05",
        ),
        (
            event(b"\0\x01x\x85\0\0"),
            "attribute type at byte 45: expected 1 to 4, or 0x81 to 0x84 for arrays, found 0x85",
        ),
        (event(b"\0\x01x\x80\0\0"), "attribute type at byte 45: expected an element type beside the array marker 0x80"),
        (
            event(b"\0\x01x\x80\x81\0\0"),
            "attribute type at byte 45: expected no array of arrays, found 0x80 before 0x81",
        ),
    ];
    let mut variants = HashSet::new();
    for (packet, message) in &cases {
        let error = Packet::decode(packet).expect_err("it is not valid");
        assert_eq!(error.to_string(), *message);
        variants.insert(std::mem::discriminant(&error));
    }
    assert_eq!(variants.len(), 10, "one for each kind of fault");
}

#[test]
fn a_packet_of_the_other_kind_is_not_this_kind() {
    let error = Event::decode(&metadata(b"\0\0")).expect_err("it is metadata");
    assert_eq!(error.to_string(), "magic at byte 0: expected 0xC1FC1FB7 (event), found 0x75D11D4D");
    let error = Metadata::decode(&event(b"")).expect_err("it is an event");
    assert_eq!(error.to_string(), "magic at byte 0: expected 0x75D11D4D (metadata), found 0xC1FC1FB7");
}

#[test]
fn a_size_above_the_limit_is_known_from_the_first_eight_bytes() {
    let head = b"\xc1\xfc\x1f\xb7\xff\xff\xff\xff";
    let error = packet_size(head, MAX_PACKET_BYTES).expect_err("four gigabytes");
    assert_eq!(error.to_string(), "size at byte 4: expected at most 1048576, found 4294967295");
    assert_eq!(packet_size(&head[..7], MAX_PACKET_BYTES), Ok(None));
    assert_eq!(packet_size(b"\xc1\xfc\x1f\xb7\0\x10\0\0", MAX_PACKET_BYTES), Ok(Some(1 << 20)));
    assert!(packet_size(b"\xc1\xfc\x1f\xb7\0\x10\0\x01", MAX_PACKET_BYTES).is_err());
}

#[test]
fn an_option_of_another_layout_is_kept_with_what_is_wrong() {
    let thread =
        Thread { stream: Default::default(), os_id: 1, start: Default::default(), end: None, creator: None, name: "n" };
    let mut packet = encoded(&ProfileOption::from(thread));
    let offset_of_end = 8 + 2 + 6 + 4 + 8 + 8;
    packet[offset_of_end] = 2;
    let Ok(Message::BadOption { metadata, error }) = Message::decode(&packet) else { panic!("it is bad") };
    let expected = format!("thread end at byte {offset_of_end}: expected 0 (absent) or 1 (present), found 2");
    assert_eq!((metadata.name, error.to_string()), ("thread", expected));
    assert_eq!(encoded(&Message::BadOption { metadata, error }), packet);
}

#[test]
fn a_birth_of_a_newer_kind_is_kept_and_a_short_one_is_not_believed() {
    let birth = Birth { parent: SessionId([0xFF; 16]), how: 200.into(), tid: u32::MAX, at: SessionNs(u64::MAX) };
    assert_eq!((birth.how, birth.how.name()), (BirthKind::Other(200), "unknown"));
    let packet = encoded(&ProfileOption::from(birth));
    let Ok(Message::Option(Known { option, extra: [] })) = Message::decode(&packet) else { panic!("it is an option") };
    assert_eq!(option, birth.into());
    assert_eq!(encoded(&option), packet, "the number that has no name stays what it is");
    let value = &packet[8 + 2 + 5..];
    for length in 0..value.len() {
        let short = encoded(&Metadata { name: "birth", value: &value[..length] });
        let Ok(Message::BadOption { metadata, .. }) = Message::decode(&short) else {
            panic!("{length} bytes are too few")
        };
        assert_eq!(metadata.value.len(), length);
    }
    let longer = encoded(&Metadata { name: "birth", value: &[value, b"more"].concat() });
    let Ok(Message::Option(known)) = Message::decode(&longer) else { panic!("a newer sender may add fields") };
    assert_eq!((known.option, known.extra), (birth.into(), &b"more"[..]));
}

/// An encoder that refuses has written nothing.
#[track_caller]
fn unwritten(value: &impl Encode, expected: EncodeError) {
    let mut out = b"before".to_vec();
    assert_eq!(value.encode(&mut out), Err(expected));
    assert_eq!(value.encoded_len(), Err(expected));
    assert_eq!(out, b"before");
}

#[test]
fn a_buffer_that_cannot_grow_is_not_overrun() {
    let function = call();
    let metadata = Metadata { name: "name", value: b"value" };
    let mut datagram = [0; 100];
    let mut left = &mut datagram[..];
    assert_eq!(function.encode(&mut left), Ok(75));
    assert_eq!(function.encode(&mut left), Err(EncodeError::NoRoom { needed: 75, left: 25 }));
    let exception = FunctionEvent { kind: codec::EventKind::Exception, ..function };
    assert_eq!(exception.encode(&mut left), Err(EncodeError::NoRoom { needed: 80, left: 25 }));
    assert_eq!(metadata.encode(&mut left), Ok(19));
    assert_eq!(metadata.encode(&mut left), Err(EncodeError::NoRoom { needed: 19, left: 6 }));
    assert_eq!(Packets::new(&datagram[..94], MAX_PACKET_BYTES).filter(Result::is_ok).count(), 2);

    let mut growing = Vec::new().limit(80);
    assert_eq!(function.encode(&mut growing), Ok(75));
    assert_eq!(metadata.encode(&mut growing), Err(EncodeError::NoRoom { needed: 19, left: 5 }));
}

#[test]
fn lists_tell_how_much_of_them_fits() {
    let functions = [FunctionName { offset: 0, name: "12345" }; 100];
    assert_eq!(List::fitting(&functions, 2 + 15 * 7 + 14), 7);
    assert_eq!(List::fitting(&functions, 1), 0);
    assert_eq!(List::fitting(&functions, 10_000), 100);
    assert_eq!(List::fitting(&[0_u64; 70_000], usize::MAX), 65_535);
}

#[test]
fn encoders_refuse_what_does_not_fit() {
    let long = "x".repeat(65_536);
    let too_long = |field| EncodeError::TooLong { field, length: 65_536, limit: 65_535 };
    let event = Event { stamp: Default::default(), description: "", attributes: Default::default() };
    unwritten(&Event { description: &long, ..event }, too_long("description"));
    unwritten(&Metadata { name: &long, value: &[] }, too_long("option name"));
    let longest = Event { description: &long[1..], ..event };
    assert_eq!(longest.encode(&mut Vec::new()), Ok(42 + 65_535));

    let numbers = vec![0_u64; 65_536];
    let attributes = [
        (Attribute { name: &long, value: Value::U64(1) }, "attribute name"),
        (Attribute { name: "a", value: Value::Str(&long) }, "attribute value"),
        (Attribute { name: "a", value: Value::U64s(numbers.as_slice().into()) }, "attribute value"),
    ];
    for (attribute, field) in attributes {
        unwritten(&Event { attributes: (&[attribute]).into(), ..event }, too_long(field));
    }

    let full = Attribute { name: "a", value: Value::U64s(numbers[..65_535].into()) };
    let bytes = 3 + 1 + 2 + 8 * 65_535;
    assert_eq!(Event { attributes: (&[full]).into(), ..event }.encode(&mut Vec::new()), Ok(42 + bytes));
    let too_large = EncodeError::PacketTooLarge { size: 42 + 2 * bytes, limit: MAX_PACKET_BYTES };
    unwritten(&Event { attributes: (&[full, full]).into(), ..event }, too_large);

    let function = FunctionEvent { detail: Some(Detail::new(&[0; Registers::WORDS], &numbers[..65])), ..call() };
    unwritten(&function, EncodeError::TooLong { field: "stack", length: 65, limit: 64 });
    unwritten(&FunctionEvent { function: None, ..function }, EncodeError::Missing { field: "function or ip" });
    let taken = [Attribute { name: "other", value: Value::U64(1) }, Attribute { name: "depth", value: Value::U64(1) }];
    let function = FunctionEvent { detail: None, extra: (&taken).into(), ..function };
    unwritten(&function, EncodeError::Reserved { name: "depth" });

    let epoch = Known { option: codec::profile::Epoch { unix_ns: 1 }.into(), extra: &[1] };
    unwritten(&epoch, EncodeError::TooLong { field: "epoch", length: 9, limit: 8 });

    let taken = [Attribute { name: "phase", value: Value::U64(1) }];
    let runtime = RuntimeEvent {
        stamp: Default::default(),
        function: "swift_job_run",
        phase: codec::EventKind::Call,
        keys: (&taken).into(),
    };
    unwritten(&runtime, EncodeError::Reserved { name: "phase" });
    let runtime = RuntimeEvent { function: "job_run", keys: Default::default(), ..runtime };
    unwritten(&runtime, EncodeError::Value { field: "function", expected: "a function of a known runtime" });
}
