//! The collector is killed in the middle of a capture. What was acknowledged some time before is there.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use tests::{Agent, Collector, Folder, Random, Settings, Trace, collector::run_on, trace};

use crate::{machine, verified};

/// What was acknowledged this long before has surely been flushed: that happens at least every 200 ms.
const FLUSHED_AFTER: Duration = Duration::from_millis(400);

const ROUNDS: u64 = 30;
const AT_ONCE: u64 = 3;

#[test]
fn what_was_acknowledged_survives_a_kill() {
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
    let folder = Folder::new("kill");
    let collector = Collector::to_disk(folder.path(), &[]);
    let settings = match random.chance(0.5) {
        true => Settings::udp(collector.udp(), seed),
        false => Settings::tcp(collector.tcp(), seed),
    };
    let mut agent = Agent::start(settings).expect("it is heard");
    let moment = Instant::now() + FLUSHED_AFTER + Duration::from_millis(random.below(250));
    while Instant::now() < moment {
        agent.work(100).expect("it is taken");
    }
    let killed = Instant::now();
    collector.kill();
    let session = only_folder(&folder);
    run_on("repair", &session, &[]).success();
    verified(&session);
    let trace = Trace::of(folder.path(), agent.session());
    assert_eq!(trace.manifest.end.as_ref().map(|end| end.how.as_str()), Some("killed"));
    (0..agent.settings().streams).map(|stream| survived(&agent, &trace, stream, killed)).sum()
}

/// How many events of a stream had to be there.
fn survived(agent: &Agent, trace: &Trace, stream: u32, killed: Instant) -> u64 {
    let sure =
        agent.history().iter().filter(|settled| settled.stream == stream && settled.at + FLUSHED_AFTER <= killed);
    let sure = sure.map(|settled| settled.next).max().unwrap_or(0);
    let events = trace.threads.get(&stream).map_or(&[][..], Vec::as_slice);
    let found = events.iter().take_while(|event| event.position < sure).count() as u64;
    assert_eq!(found, sure, "of stream {stream}, {sure} events were acknowledged, and {found} are there");
    for (position, (made, event)) in (0..).zip(agent.made(stream).iter().zip(events)) {
        tests::account::same(stream, position, made, event);
    }
    sure
}

fn only_folder(folder: &Folder) -> PathBuf {
    let folders = trace::folders(folder.path());
    assert_eq!(folders.len(), 1, "there is one session");
    folders[0].clone()
}
