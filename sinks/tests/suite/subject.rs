//! The sinks under test, and how to read back what they wrote.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use codec::{
    SessionId,
    atf::{IndexReader, Manifest},
    heph::{MAX_PACKET_BYTES, Packets},
    profile::{Message, ProfileOption},
};
use serde_json::Value;
use sinks::{DiskOptions, DiskSink, HephSink, LineSink, Sink, disk};

use crate::scene::{Form, ZERO_NS, fresh_dir, id_of};

/// What a stream went through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// An event, by its end.
    Event(u64),
    /// A gap: first, count, cause.
    Gap(u64, u64, String),
}

/// What was told of each stream of each session, in order. Gaps that follow one another with one cause are one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Story(pub(crate) BTreeMap<(String, u32), Vec<Item>>);

impl Story {
    pub(crate) fn event(&mut self, session: &str, stream: u32, end: u64) {
        self.0.entry((session.into(), stream)).or_default().push(Item::Event(end));
    }

    pub(crate) fn gap(&mut self, session: &str, stream: u32, first: u64, count: u64, cause: &str) {
        let items = self.0.entry((session.into(), stream)).or_default();
        match items.last_mut() {
            Some(Item::Gap(before, length, same)) if *before + *length == first && same == cause => *length += count,
            _ => items.push(Item::Gap(first, count, cause.into())),
        }
    }

    /// The same without gaps that a sink does not tell, and without streams that then have nothing.
    pub(crate) fn telling(&self, tells: impl Fn(&str) -> bool) -> Self {
        let told = |item: &&Item| !matches!(item, Item::Gap(_, _, cause) if !tells(cause));
        let streams = self.0.iter().map(|(key, items)| (key.clone(), items.iter().filter(told).cloned().collect()));
        Self(streams.filter(|(_, items): &(_, Vec<Item>)| !items.is_empty()).collect())
    }
}

/// A sink, and a way to read what it wrote.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) sink: Box<dyn Sink>,
    /// Reads back.
    pub(crate) read: Read,
    /// Whether it tells of gaps with this cause.
    pub(crate) tells: fn(&str) -> bool,
    /// How it gets its events.
    pub(crate) form: Form,
}

/// A way to read back what a sink wrote, given the names of all sessions.
type Read = Box<dyn Fn(&[&str]) -> Story>;

/// All sinks there are, with events in every form.
pub(crate) fn all() -> impl Iterator<Item = Subject> {
    let make = [disk_sink, disk_sink_in_parts, heph_sink, events_sink];
    Form::ALL.into_iter().flat_map(move |form| make.map(|make| Subject { form, ..make() }))
}

fn disk_sink() -> Subject {
    disk_subject("disk", |dir| DiskOptions::new(dir))
}

fn disk_sink_in_parts() -> Subject {
    disk_subject("disk in parts", |dir| DiskOptions {
        rotate_every: Some(Duration::ZERO),
        open_threads: 1,
        ..DiskOptions::new(dir)
    })
}

fn disk_subject(name: &'static str, options: impl Fn(&Path) -> DiskOptions) -> Subject {
    let dir = fresh_dir("disk");
    let sink = DiskSink::open(options(&dir)).expect("it can be opened");
    let read = move |sessions: &[&str]| {
        let found = disk::verify(&dir).expect("there are sessions");
        found.iter().for_each(|found| assert_eq!(found.problems, [""; 0], "{}", found.dir.display()));
        let story = read_dir(&dir, sessions);
        fs::remove_dir_all(&dir).expect("it is there");
        story
    };
    Subject { name, sink: Box::new(sink), read: Box::new(read), tells: |_| true, form: Form::Single }
}

/// What the directories of these sessions tell, one part after the other.
pub(crate) fn read_dir(dir: &Path, sessions: &[&str]) -> Story {
    let mut story = Story::default();
    for session in sessions {
        let mut next: BTreeMap<u32, u64> = BTreeMap::new();
        for part in 1.. {
            let name = if part == 1 { (*session).to_owned() } else { format!("{session}.{part}") };
            if !dir.join(&name).exists() {
                assert!(part > 1, "{session} is not there");
                break;
            }
            read_part(&dir.join(&name), session, &mut next, &mut story);
        }
    }
    story
}

/// Reads a part, and checks that every position from where the part before ended is an event or in a gap.
fn read_part(dir: &Path, session: &str, next: &mut BTreeMap<u32, u64>, story: &mut Story) {
    let manifest = read_manifest(dir);
    for thread in &manifest.threads {
        let file = fs::read(dir.join(format!("thread_{}/index.atf", thread.id))).expect("it is there");
        let index = IndexReader::open(&file).expect("it is one");
        let mut gaps = manifest.gaps.iter().filter(|gap| gap.thread == thread.id).peekable();
        let mut position = thread.first.unwrap_or(0);
        if let Some(next) = next.get(&thread.id) {
            assert_eq!(position, *next, "{session} goes on where it was");
        }
        for at in 0..=u64::from(index.len()) {
            while let Some(gap) = gaps.next_if(|gap| gap.at_index == Some(at)) {
                assert_eq!(gap.first, position, "gap in {session} {}", thread.id);
                position += gap.count;
                story.gap(session, thread.id, gap.first, gap.count, &gap.cause);
            }
            if let Some(event) = index.get(u32::try_from(at).expect("few")) {
                let zero = manifest.clock_zero_ns.unwrap_or(0);
                assert!(zero == 0 || zero == ZERO_NS);
                story.event(session, thread.id, event.expect("it is whole").timestamp.0 - zero);
                position += 1;
            }
        }
        assert_eq!(gaps.next(), None, "all gaps have a place");
        let produced = position - thread.first.unwrap_or(0);
        assert_eq!(thread.produced, Some(produced));
        next.insert(thread.id, position);
    }
}

pub(crate) fn read_manifest(dir: &Path) -> Manifest {
    Manifest::parse(&fs::read(dir.join("manifest.json")).expect("it is there")).expect("it is one")
}

/// Bytes that a sink writes and a test reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("nobody panicked").clone()
    }
}

fn heph_sink() -> Subject {
    let shared = Shared::default();
    let sink = HephSink::new(shared.clone());
    let read = move |sessions: &[&str]| read_packets(&shared.bytes(), sessions);
    let tells = |cause: &str| !cause.starts_with("agent:");
    Subject { name: "heph", sink: Box::new(sink), read: Box::new(read), tells, form: Form::Single }
}

/// What a file of packets tells, where packets behind a `session` option are that session's.
pub(crate) fn read_packets(bytes: &[u8], sessions: &[&str]) -> Story {
    let ids: BTreeMap<SessionId, &str> = sessions.iter().map(|name| (id_of(name), *name)).collect();
    let (mut story, mut current) = (Story::default(), sessions.first().copied().unwrap_or_default());
    let mut packets = Packets::new(bytes, MAX_PACKET_BYTES);
    while let Some(message) = packets.next_with(Message::decode) {
        let stamp = match message.expect("whole packets") {
            Message::Option(known) => {
                match known.option {
                    ProfileOption::Session(session) => current = ids.get(&session.id).copied().unwrap_or("made up"),
                    ProfileOption::Drops(drops) => drops.drops.iter().for_each(|drop| {
                        story.gap(current, drop.stream.0, drop.first.0, drop.count, drop.reason);
                    }),
                    _ => {}
                }
                continue;
            }
            Message::Function(event) => event.stamp,
            Message::Runtime(event) => event.stamp,
            Message::Event(event) => event.stamp,
            Message::Run(run) => {
                run.events().for_each(|event| story.event(current, run.stamp.stream.0, event.end.0));
                continue;
            }
            _ => continue,
        };
        story.event(current, stamp.stream.0, stamp.end.0);
    }
    story
}

fn events_sink() -> Subject {
    let shared = Shared::default();
    let sink = LineSink::events(shared.clone());
    let read = move |_: &[&str]| read_lines(&shared.bytes());
    Subject { name: "events", sink: Box::new(sink), read: Box::new(read), tells: |_| true, form: Form::Single }
}

/// What lines of JSON tell, and checks that positions follow one another.
pub(crate) fn read_lines(bytes: &[u8]) -> Story {
    let mut story = Story::default();
    let mut next: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let line: Value = serde_json::from_slice(line).expect("every line is JSON");
        let number = |name: &str| line[name].as_u64().expect("a number");
        let session = line["session"].as_str().expect("a name").to_owned();
        let (first, count) = match line["type"].as_str() {
            Some("event") => {
                story.event(&session, u32::try_from(number("stream")).expect("a stream"), number("end_ns"));
                (number("position"), 1)
            }
            Some("gap") => {
                let stream = u32::try_from(number("stream")).expect("a stream");
                let cause = line["cause"].as_str().expect("a cause");
                story.gap(&session, stream, number("position"), number("count"), cause);
                (number("position"), number("count"))
            }
            Some("session" | "end") => continue,
            other => panic!("{other:?}"),
        };
        let next = next.entry((session, number("stream"))).or_insert(first);
        assert_eq!(first, *next, "{line}");
        *next += count;
    }
    story
}
