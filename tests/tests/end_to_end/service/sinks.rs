//! Where a trace goes: several sinks at once, and what happens when one of them fails, lags or is full.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use codec::{
    heph::{MAX_PACKET_BYTES, Step, StreamDecoder},
    profile::{EndReason, Message},
};
use serde_json::Value;
use tests::{
    Agent, Collector, Folder, Settings, Trace, account,
    collector::{disk, run, run_on},
    trace::folders,
};

use crate::service::{LONG, eventually, finish, is_complete, trace, verified};

/// The events in a file of Heph packets, by stream and counter, which is their position.
#[track_caller]
fn heph_events(bytes: &[u8]) -> Vec<(u32, u64)> {
    let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
    let mut events = Vec::new();
    let mut at = 0;
    loop {
        match decoder.step_with(&bytes[at..], true, Message::decode) {
            Step::Packet { packet, bytes } => {
                at += bytes.len();
                if let Message::Function(event) = packet {
                    events.push((event.stamp.stream.0, event.stamp.counter.0.into()));
                }
            }
            Step::Skip { cause, .. } => panic!("not a packet at {at}: {cause}"),
            Step::More { .. } => return events,
        }
    }
}

/// The events in lines of JSON, by stream and position.
#[track_caller]
fn printed_events(text: &str) -> Vec<(u32, u64)> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("every line is JSON"));
    let place = |line: Value| Some((u32::try_from(line["stream"].as_u64()?).ok()?, line["position"].as_u64()?));
    let events = lines.filter(|line| line["type"] == "event");
    events.map(|line| place(line).expect("an event says where it is")).collect()
}

/// Fails the test unless these are all events of the agent, each once and in order within its stream.
#[track_caller]
fn are_all_of(agent: &Agent, events: &[(u32, u64)]) {
    let made: BTreeSet<_> = agent.program().all_made().map(|(stream, position, _)| (stream, position)).collect();
    assert_eq!(events.iter().copied().collect::<BTreeSet<_>>(), made);
    assert_eq!(events.len(), made.len(), "each once");
    for stream in 0..agent.program().streams() {
        let of_stream = events.iter().filter(|(id, _)| *id == stream);
        assert!(of_stream.map(|(_, position)| *position).is_sorted(), "stream {stream} is in order");
    }
}

/// An agent whose events all have detail, and so take much room: about six thousand of them a MiB.
#[track_caller]
fn detailed(collector: &Collector, seed: u64) -> Agent {
    Agent::start(Settings { detail_every: 1, ..Settings::tcp(collector.tcp(), seed) }).expect("it is heard")
}

/// The parts of an agent's session, in order, each of which is sound.
#[track_caller]
fn parts(folder: &Folder, agent: &Agent) -> Vec<Trace> {
    let mut parts = Trace::parts(folder.path(), agent.session());
    parts.sort_by_key(|part| part.manifest.part.unwrap_or(1));
    parts.iter().for_each(|part| verified(&part.folder));
    parts
}

/// How many bytes the files in a folder have.
fn bytes_below(folder: &Path) -> u64 {
    let tree = Folder::tree(folder);
    let files = tree.iter().filter_map(|path| fs::metadata(folder.join(path)).ok()).filter(|data| data.is_file());
    files.map(|data| data.len()).sum()
}

#[test]
fn all_sinks_get_the_same() {
    let folder = Folder::new("tee");
    let (out, file) = (folder.join("out"), folder.join("copy.heph"));
    let to_file = format!("heph:{}", file.display());
    let collector = Collector::to_disk(&out, &["--sink", "stdout:events", "--sink", &to_file]);
    let agent = trace(Settings::udp(collector.udp(), 1), 3_000);
    let exit = collector.stop().success();
    is_complete(&out, &agent);
    are_all_of(&agent, &printed_events(exit.text()));
    are_all_of(&agent, &heph_events(&fs::read(&file).expect("the file is there")));

    // The copy is as good as the network was.
    let again = folder.join("again");
    run(&["ingest", file.to_str().expect("a path"), "--sink", &disk(&again)]).success();
    assert_eq!(Trace::only(&again).contents(), Trace::only(&out).contents());
}

#[test]
fn packets_can_be_piped_on() {
    let (folder, collector) = Collector::in_folder("pipe", &["--sink", "stdout:heph"]);
    let agent = trace(Settings::tcp(collector.tcp(), 2), 1_000);
    let exit = collector.stop().success();
    are_all_of(&agent, &heph_events(&exit.stdout));
    is_complete(folder.path(), &agent);
}

#[test]
fn a_broken_pipe_stops_nobody_else() {
    let folder = Folder::new("broken");
    let mut collector = Collector::held(folder.path(), &["--sink", "stdout:events"]);
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 3)).expect("it is heard");
    agent.work(1_000).expect("it is taken");
    drop(collector.process().take_stdout());
    agent.work(5_000).expect("it is taken");
    finish(&mut agent);
    collector.stop().success();
    is_complete(folder.path(), &agent);
}

#[test]
fn a_reader_that_stops_reading_stops_nobody_else() {
    let folder = Folder::new("stuck");
    let collector = Collector::held(folder.path(), &["--sink", "stdout:events,on-full=drop"]);
    // Far more than a pipe holds.
    let agent = trace(Settings { streams: 4, ..Settings::tcp(collector.tcp(), 4) }, 40_000);
    let exit = collector.stop();
    assert_eq!(exit.code, Some(1), "it says that it could not finish them all: {}", exit.stderr);
    assert!(exit.stderr.contains("stdout:events takes nothing any more"), "{}", exit.stderr);
    is_complete(folder.path(), &agent);
}

#[test]
fn a_full_device_is_reported_once_and_stops_nobody_else() {
    let folder = Folder::new("device-full");
    let arguments = ["--sink", "heph:/dev/full", "--metrics", "127.0.0.1:0"];
    let collector = Collector::to_disk(folder.path(), &arguments);
    let agent = trace(Settings { streams: 4, ..Settings::tcp(collector.tcp(), 7) }, 20_000);
    eventually("what it lost is counted", || {
        collector.metrics().labelled("spoor_sink_errors_total", "sink", "heph:/dev/full") > Some(0.0)
    });
    let exit = collector.stop();
    let reports = exit.stderr.lines().filter(|line| line.contains("No space left on device")).count();
    assert_eq!(reports, 1, "{}", exit.stderr);
    assert_eq!(exit.code, Some(1), "one of its sinks has nothing");
    is_complete(folder.path(), &agent);
}

#[test]
fn a_long_session_is_split_into_parts() {
    let (folder, collector) = Collector::in_folder("rotate", &["--rotate-bytes", "1MiB"]);
    let mut agent = detailed(&collector, 5);
    for _ in 0..15 {
        agent.work(2_000).expect("it is taken");
        agent.settle(LONG).expect("it is acknowledged");
    }
    finish(&mut agent);
    collector.stop().success();
    let parts = parts(&folder, &agent);
    assert!(parts.len() >= 3, "only {} parts", parts.len());
    account::parts_hold(&parts, agent.program(), &BTreeSet::new());
    let positions = parts.iter().flat_map(|part| part.threads.get(&0)).flatten().map(|event| event.position);
    assert!(positions.eq(0..agent.program().made(0).len() as u64), "positions go on from part to part");
    assert!(parts.iter().all(|part| part.manifest.gaps.is_empty()));
    let ends = parts.iter().map(|part| part.manifest.end.as_ref().map_or("", |end| end.how.as_str()));
    let ends: Vec<_> = ends.collect();
    assert_eq!(ends.last(), Some(&"exited"));
    assert!(ends[..ends.len() - 1].iter().all(|how| *how == "rotated"), "{ends:?}");
}

#[test]
fn a_session_is_split_by_time_too() {
    let (folder, collector) = Collector::in_folder("rotate-time", &["--rotate-every", "1s"]);
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 6)).expect("it is heard");
    while !fs::read_dir(folder.path()).is_ok_and(|parts| parts.count() >= 2) {
        agent.work(50).expect("it is taken");
        agent.settle(LONG).expect("it is acknowledged");
    }
    finish(&mut agent);
    collector.stop().success();
    let parts = parts(&folder, &agent);
    assert!(parts.len() >= 2);
    account::parts_hold(&parts, agent.program(), &BTreeSet::new());
}

#[test]
fn the_oldest_makes_room_for_the_newest() {
    const MAX_BYTES: u64 = 4 << 20;
    let (folder, collector) = Collector::in_folder("room", &["--max-bytes", "4MiB", "--rotate-bytes", "1MiB"]);
    let mut agent = detailed(&collector, 7);
    for _ in 0..25 {
        agent.work(2_000).expect("it is taken");
        agent.settle(LONG).expect("it is acknowledged");
        let bytes = bytes_below(folder.path());
        assert!(bytes < MAX_BYTES + MAX_BYTES / 2, "{bytes} bytes on disk");
    }
    finish(&mut agent);
    collector.stop().success();
    let bytes = bytes_below(folder.path());
    assert!((MAX_BYTES / 4..=MAX_BYTES).contains(&bytes), "{bytes} bytes on disk");
    let parts = parts(&folder, &agent);
    assert!(parts.first().is_some_and(|part| part.manifest.part.unwrap_or(1) > 1), "the oldest is gone");
    let last = parts.iter().filter_map(|part| part.threads.get(&0)?.last()).next_back();
    assert_eq!(last.map(|event| event.position + 1), Some(agent.program().made(0).len() as u64), "the newest is there");
}

#[test]
fn only_the_owner_reads_a_trace_unless_told_otherwise() {
    for (arguments, of_folders, of_files) in [(&[][..], 0o700, 0o600), (&["--mode", "750"], 0o750, 0o640)] {
        let folder = Folder::new("mode");
        let collector = Collector::to_disk(&folder.join("traces"), arguments);
        trace(Settings::tcp(collector.tcp(), 1), 500);
        collector.stop().success();
        let mut left = vec![folder.join("traces")];
        while let Some(path) = left.pop() {
            let metadata = fs::metadata(&path).expect("it is there");
            let expected = if metadata.is_dir() { of_folders } else { of_files };
            assert_eq!(metadata.permissions().mode() & 0o777, expected, "{}", path.display());
            let entries = metadata.is_dir().then(|| fs::read_dir(&path).expect("a folder"));
            left.extend(entries.into_iter().flatten().map(|entry| entry.expect("an entry").path()));
        }
    }
}

#[test]
fn a_directory_that_was_moved_away_is_said_to_be_gone() {
    let folder = Folder::new("moved");
    let collector = Collector::to_disk(&folder.join("traces"), &[]);
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 1)).expect("it is heard");
    agent.work(1_000).expect("it is taken");
    eventually("there is a directory", || !folders(&folder.join("traces")).is_empty());
    let session = folders(&folder.join("traces")).remove(0);
    fs::rename(&session, folder.join("elsewhere")).expect("it is moved");
    // What is not there is not confirmed either.
    _ = agent.finish(EndReason::Exited(0), Duration::from_secs(2));
    let exit = collector.stop();
    assert!(exit.stderr.contains(&format!("{} was moved away or removed", session.display())), "{}", exit.stderr);
    assert!(exit.stderr.contains("1,000 received (the disk has not taken all of them) + 0 missing"), "{}", exit.stderr);
}

#[test]
fn being_told_to_stop_finishes_the_files() {
    for signal in ["TERM", "INT"] {
        let (folder, collector) = Collector::in_folder("stop", &[]);
        let mut agent = Agent::start(Settings::udp(collector.udp(), 8)).expect("it is heard");
        agent.work(2_000).expect("it is taken");
        agent.settle(LONG).expect("it is acknowledged");
        let exit = collector.end_by(signal).success();
        assert!(exit.stderr.replace(',', "").contains("2000"), "the summary tells of the events: {}", exit.stderr);
        let trace = is_complete(folder.path(), &agent);
        assert_eq!(trace.manifest.end.expect("it has ended").how, "stopped");
        let verified = run_on("verify", folder.path(), &[]).success();
        assert!(verified.text().contains("it ends with «stopped»"), "{}", verified.text());
    }
}

#[test]
fn once_means_until_the_first_session_has_ended() {
    let (folder, collector) = Collector::in_folder("once", &["--once"]);
    let agent = trace(Settings::udp(collector.udp(), 9), 800);
    collector.exit(LONG).success();
    is_complete(folder.path(), &agent);
}
