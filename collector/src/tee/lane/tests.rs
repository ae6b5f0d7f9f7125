use std::sync::{Mutex, mpsc::SyncSender};

use bytes::Bytes;
use codec::{Position, StreamId, atf::EndEntry};
use sinks::{Batch, Catalog, CatalogLimits, Ended, Gap, Run, Session};

use super::*;

/// A sink that writes down what it is told, and waits before each call as long as it is held.
struct Told {
    story: Arc<Mutex<Vec<String>>>,
    held: Receiver<()>,
}

impl Told {
    fn enter(&self, line: String) -> Result<(), SinkError> {
        // Disconnected means that nobody holds it any more.
        _ = self.held.recv();
        self.story.lock().expect("nobody panicked").push(line);
        Ok(())
    }
}

impl Sink for Told {
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        self.enter(format!("start {}", session.name))
    }

    fn options(&mut self, _: &Arc<Session>, _: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }

    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        self.enter(format!("{} events {}", batch.session.name, batch.events()))
    }

    fn gap(&mut self, session: &Arc<Session>, gap: &Gap) -> Result<(), SinkError> {
        self.enter(format!("{} gap {}+{} {}", session.name, gap.first.0, gap.count, gap.cause))
    }

    fn end(&mut self, session: &Arc<Session>, _: &Ended) -> Result<(), SinkError> {
        self.enter(format!("end {}", session.name))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn close(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

struct Scene {
    lane: Lane,
    story: Arc<Mutex<Vec<String>>>,
    hold: SyncSender<()>,
}

/// A lane with room for 64 KiB, whose sink is held.
fn scene() -> Scene {
    let story = Arc::new(Mutex::default());
    let (hold, held) = mpsc::sync_channel(0);
    let sink = Box::new(Told { story: story.clone(), held });
    let (notices, ending) = (Arc::new(Notices::new()), Arc::new(Ending::default()));
    let lane = Lane::start("test".into(), sink, OnFull::Drop, 64 << 10, None, notices, ending).expect("a thread");
    Scene { lane, story, hold }
}

fn session(name: &str) -> Arc<Session> {
    let catalog = Catalog::new(CatalogLimits::default(), Arc::default());
    Arc::new(Session::new(name.into(), None, "test".into(), 0, catalog))
}

fn events(session: &Arc<Session>, stream: u32, first: u64, bytes: usize) -> Item {
    let run = Run { stream: StreamId(stream), first: Position(first), events: 1, bytes: 0, skip: 0 };
    Item::Events(Arc::new(Batch { session: session.clone(), bytes: Bytes::from(vec![0; bytes]), runs: vec![run] }))
}

fn ended(session: &Arc<Session>) -> Item {
    Item::Ended(session.clone(), Ended { end: EndEntry::default(), limits: Vec::new() })
}

/// Lets the sink go on, and waits for its end.
fn story(scene: Scene) -> Vec<String> {
    drop(scene.hold);
    assert!(scene.lane.end().join().expect("no panic"));
    Arc::into_inner(scene.story).expect("the sink is gone").into_inner().expect("nobody panicked")
}

/// Waits until nothing is in the queue.
fn settle(lane: &Lane) {
    while lane.counters.queued_bytes.load(Relaxed) > 0 {
        thread::yield_now();
    }
}

#[tokio::test]
async fn a_sink_that_was_full_hears_of_what_it_missed() {
    let mut scene = scene();
    let (first, second) = (session("first"), session("second"));
    scene.lane.give(Item::Started(first.clone())).await;
    scene.lane.give(events(&first, 0, 0, 60 << 10)).await;
    scene.lane.give(events(&first, 0, 1, 60 << 10)).await;
    scene
        .lane
        .give(Item::Gap(
            first.clone(),
            Gap { stream: StreamId(0), first: Position(2), count: 5, cause: "network".into() },
        ))
        .await;
    // There is no room left even to say that another session has started.
    for position in 0..10 {
        scene.lane.give(events(&first, 1, position, 1)).await;
    }
    scene.lane.give(Item::Started(second.clone())).await;
    scene.lane.give(events(&second, 0, 0, 60 << 10)).await;
    assert!(scene.lane.untold.contains("second"));
    for _ in 0..2 {
        scene.hold.send(()).expect("a sink");
    }
    // What got in between is let through too.
    while scene.lane.counters.queued_bytes.load(Relaxed) > 0 {
        _ = scene.hold.try_send(());
        thread::yield_now();
    }
    scene.lane.give(events(&second, 0, 1, 100)).await;
    scene.lane.give(ended(&second)).await;
    scene.lane.give(ended(&first)).await;
    let lost = scene.lane.counters.not_given.load(Relaxed);
    let told = story(scene);
    let of = |name: &str| told.iter().filter(|line| line.contains(name)).cloned().collect::<Vec<_>>();
    let second = ["start second", "second gap 0+1 collector:sink-full", "second events 1", "end second"];
    assert_eq!(of("second"), second);
    let first = of("first");
    assert!(first.contains(&"first gap 1+1 collector:sink-full".into()), "{first:?}");
    assert!(first.iter().any(|line| line.ends_with("network")), "the cause stays: {first:?}");
    assert!(lost >= 2);
}

#[tokio::test]
async fn what_is_owed_does_not_outgrow_the_queue() {
    let mut scene = scene();
    let session = session("many");
    scene.lane.give(Item::Started(session.clone())).await;
    for round in 0..50 {
        for stream in 0..500 {
            scene.lane.give(events(&session, stream, round, 2048)).await;
        }
        assert!(scene.lane.counters.queued_bytes.load(Relaxed) <= 256 << 10, "in round {round}");
        // The sink takes one thing now and then.
        scene.hold.send(()).expect("a sink");
    }
    scene.lane.give(ended(&session)).await;
    let told = story(scene);
    assert_eq!(told.last().map(String::as_str), Some("end many"));
}

#[tokio::test]
async fn a_sink_that_keeps_up_misses_nothing() {
    let mut scene = scene();
    drop(std::mem::replace(&mut scene.hold, mpsc::sync_channel(0).0));
    let session = session("all");
    scene.lane.give(Item::Started(session.clone())).await;
    for position in 0..100 {
        scene.lane.give(events(&session, 0, position, 4096)).await;
        settle(&scene.lane);
    }
    assert_eq!(scene.lane.counters.not_given.load(Relaxed), 0);
    assert_eq!(story(scene).len(), 101);
}
