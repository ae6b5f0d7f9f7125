//! Every value comes back as it went out.

use std::collections::BTreeSet;

use codec::{
    EventKind,
    atf::Manifest,
    heph::{Attribute, Event, Packet, Value},
    profile::{Known, Message, ProfileOption},
};
use quickcheck::{Arbitrary, Gen, TestResult, quickcheck};

use crate::{
    fixtures::encoded,
    generate::{AnyExtended, AnyManifest, AnyMessage, function_event},
};

quickcheck! {
    fn messages(message: AnyMessage) -> bool {
        let bytes = encoded(&message.0);
        Message::decode(&bytes) == Ok(message.0)
    }

    fn packets_are_the_same_bytes_again(message: AnyMessage) -> bool {
        let bytes = encoded(&message.0);
        encoded(&Packet::decode(&bytes).expect("it was encoded")) == bytes
    }

    fn manifests(manifest: AnyManifest) -> bool {
        let json = manifest.0.to_json().expect("it can be written");
        let parsed = Manifest::parse(&json).expect("it was written");
        parsed == manifest.0 && parsed.check().is_ok()
    }

    fn options_keep_what_was_added_to_them(option: AnyExtended) -> bool {
        let bytes = encoded(&option.0);
        let Ok(Packet::Metadata(metadata)) = Packet::decode(&bytes) else { return false };
        let known = Known::decode(&metadata).expect("it was encoded").expect("it is of the profile");
        known == option.0 && encoded(&known) == bytes
    }

    fn attributes_that_are_not_of_the_profile_stay(message: AnyMessage, name: String, value: u64) -> TestResult {
        let Message::Function(event) = message.0 else { return TestResult::discard() };
        if ["fn", "ip", "depth", "regs", "stack"].contains(&name.as_str()) || name.len() > 65_535 {
            return TestResult::discard();
        }
        let added = [Attribute { name: &name, value: Value::U64(value) }];
        let event = codec::profile::FunctionEvent { extra: (&added).into(), ..event };
        let bytes = encoded(&event);
        let Ok(Message::Function(decoded)) = Message::decode(&bytes) else { return TestResult::failed() };
        TestResult::from_bool(decoded.extra.find_u64(&name) == Some(value) && encoded(&decoded) == bytes)
    }
}

/// The other tests here are worth what the generator yields.
#[test]
fn every_option_is_generated() {
    let mut g = Gen::new(5);
    let mut names = BTreeSet::new();
    for _ in 0..5000 {
        if let AnyMessage(Message::Option(known)) = AnyMessage::arbitrary(&mut g) {
            names.insert(known.option.name());
        }
    }
    assert_eq!(names, ProfileOption::NAMES.iter().copied().collect());
}

/// There are two ways to decode a function event. Reversing its attributes forces the long one.
#[test]
fn the_short_way_and_the_long_way_agree() {
    let mut g = Gen::new(20);
    for _ in 0..2000 {
        let expected = function_event(&mut g);
        let bytes = encoded(&expected);
        let Ok(Packet::Event(event)) = Packet::decode(&bytes) else { panic!("an event") };
        let mut attributes: Vec<_> = event.attributes.iter().collect();
        attributes.reverse();
        let reversed = encoded(&Event { attributes: attributes.as_slice().into(), ..event });
        let Ok(Message::Function(decoded)) = Message::decode(&reversed) else { panic!("a function event") };
        let mut extra: Vec<_> = decoded.extra.iter().collect();
        extra.reverse();
        let decoded = codec::profile::FunctionEvent { extra: extra.as_slice().into(), ..decoded };
        assert_eq!(decoded, expected);
    }
}

/// Events with our names but other attributes are somebody else's. They come through whole.
#[test]
fn what_only_looks_like_a_function_event_is_an_event() {
    let (number, words) = (Value::U64(1), Value::U64s((&[1; 11]).into()));
    let good = [("fn", number), ("depth", number), ("regs", words), ("stack", words)];
    let message = |attributes: &[(&'static str, Value<'static>)]| {
        let attributes: Vec<_> = attributes.iter().map(|&(name, value)| Attribute { name, value }).collect();
        let description = EventKind::Call.description();
        let event = Event { stamp: Default::default(), description, attributes: attributes.as_slice().into() };
        let bytes = encoded(&event);
        let message = Message::decode(&bytes).expect("valid Heph");
        if let Message::Event(decoded) = message {
            assert_eq!(decoded, event);
        }
        matches!(message, Message::Function(_))
    };
    assert!(message(&good));
    assert!(message(&good[..3]), "no stack");
    assert!(message(&good[..2]), "no detail");
    assert!(!message(&good[1..]), "no function");
    assert!(!message(&good[..1]), "no depth");
    assert!(!message(&[good[0], good[1], good[3]]), "a stack without registers");
    assert!(!message(&[good[0], good[1], good[1]]), "a depth twice");
    assert!(!message(&[good[0], ("depth", Value::U64(1 << 32))]), "a depth that does not fit");
    assert!(!message(&[("fn", Value::Str("main")), good[1]]), "a name for an id");
    assert!(!message(&[good[0], good[1], ("regs", Value::U64s((&[1; 10]).into()))]), "ten registers");
    assert!(!message(&[good[0], good[1], good[2], ("stack", Value::U64s((&[1; 65]).into()))]), "65 words of stack");
}

/// The same for runtime events.
#[test]
fn what_only_looks_like_a_runtime_event_is_an_event() {
    let message = |description: &'static str, phase: Option<Value<'static>>| {
        let attributes: Vec<_> = phase.map(|value| Attribute { name: "phase", value }).into_iter().collect();
        let event = Event { stamp: Default::default(), description, attributes: attributes.as_slice().into() };
        match Message::decode(&encoded(&event)).expect("valid Heph") {
            Message::Runtime(event) => Some(event.phase),
            _ => None,
        }
    };
    assert_eq!(message("swift_job_run", None), Some(EventKind::Call));
    assert_eq!(message("swift_job_run", Some(Value::U64(2))), Some(EventKind::Return));
    assert_eq!(message("swift_job_run", Some(Value::U64(4))), None);
    assert_eq!(message("swift_job_run", Some(Value::Str("end"))), None);
    assert_eq!(message("job_run", None), None);
}

#[test]
fn an_epoch_is_eight_bytes_and_no_more() {
    let mut bytes = encoded(&Known { option: codec::profile::Epoch { unix_ns: 1 }.into(), extra: &[] });
    assert!(matches!(Message::decode(&bytes), Ok(Message::Option(Known { option: ProfileOption::Epoch(_), .. }))));
    bytes.push(0);
    bytes[7] += 1;
    let Ok(Message::BadOption { error, .. }) = Message::decode(&bytes) else { panic!("nine bytes") };
    assert_eq!(error.to_string(), "expected the end at byte 23, found 1 more bytes");
}

#[test]
fn a_manifest_refuses_what_cannot_be_so() {
    let error = |json: &str| {
        let checked = Manifest::parse(json.as_bytes()).and_then(|manifest| manifest.check());
        checked.expect_err("it cannot be").to_string()
    };
    assert_eq!(
        error(r#"{"threads":[],"time_start_ns":2,"time_end_ns":1}"#),
        "manifest.json: time_start_ns 2 is after time_end_ns 1"
    );
    let thread = r#"{"id":3,"has_detail":false}"#;
    assert_eq!(
        error(&format!(r#"{{"threads":[{thread},{thread}],"time_start_ns":1,"time_end_ns":2}}"#)),
        "manifest.json: thread 3 is there twice"
    );
    let counted = r#"{"id":3,"has_detail":false,"produced":10,"written":7}"#;
    let gap = r#"{"thread":3,"first":4,"count":2,"cause":"network"}"#;
    assert_eq!(
        error(&format!(r#"{{"threads":[{counted}],"gaps":[{gap}],"time_start_ns":1,"time_end_ns":2}}"#)),
        "manifest.json: thread 3 produced 10 events, but 7 written and 2 missing"
    );
    assert_eq!(
        error(&format!(r#"{{"threads":[],"gaps":[{gap}],"time_start_ns":1,"time_end_ns":2}}"#)),
        "manifest.json: a gap is in thread 3, which is not there"
    );
    assert_eq!(
        error(r#"{"threads":[],"time_start_ns":1}"#),
        "manifest.json: missing field `time_end_ns` at line 1 column 32"
    );
}
