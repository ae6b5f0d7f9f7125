//! The head of a manifest: what tells sessions apart, without the long lists behind it.

use std::{fmt, io::Read};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor},
};

use super::{BirthEntry, OffsetEntry, ProcessEntry};

/// What a manifest says of its session before its lists of modules and symbols, which make up most of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ManifestHead {
    /// When the first event happened.
    pub time_start_ns: u64,
    /// When the last event happened.
    pub time_end_ns: u64,
    /// The session's id.
    pub session: Option<String>,
    /// The traced process.
    pub process: Option<ProcessEntry>,
    /// Which process made it.
    pub birth: Option<BirthEntry>,
    /// The clock at the session's zero.
    pub clock_zero_ns: Option<u64>,
    /// When the session's zero was, by the clock of its machine.
    pub epoch_unix_ns: Option<u64>,
    /// The session's zero by the collector's clock.
    pub offset: Option<OffsetEntry>,
    /// How many events of its threads are missing.
    pub missing: u64,
    /// Whether all of the head could be read.
    pub is_whole: bool,
}

/// What is told of a thread: how many events it produced, and how many of them there are.
#[derive(Deserialize)]
struct Events {
    #[serde(default)]
    produced: Option<u64>,
    #[serde(default)]
    written: Option<u64>,
}

impl Events {
    fn missing(&self) -> u64 {
        self.produced.unwrap_or(0).saturating_sub(self.written.unwrap_or(0))
    }
}

/// The lists that nothing of the head is behind.
const LISTS: [&str; 3] = ["modules", "symbols", "functions"];

impl ManifestHead {
    /// Reads as far as is needed. What is damaged, or of another form, is left out: whoever relies on a manifest reads it
    /// with [`Manifest::parse`](super::Manifest::parse).
    pub fn read(json: impl Read) -> Self {
        let mut head = Self::default();
        // To stop before the end is an error there.
        let _ = Members(&mut head).deserialize(&mut serde_json::Deserializer::from_reader(json));
        head
    }
}

/// Fills a head.
struct Members<'a>(&'a mut ManifestHead);

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a manifest")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "time_start_ns" => self.0.time_start_ns = members.next_value()?,
                "time_end_ns" => self.0.time_end_ns = members.next_value()?,
                "session" => self.0.session = members.next_value()?,
                "process" => self.0.process = members.next_value()?,
                "birth" => self.0.birth = members.next_value()?,
                "clock_zero_ns" => self.0.clock_zero_ns = members.next_value()?,
                "epoch_unix_ns" => self.0.epoch_unix_ns = members.next_value()?,
                "offset" => self.0.offset = members.next_value()?,
                "threads" => {
                    let threads = members.next_value::<Vec<Events>>()?;
                    self.0.missing = threads.iter().map(Events::missing).fold(0, u64::saturating_add);
                }
                list if LISTS.contains(&list) => {
                    self.0.is_whole = true;
                    return Err(A::Error::custom("nothing else is needed"));
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        self.0.is_whole = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atf::{FunctionEntry, Manifest, ThreadEntry};

    #[test]
    fn it_is_read_without_what_is_behind_it() {
        let manifest = Manifest {
            session: Some("0f".into()),
            process: Some(ProcessEntry { pid: 7, ..ProcessEntry::default() }),
            birth: Some(BirthEntry { parent: "0e".into(), at_ns: 9, ..BirthEntry::default() }),
            clock_zero_ns: Some(5),
            epoch_unix_ns: Some(4),
            threads: vec![ThreadEntry { produced: Some(9), written: Some(2), ..ThreadEntry::default() }; 2],
            time_end_ns: 6,
            offset: Some(OffsetEntry { error_ns: 3, ..OffsetEntry::default() }),
            functions: vec![FunctionEntry::default()],
            ..Manifest::default()
        };
        let json = manifest.to_json().expect("valid");
        let head = ManifestHead::read(json.as_slice());
        assert_eq!((&head.session, &head.process), (&manifest.session, &manifest.process));
        assert_eq!((&head.birth, head.clock_zero_ns, head.offset), (&manifest.birth, Some(5), manifest.offset));
        assert_eq!((head.time_start_ns, head.time_end_ns), (0, 6));
        assert_eq!((head.epoch_unix_ns, head.missing, head.is_whole), (Some(4), 14, true));
        let symbols = json.windows(9).position(|bytes| bytes == b"\"symbols\"").expect("it has functions");
        assert_eq!(ManifestHead::read(json.get(..symbols + 9).expect("it is there")), head, "the rest is not read");
        for length in 0..symbols {
            let cut = ManifestHead::read(json.get(..length).expect("it is there"));
            assert!(!cut.is_whole && (cut.birth.is_none() || cut.birth == head.birth), "{length} bytes");
        }
        assert_eq!(ManifestHead::read(&b"[1]"[..]), ManifestHead::default());
    }
}
