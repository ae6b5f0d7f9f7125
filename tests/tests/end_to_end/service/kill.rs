//! The collector is killed in the middle of a capture. What was in its files is there after a repair.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use codec::profile::EndReason;
use tests::{
    Agent, Collector, Folder, Random, Settings, Trace, Transport,
    collector::run_on,
    trace::{self, indexed},
};

use crate::service::{eventually, machine, verified};

/// How long a capture lasts at least. Files are flushed at least every 200 ms.
const CAPTURE: Duration = Duration::from_millis(300);

const ROUNDS: u64 = 30;
const AT_ONCE: u64 = 3;

#[test]
fn what_was_flushed_survives_a_kill() {
    let _machine = machine();
    let lanes: Vec<_> = (0..AT_ONCE)
        .map(|lane| {
            thread::spawn(move || (0..ROUNDS / AT_ONCE).map(|round| survivors(lane << 16 | round)).sum::<u64>())
        })
        .collect();
    let survivors: u64 = lanes.into_iter().map(|lane| lane.join().expect("every round ends well")).sum();
    assert!(survivors > 10_000, "only {survivors} events were there to survive");
}

/// Kills a collector at some moment, repairs what it left, and tells how many events had to be there, and were.
fn survivors(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let (folder, collector) = Collector::in_folder("kill", &[]);
    let transport = if random.chance(0.5) { Transport::Udp } else { Transport::Tcp };
    let mut agent = Agent::start(Settings::new(&collector, transport, seed)).expect("it is heard");
    let moment = Instant::now() + CAPTURE + Duration::from_millis(random.below(250));
    while Instant::now() < moment {
        agent.work(100).expect("it is taken");
    }
    let session = only_folder(&folder);
    let flushed: Vec<u64> = (0..agent.program().streams()).map(|stream| indexed(&session, stream)).collect();
    collector.kill();
    run_on("repair", &session, &[]).success();
    verified(&session);
    let trace = Trace::of(folder.path(), agent.session());
    assert_eq!(trace.manifest.end.as_ref().map(|end| end.how.as_str()), Some("killed"));
    (0..).zip(flushed).map(|(stream, flushed)| survived(&agent, &trace, stream, flushed)).sum()
}

/// How many events of a stream had to be there, and are.
fn survived(agent: &Agent, trace: &Trace, stream: u32, flushed: u64) -> u64 {
    let events = trace.threads.get(&stream).map_or(&[][..], Vec::as_slice);
    let found = events.len() as u64;
    assert!(found >= flushed, "of stream {stream}, {flushed} events were in the file, and {found} are there");
    for (position, (made, event)) in (0..).zip(agent.program().made(stream).iter().zip(events)) {
        tests::account::same(stream, position, made, event);
    }
    flushed
}

#[test]
fn what_is_acknowledged_is_flushed_soon() {
    let (folder, collector) = Collector::in_folder("flush", &[]);
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 9)).expect("it is heard");
    agent.work(1000).expect("it is taken");
    agent.settle(Duration::from_secs(10)).expect("it is acknowledged");
    let settled = Instant::now();
    let session = only_folder(&folder);
    let events: u64 = (0..agent.program().streams()).map(|stream| agent.program().made(stream).len() as u64).sum();
    let flushed = || (0..agent.program().streams()).map(|stream| indexed(&session, stream)).sum::<u64>();
    // Far more than the 200 ms that are promised, for a machine that has much else to do.
    while flushed() < events && settled.elapsed() < Duration::from_secs(5) {
        thread::yield_now();
    }
    assert_eq!(flushed(), events, "without an end of the session");
}

/// Over UDP a session whose agent shows no secret stays open for a moment after its end was told: options may be late.
#[test]
fn a_session_that_had_ended_is_finished_by_the_next_collector() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (folder, collector) = Collector::in_folder("ended", &["--reorder-time", "2s"]);
        let mut agent = Agent::start(Settings::new(&collector, transport, 11)).expect("it is heard");
        agent.work(1000).expect("it is taken");
        let session = only_folder(&folder);
        let told = thread::scope(|scope| {
            let told = scope.spawn(|| agent.finish(EndReason::Exited(3), Duration::from_secs(10)));
            let stays_open = transport == Transport::Udp;
            let is_open = || session.join("journal.heph").exists();
            eventually("the end is in a file", || has_end(&session) && (stays_open || !is_open()));
            if stays_open {
                assert!(is_open());
                collector.kill();
                return told.join().expect("it does not panic");
            }
            let told = told.join().expect("it does not panic");
            collector.kill();
            told
        });
        let was_open = session.join("journal.heph").exists();
        assert_eq!(told.is_ok(), !was_open, "it is told that this is the end when it is in files");
        let collector = Collector::to_disk(folder.path(), &[]);
        let said = collector.said();
        assert_eq!(said.contains("had ended when its collector was killed"), was_open, "{said}");
        collector.stop().success();
        verified(&session);
        let trace = Trace::of(folder.path(), agent.session());
        let end = trace.manifest.end.clone().expect("it is finished");
        assert_eq!((end.how.as_str(), end.code, end.at_ns.is_some()), ("exited", Some(3), true));
        tests::account::complete(&trace, agent.program());
    }
}

/// Whether the files of a session say how it ended, and have all that came before.
fn has_end(session: &Path) -> bool {
    let unfinished = sinks::disk::look_at_unfinished(session);
    unfinished.is_ok_and(|unfinished| unfinished.is_none_or(|unfinished| unfinished.manifest.end.is_some()))
}

/// The folder of the one session, which is made a moment after its first packet has come.
fn only_folder(folder: &Folder) -> PathBuf {
    eventually("there is a session", || !trace::folders(folder.path()).is_empty());
    let folders = trace::folders(folder.path());
    assert_eq!(folders.len(), 1, "there is one session");
    folders[0].clone()
}
