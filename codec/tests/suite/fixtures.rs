//! The golden files in `fixtures/`, and the simplest event.

use std::{fs, path::PathBuf};

use codec::{EventKind, FunctionId, heph::Encode, profile::FunctionEvent};

/// A call of which nothing is told that need not be.
pub(crate) fn call() -> FunctionEvent<'static> {
    FunctionEvent {
        stamp: Default::default(),
        kind: EventKind::Call,
        function: Some(FunctionId(1)),
        ip: None,
        depth: 0,
        detail: None,
        extra: Default::default(),
    }
}

/// The packet of a value.
#[track_caller]
pub(crate) fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut bytes = vec![0xaa];
    let size = value.encode(&mut bytes).expect("it can be encoded");
    assert_eq!(bytes.remove(0), 0xaa, "encoding appends");
    assert_eq!((bytes.len(), value.encoded_len()), (size, Ok(size)), "it is as long as it said");
    bytes
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// The bytes of a golden file, named relative to `fixtures/`.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let path = fixtures().join(name);
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if name.ends_with(".hex") { parse_hex(&String::from_utf8(text).expect("a text")) } else { text }
}

/// Every golden packet, with its name.
pub(crate) fn golden_packets() -> Vec<(String, Vec<u8>)> {
    let mut names: Vec<_> = fs::read_dir(fixtures().join("packets"))
        .expect("the golden packets")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), golden(&format!("packets/{name}")))).collect()
}

fn parse_hex(text: &str) -> Vec<u8> {
    let digits: String = text.lines().flat_map(|line| line.split('#').next()).collect();
    let digits: Vec<_> = digits.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("two digits");
    digits.chunks(2).map(byte).collect()
}
