//! What a session left on disk, as plain values.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use codec::{
    EventKind, FunctionId, SessionId,
    atf::{DetailBody, DetailReader, GapEntry, IndexReader, Integrity, Manifest, ThreadReader},
    profile::Registers,
};

/// A session directory, read whole.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The directory.
    pub folder: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    /// The events of each thread, in order.
    pub threads: BTreeMap<u32, Vec<Recorded>>,
}

/// An event as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Its place in what the thread produced: events and gaps before it.
    pub position: u64,
    /// When it happened, in nanoseconds since the session's zero.
    pub time_ns: u64,
    /// The function.
    pub function: FunctionId,
    /// The name of the function, where the manifest has it.
    pub name: Option<Arc<str>>,
    /// Whether the function was entered or left.
    pub kind: EventKind,
    /// How deep it was.
    pub depth: u32,
    /// What was captured of registers and stack.
    pub captured: Option<(Registers, Vec<u8>)>,
    /// The attributes of an event that is not a function's, as text.
    pub attributes: Option<String>,
}

impl Trace {
    /// Reads a session directory whose files are all finished. Fails the test where it is not sound.
    #[track_caller]
    pub fn read(folder: &Path) -> Self {
        let manifest = read_manifest(folder);
        if let Err(error) = manifest.check() {
            panic!("{}: {error}", folder.display());
        }
        // There may be millions of events.
        let names: HashMap<u64, Arc<str>> =
            manifest.functions.iter().map(|entry| (entry.id, entry.name.as_str().into())).collect();
        let mut threads = BTreeMap::new();
        for thread in &manifest.threads {
            let gaps: Vec<_> = manifest.gaps.iter().filter(|gap| gap.thread == thread.id).collect();
            let path = folder.join(format!("thread_{}", thread.id));
            let mut events = read_thread(&path, thread.has_detail);
            if let Some(written) = thread.written {
                assert_eq!(events.len() as u64, written, "{}: events in the index", path.display());
            }
            place(&mut events, &gaps, thread.first.unwrap_or(0));
            let zero = manifest.clock_zero_ns.unwrap_or(0);
            for event in &mut events {
                event.time_ns = event.time_ns.checked_sub(zero).expect("no event is before the session's zero");
                event.name = names.get(&event.function.0).cloned();
            }
            threads.insert(thread.id, events);
        }
        Self { folder: folder.to_path_buf(), manifest, threads }
    }

    /// Reads every session below a folder, in the order of their names.
    #[track_caller]
    pub fn all(below: &Path) -> Vec<Self> {
        folders(below).iter().map(|folder| Self::read(folder)).collect()
    }

    /// The one session below a folder.
    #[track_caller]
    pub fn only(below: &Path) -> Self {
        let mut all = Self::all(below);
        assert_eq!(all.len(), 1, "there is one session in {}", below.display());
        all.remove(0)
    }

    /// The session with this id, which has one directory below the folder.
    #[track_caller]
    pub fn of(below: &Path, session: SessionId) -> Self {
        let mut parts = Self::parts(below, session);
        assert_eq!(parts.len(), 1, "session {session} has one directory in {}", below.display());
        parts.remove(0)
    }

    /// The directories of the session with this id, in the order of their names.
    #[track_caller]
    pub fn parts(below: &Path, session: SessionId) -> Vec<Self> {
        let id = session.to_string();
        let has_id = |folder: &&PathBuf| read_manifest(folder).session.as_deref() == Some(&id);
        folders(below).iter().filter(has_id).map(|folder| Self::read(folder)).collect()
    }

    /// How many events it has.
    pub fn len(&self) -> usize {
        self.threads.values().map(Vec::len).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The events that are missing for this cause, by thread and position.
    pub fn missing(&self, cause: &str) -> BTreeSet<(u32, u64)> {
        let gaps = self.manifest.gaps.iter().filter(|gap| gap.cause == cause);
        gaps.flat_map(|gap| (gap.first..gap.first + gap.count).map(|position| (gap.thread, position))).collect()
    }

    /// The events of one thread without their positions: what two ways of receiving the same bytes agree on.
    pub fn contents(&self) -> BTreeMap<u32, Vec<Recorded>> {
        let mut threads = self.threads.clone();
        threads.values_mut().flatten().for_each(|event| event.position = 0);
        threads
    }
}

/// The session directories below a folder, in the order of their names. A collector that is killed at once leaves one in which
/// nothing is.
pub fn folders(below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).unwrap_or_else(|error| panic!("{}: {error}", below.display()));
    let is_used = |path: &PathBuf| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_used).collect();
    folders.sort();
    folders
}

/// How many whole events the index of a thread has. It may still be written.
pub fn indexed(session: &Path, thread: u32) -> u64 {
    let index = fs::metadata(session.join(format!("thread_{thread}/index.atf")));
    index.map_or(0, |index| index.len().saturating_sub(64) / 32)
}

#[track_caller]
fn read_manifest(folder: &Path) -> Manifest {
    let path = folder.join("manifest.json");
    Manifest::parse(&bytes(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[track_caller]
fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The events of a thread. Their times are still those of the clock, and their positions those in the index.
#[track_caller]
fn read_thread(folder: &Path, has_detail: bool) -> Vec<Recorded> {
    let index = bytes(&folder.join("index.atf"));
    let detail = has_detail.then(|| bytes(&folder.join("detail.atf")));
    assert_eq!(IndexReader::check_file(&index), Integrity::Intact, "{}/index.atf", folder.display());
    if let Some(detail) = &detail {
        assert_eq!(DetailReader::check_file(detail), Integrity::Intact, "{}/detail.atf", folder.display());
    }
    let thread = ThreadReader {
        index: IndexReader::open(&index).expect("an index"),
        detail: detail.as_ref().map(|detail| DetailReader::open(detail).expect("a detail file")),
    };
    thread.check_links().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut events = Vec::new();
    for (sequence, event) in (0..).zip(thread.index.events()) {
        let event = event.expect("an event");
        let mut recorded = Recorded {
            position: sequence.into(),
            time_ns: event.timestamp.0,
            function: event.function,
            name: None,
            kind: event.kind,
            depth: event.depth,
            captured: None,
            attributes: None,
        };
        for detail in thread.details_of(sequence) {
            match detail.expect("a detail").body {
                DetailBody::Call(detail) | DetailBody::Return(detail) => {
                    recorded.captured = Some((detail.registers, detail.stack.to_vec()));
                }
                DetailBody::Keys(keys) => recorded.attributes = Some(format!("{:?}", keys.attributes)),
                _ => {}
            }
        }
        events.push(recorded);
    }
    events
}

/// Moves events behind the gaps that come before them. `first` is where the thread starts.
fn place(events: &mut [Recorded], gaps: &[&GapEntry], first: u64) {
    let mut gaps = gaps.to_vec();
    gaps.sort_by_key(|gap| gap.first);
    let mut gaps = gaps.into_iter().peekable();
    let mut next = first;
    for event in events {
        while let Some(gap) = gaps.next_if(|gap| gap.first <= next) {
            next = gap.first + gap.count;
        }
        event.position = next;
        next += 1;
    }
}

#[cfg(test)]
mod tests {
    use codec::{
        Arch, ClockKind, ClockNs, Os,
        atf::{IndexEvent, Origin, ThreadEntry, ThreadWriter},
    };

    use super::*;
    use crate::Folder;

    /// A session of one thread with three events, of which the two at 1 and 2 are missing.
    fn write(folder: &Path) {
        let (arch, os, clock) = (Arch::X86_64, Os::Linux, ClockKind::Boottime);
        let mut writer = ThreadWriter::new(Origin { arch, os, clock, thread: 70 });
        for time in [100, 400, 500] {
            let (timestamp, function) = (ClockNs(time), FunctionId(5));
            let event = IndexEvent { timestamp, function, thread: 70, kind: EventKind::Call, depth: 0, detail: None };
            writer.append(&event, &[]).expect("room");
        }
        let path = folder.join("thread_3");
        fs::create_dir_all(&path).expect("a folder");
        let mut file = fs::File::create(path.join("index.atf")).expect("a file");
        writer.seal().0.write_to(&mut file).expect("room on disk");
        let thread = ThreadEntry { id: 3, produced: Some(5), written: Some(3), ..ThreadEntry::default() };
        let gap = GapEntry { thread: 3, first: 1, count: 2, cause: "network".into(), ..GapEntry::default() };
        let manifest = Manifest {
            threads: vec![thread],
            time_start_ns: 100,
            time_end_ns: 500,
            clock_zero_ns: Some(100),
            gaps: vec![gap],
            session: Some(SessionId([1; 16]).to_string()),
            ..Manifest::default()
        };
        fs::write(folder.join("manifest.json"), manifest.to_json().expect("JSON")).expect("room on disk");
    }

    #[test]
    fn positions_count_the_gaps_in() {
        let folder = Folder::new("trace");
        write(&folder.join("session"));
        let trace = Trace::of(folder.path(), SessionId([1; 16]));
        let places: Vec<_> = trace.threads[&3].iter().map(|event| (event.position, event.time_ns)).collect();
        assert_eq!(places, [(0, 0), (3, 300), (4, 400)]);
        assert_eq!(trace.missing("network"), BTreeSet::from([(3, 1), (3, 2)]));
        assert_eq!((trace.len(), trace.missing("agent:ring-full").len()), (3, 0));
        assert!(Trace::parts(folder.path(), SessionId([2; 16])).is_empty());
    }

    #[test]
    fn damage_fails_the_test() {
        let folder = Folder::new("damage");
        write(&folder.join("session"));
        let path = folder.join("session/thread_3/index.atf");
        let mut index = bytes(&path);
        index[70] ^= 1;
        fs::write(&path, index).expect("room on disk");
        let panic = std::panic::catch_unwind(|| Trace::only(folder.path())).expect_err("it is damaged");
        assert!(panic.downcast_ref::<String>().is_some_and(|message| message.contains("index.atf")));
    }
}
