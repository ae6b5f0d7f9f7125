use std::{
    io::{self, Write},
    sync::{
        Mutex,
        mpsc::{self, Receiver, SyncSender},
    },
};

use bytes::Bytes;
use codec::{Position, StreamId};
use collector_core::{Batch, Catalog, CatalogLimits, Gap, How, Run, Session, Summary};

use super::*;
use crate::sink_spec::Target;

/// A sink that writes down what it is given, with so many bytes behind each line.
struct Recording {
    story: Arc<Mutex<Vec<String>>>,
    out: BackgroundWriter,
}

impl Recording {
    fn enter(&mut self, line: String, bytes: usize) -> Result<(), SinkError> {
        self.story.lock().expect("nobody panicked").push(line);
        self.out.write_all(&vec![0; bytes]).map_err(|error| SinkError::from_io("cannot write", error))
    }
}

impl Sink for Recording {
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        self.enter(format!("start {}", session.name), 1)
    }

    fn options(&mut self, _: &Arc<Session>, _: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }

    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        self.enter(format!("{} events {}", batch.session.name, batch.events()), batch.bytes.len())
    }

    fn gap(&mut self, session: &Arc<Session>, gap: &Gap) -> Result<(), SinkError> {
        self.enter(format!("{} gap {}+{} {}", session.name, gap.first.0, gap.count, gap.cause), 1)
    }

    fn end(&mut self, session: &Arc<Session>, _: &Ended) -> Result<(), SinkError> {
        self.enter(format!("end {}", session.name), 1)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn close(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A reader that reads only when it is let.
struct Held(Receiver<()>);

impl Write for Held {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Disconnected means that nobody holds it any more.
        _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Scene {
    slot: Slot,
    story: Arc<Mutex<Vec<String>>>,
    hold: SyncSender<()>,
    out: BackgroundWriter,
}

/// A sink that is not waited for, and whose reader is held.
fn scene() -> Scene {
    let story = Arc::new(Mutex::default());
    let (hold, held) = mpsc::sync_channel(0);
    let counters = Arc::new(SinkCounters::default());
    let out = BackgroundWriter::new(Held(held), &counters, false);
    let sink = SinkRef::Own(Box::new(Recording { story: Arc::clone(&story), out: out.clone() }));
    let setting = SinkSetting {
        target: Target::StdoutEvents,
        on_full: OnFull::Drop,
        max_bytes: None,
        rotate_bytes: None,
        sync: sinks::SyncWhen::Never,
        rotate_every: None,
        otlp_min: Duration::ZERO,
        nats: (fleet::Access::default(), fleet::Keeping { replicas: 1, max_bytes: 0, max_age: None }),
    };
    let slot =
        Slot::new("test", &setting, sink, Some(out.clone()), &Arc::default(), &counters, &Arc::new(Notices::new()));
    Scene { slot, story, hold, out }
}

impl Scene {
    fn offer(&mut self, output: &Output) {
        let ended = matches!(output, Output::Ended(..)).then(Ended::default);
        self.slot.offer(output, ended.as_ref(), &[]);
    }

    fn told(&self, name: &str) -> Vec<String> {
        let story = self.story.lock().expect("nobody panicked");
        story.iter().filter(|line| line.contains(name)).cloned().collect()
    }
}

fn session(name: &str) -> Arc<Session> {
    let catalog = Catalog::new(CatalogLimits::default(), Arc::default());
    Arc::new(Session::new(name.into(), None, "test".into(), 0, catalog))
}

fn events(session: &Arc<Session>, stream: u32, first: u64, bytes: usize) -> Output {
    let run = Run { stream: StreamId(stream), first: Position(first), events: 1, bytes: 0, skip: 0 };
    let batch = Batch { session: Arc::clone(session), bytes: Bytes::from(vec![0; bytes]), runs: vec![run] };
    Output::Events(Arc::new(batch))
}

fn ended(session: &Arc<Session>) -> Output {
    let summary = Summary {
        name: None,
        id: None,
        how: How::Closed,
        at: None,
        streams: 0,
        written: 0,
        missing: Default::default(),
        late: 0,
        duplicates: 0,
        restarts: 0,
    };
    Output::Ended(Arc::clone(session), summary)
}

const MUCH: usize = 20 << 20;

#[test]
fn a_sink_that_was_full_hears_of_what_it_missed() {
    let mut scene = scene();
    let (first, second) = (session("first"), session("second"));
    scene.offer(&Output::Started(Arc::clone(&first)));
    scene.offer(&events(&first, 0, 0, MUCH));
    scene.offer(&events(&first, 0, 1, 1));
    let gap = Gap { stream: StreamId(0), first: Position(2), count: 5, cause: Cause::network() };
    scene.offer(&Output::Gap(Arc::clone(&first), gap));
    (0..10).for_each(|position| scene.offer(&events(&first, 1, position, 1)));
    // There is no room even to say that another session has started.
    scene.offer(&Output::Started(Arc::clone(&second)));
    scene.offer(&events(&second, 0, 0, 1));
    assert_eq!(scene.told("second"), [""; 0]);
    assert_eq!(scene.slot.counters.not_given.load(Relaxed), 12);
    drop(std::mem::replace(&mut scene.hold, mpsc::sync_channel(0).0));
    scene.out.finish();
    scene.offer(&events(&second, 0, 1, 100));
    scene.offer(&ended(&second));
    scene.offer(&ended(&first));
    let missed = ["start second", "second gap 0+1 collector:sink-full", "second events 1", "end second"];
    assert_eq!(scene.told("second"), missed);
    let first = [
        "start first",
        "first events 1",
        "first gap 1+1 collector:sink-full",
        "first gap 2+5 network",
        "first gap 0+10 collector:sink-full",
        "end first",
    ];
    assert_eq!(scene.told("first"), first);
}

#[test]
fn a_session_that_a_full_sink_never_heard_of_ends_unheard() {
    let mut scene = scene();
    let (known, unknown) = (session("known"), session("other"));
    scene.offer(&Output::Started(Arc::clone(&known)));
    scene.offer(&events(&known, 0, 0, MUCH));
    scene.offer(&Output::Started(Arc::clone(&unknown)));
    scene.offer(&events(&unknown, 0, 0, 1));
    scene.offer(&ended(&unknown));
    assert_eq!(scene.told("other"), [""; 0]);
    // One that it knows must end, however full it is.
    let counters = Arc::clone(&scene.slot.counters);
    let hold = std::mem::replace(&mut scene.hold, mpsc::sync_channel(0).0);
    drop(hold);
    scene.offer(&ended(&known));
    assert_eq!(scene.told("known"), ["start known", "known events 1", "end known"]);
    assert_eq!(counters.not_given.load(Relaxed), 1);
}

#[test]
fn a_reader_that_is_gone_closes_the_sink() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut scene = scene();
    let out = BackgroundWriter::new(Gone, &scene.slot.counters, true);
    scene.slot.sink = SinkRef::Own(Box::new(Recording { story: Arc::clone(&scene.story), out: out.clone() }));
    let session = session("it");
    scene.offer(&Output::Started(Arc::clone(&session)));
    out.finish();
    scene.offer(&events(&session, 0, 0, 1));
    assert!(scene.slot.is_closed());
    scene.offer(&events(&session, 0, 1, 1));
    assert_eq!(scene.slot.counters.not_given.load(Relaxed), 1);
}
