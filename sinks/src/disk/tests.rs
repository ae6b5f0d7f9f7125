//! The disk sink on a disk that fails when told to.

use std::{
    fs,
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering},
};

use codec::{
    EventKind, FunctionId, ModuleId, Position, SessionNs, StreamId, SubstreamId,
    atf::Manifest,
    heph::{Attributes, Encode, Event, Stamp},
    profile::FunctionEvent,
};
use quickcheck::QuickCheck;

use super::{files::Out, *};
use crate::{Catalog, CatalogLimits, Run};

mod bounds;
mod given_up;
mod reopened;
mod spans;

/// How many bytes the disk takes before it is full, how often it refused, and whether it can keep room for a file.
#[derive(Clone)]
struct Small(Arc<AtomicI64>, Arc<AtomicU64>, Arc<AtomicBool>);

/// A file, the disk it is on, and how much room it has there for itself.
struct SmallFile(Box<dyn Out>, Small, u64);

impl Small {
    fn check(&self) -> io::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            ..=0 => {
                self.1.fetch_add(1, Ordering::Relaxed);
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }
}

impl Write for SmallFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.2 > 0 {
            let own = usize::try_from(self.2).unwrap_or(usize::MAX);
            let written = self.0.write(&bytes[..bytes.len().min(own)])?;
            self.2 -= written as u64;
            return Ok(written);
        }
        self.1.check()?;
        let room = usize::try_from(self.1.0.load(Ordering::Relaxed)).unwrap_or(0);
        let written = self.0.write(&bytes[..bytes.len().min(room)])?;
        self.1.0.fetch_sub(i64::try_from(written).expect("small"), Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Seek for SmallFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

impl Out for SmallFile {
    fn reserve(&mut self, _: u64, bytes: u64) -> io::Result<()> {
        let room = u64::try_from(self.1.0.load(Ordering::Relaxed)).unwrap_or(0);
        match self.1.2.load(Ordering::Relaxed) {
            false => return Err(io::ErrorKind::Unsupported.into()),
            true if room < bytes.saturating_sub(self.2) => return Err(io::ErrorKind::StorageFull.into()),
            true => self.2 = bytes,
        }
        Ok(())
    }
}

impl Files for Small {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.check()?;
        OsFiles.create_dir(path)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Box<dyn Out>> {
        Ok(Box::new(SmallFile(OsFiles.open(path, create)?, self.clone(), 0)))
    }

    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn Out>> {
        self.check()?;
        Ok(Box::new(SmallFile(OsFiles.create_locked(path)?, self.clone(), 0)))
    }

    /// Spans are what is removed for the room that it gives.
    fn remove(&self, path: &Path) -> io::Result<()> {
        let bytes = fs::metadata(path).map_or(0, |data| i64::try_from(data.len()).expect("small"));
        OsFiles.remove(path)?;
        if path.ends_with(super::spans::PARTIAL) {
            self.0.store(self.0.load(Ordering::Relaxed).saturating_add(bytes), Ordering::Relaxed);
        }
        Ok(())
    }
}

const NAME: &str = "20260101-000000-1";
const FOREVER: i64 = i64::MAX;

fn session(name: &str) -> Arc<Session> {
    let catalog = Catalog::new(CatalogLimits::default(), Arc::new(AtomicU64::new(0)));
    Arc::new(Session::new(name.into(), None, String::new(), 0, catalog))
}

/// An event on a function at this depth.
fn function(kind: EventKind, depth: u32, start: u64, end: u64) -> FunctionEvent<'static> {
    FunctionEvent {
        stamp: Stamp { start: SessionNs(start), end: SessionNs(end), ..Stamp::default() },
        kind,
        function: Some(FunctionId::new(ModuleId(1), 0)),
        ip: None,
        depth,
        detail: None,
        extra: Attributes::default(),
    }
}

struct Scene {
    dir: PathBuf,
    sink: DiskSink,
    session: Arc<Session>,
    room: Arc<AtomicI64>,
    refused: Arc<AtomicU64>,
    keeps_room: Arc<AtomicBool>,
    next: u64,
}

impl Scene {
    fn new(room: i64, limits: Limits) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("spoor-sinks-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let room = Arc::new(AtomicI64::new(room));
        let refused = Arc::new(AtomicU64::new(0));
        let keeps_room = Arc::new(AtomicBool::new(false));
        let files = Box::new(Small(Arc::clone(&room), Arc::clone(&refused), Arc::clone(&keeps_room)));
        let sink = DiskSink::with_files(DiskOptions::new(&dir), limits, files).expect("it opens");
        Self { dir, sink, session: session(NAME), room, refused, keeps_room, next: 0 }
    }

    /// Goes on with another session.
    fn turn_to(&mut self, name: &str) {
        (self.session, self.next) = (session(name), 0);
    }

    fn set_room(&self, bytes: i64) {
        self.room.store(bytes, Ordering::Relaxed);
    }

    /// Tells of this many calls and one plain event on stream 3.
    fn events(&mut self, calls: u32) -> Result<(), SinkError> {
        let mut bytes = Vec::new();
        for at in self.next..self.next + u64::from(calls) {
            function(EventKind::Call, 0, at, at).encode(&mut bytes).expect("it can be written");
        }
        let plain = Event { stamp: Stamp::default(), description: "plain", attributes: Attributes::default() };
        plain.encode(&mut bytes).expect("it can be written");
        let first = self.next;
        self.next += u64::from(calls) + 1;
        self.tell(3, first, calls + 1, bytes)
    }

    /// Tells of events of a stream that are in these packets.
    fn tell(&mut self, stream: u32, first: u64, events: u32, bytes: Vec<u8>) -> Result<(), SinkError> {
        let (stream, first) = (StreamId(stream), Position(first));
        let run = Run { stream, first, events, bytes: u32::try_from(bytes.len()).expect("small"), skip: 0 };
        let batch = Batch { session: Arc::clone(&self.session), bytes: bytes.into(), runs: vec![run] };
        self.sink.events(&Arc::new(batch))
    }

    fn manifest(&self, name: &str) -> Manifest {
        Manifest::parse(&fs::read(self.dir.join(name).join(room::MANIFEST)).expect("it is there")).expect("one")
    }

    /// Ends the session on a disk with room, and tells what its manifests say of the stream: written, missing.
    fn end(mut self) -> (u64, u64, Vec<String>) {
        self.set_room(FOREVER);
        self.sink.end(&self.session, &Ended::default()).expect("it ends");
        self.sink.close().expect("it closes");
        let (mut written, mut missing, mut causes) = (0, 0, Vec::new());
        for found in verify(&self.dir).expect("there is a session") {
            assert_eq!(found.problems, [""; 0], "{}", found.dir.display());
            let manifest = self.manifest(&found.dir.file_name().expect("a name").to_string_lossy());
            written += manifest.threads.iter().filter_map(|thread| thread.written).sum::<u64>();
            missing += manifest.missing().values().sum::<u64>();
            causes.extend(manifest.gaps.into_iter().map(|gap| gap.cause));
        }
        causes.sort();
        causes.dedup();
        assert_eq!(written + missing, self.next, "every event is accounted for");
        assert_eq!(self.sink.counters().lost_events.get(), missing);
        assert_eq!(self.sink.volume.pending, 0, "nothing waits any more");
        assert_eq!(self.sink.volume.handles.len(), 0);
        (written, missing, causes)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn a_disk_that_is_full_for_a_while_loses_nothing_that_fits_in_memory() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.events(100).expect("it takes events");
    scene.sink.flush().expect("it flushes");
    scene.set_room(1000);
    scene.events(100).expect("they wait in memory");
    assert!(matches!(scene.sink.flush(), Err(SinkError::Failed { .. })));
    scene.events(100).expect("they wait in memory");
    scene.set_room(FOREVER);
    scene.sink.flush().expect("there is room again");
    assert_eq!(scene.end(), (303, 0, vec![]));
}

#[test]
fn a_disk_that_stays_full_costs_events_and_says_so() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.events(10).expect("it takes events");
    scene.set_room(0);
    let mut failed = 0;
    for _ in 0..100 {
        failed += u32::from(scene.events(1000).is_err());
        let _ = scene.sink.flush();
    }
    assert!(failed > 50, "{failed} calls failed");
    assert!(scene.sink.volume.pending < (1 << 20) + (100 << 10), "memory is bounded");
    scene.set_room(FOREVER);
    scene.sink.flush().expect("there is room again");
    scene.events(10).expect("it takes events");
    let (written, missing, causes) = scene.end();
    assert!(written > 10_000 && missing > 50_000, "{written} written, {missing} missing");
    assert_eq!(causes, ["collector:disk-full"]);
}

#[test]
fn a_directory_that_cannot_be_made_is_made_later() {
    let mut scene = Scene::new(0, Limits::default());
    assert!(scene.sink.start(&Arc::clone(&scene.session)).is_err());
    scene.events(10).expect("they wait in memory");
    assert!(scene.sink.flush().is_err());
    assert_eq!(fs::read_dir(&scene.dir).expect("it is there").count(), 0);
    assert_eq!(scene.end(), (11, 0, vec![]));
}

#[test]
fn a_session_that_ends_on_a_full_disk_is_finished_later() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.events(500).expect("it takes events");
    scene.set_room(700);
    assert!(scene.sink.end(&Arc::clone(&scene.session), &Ended::default()).is_err());
    assert!(scene.sink.flush().is_err());
    assert!(scene.dir.join(NAME).join(journal::JOURNAL).exists());
    scene.set_room(FOREVER);
    scene.sink.flush().expect("there is room again");
    assert!(!scene.dir.join(NAME).join(journal::JOURNAL).exists());
    let found = verify(&scene.dir).expect("it is there").remove(0);
    assert_eq!((found.events, found.problems), (501, vec![]));
}

#[test]
fn an_index_that_is_full_is_followed_by_another_part() {
    let mut scene = Scene::new(FOREVER, Limits { most_events: 7, ..Limits::default() });
    scene.events(50).expect("it takes events");
    let dir = scene.dir.clone();
    assert!(dir.join(format!("{NAME}.7")).exists());
    assert_eq!(scene.end(), (51, 0, vec![]));
}

#[test]
fn streams_that_there_is_no_room_for_are_counted() {
    let mut scene = Scene::new(FOREVER, Limits { most_threads: 0, ..Limits::default() });
    assert!(scene.events(4).is_err());
    assert_eq!(scene.sink.counters().lost_events.get(), 5);
    scene.sink.end(&Arc::clone(&scene.session), &Ended::default()).expect("it ends");
    assert_eq!(scene.manifest(NAME).extra["unlisted_events"], 5);
}

#[test]
fn whenever_the_disk_fails_every_event_is_accounted_for() {
    fn check(steps: Vec<(u16, u8)>) {
        let limits = Limits {
            flush_bytes: 1000,
            stuck_bytes: 4000,
            flush_total: 3000,
            stuck_total: 6000,
            most_events: 300,
            ..Limits::default()
        };
        let mut scene = Scene::new(FOREVER, limits);
        for (room, action) in steps {
            scene.set_room(if room % 4 == 0 { FOREVER } else { i64::from(room % 5000) });
            match action % 4 {
                0 => _ = scene.sink.flush(),
                _ => _ = scene.events((action / 2).into()),
            }
        }
        scene.end();
    }
    QuickCheck::new().tests(200).quickcheck(check as fn(Vec<(u16, u8)>));
}
