//! Sessions whose clocks differ, laid on one time line.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use codec::{EventKind, atf::OffsetEntry, profile::EndReason};
use real_agent::drain::Clock;
use serde_json::Value;
use tests::{
    Agent, Collector, Faults, Relay, Settings, Trace,
    agent::{CLOCK_ZERO_NS, EPOCH_UNIX_NS},
    collector::{run_on, verified},
};

use crate::service::LONG;

/// How long agents ask for the time: often enough for one answer that was not delayed.
const ASKING: Duration = Duration::from_millis(500);

/// By how much the wall clock may be moved while the test runs, by whoever keeps it right.
const SLACK_NS: u64 = 2_000_000;

/// The clock of both agents is that of this machine, but their zeros are not, and their wall clocks are years off.
#[test]
fn the_offset_of_every_clock_is_measured_and_the_error_covers_it() {
    let (folder, collector) = Collector::in_folder("clocks", &[]);
    let faults = Faults { delay: 0.5, delay_at_most: Duration::from_millis(20), ..Faults::NONE };
    let relay = Relay::start(collector.udp(), 3, faults).expect("a socket");
    let zeros = [CLOCK_ZERO_NS, 1_000_000_000];
    let settings = [Settings::tcp(collector.tcp(), 1), Settings::udp(relay.address(), 2)];
    let clock = Clock::start();
    let mut sessions = Vec::new();
    for (settings, clock_zero_ns) in settings.into_iter().zip(zeros) {
        let mut agent = Agent::start(Settings { clock_zero_ns, ..settings }).expect("it is heard");
        agent.work(1_000).expect("it is taken");
        // Some are asked and answered.
        let asking = Instant::now();
        while asking.elapsed() < ASKING {
            agent.listen(Duration::from_millis(10));
        }
        agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
        sessions.push(agent.session());
    }
    collector.stop().success();
    for (session, zero_ns) in sessions.into_iter().zip(zeros) {
        let trace = Trace::of(folder.path(), session);
        verified(&trace.folder);
        let OffsetEntry { zero_unix_ns, error_ns, at_ns } = trace.manifest.offset.expect("it was measured");
        // By the wall clock of this machine, which is the collector's.
        let truth = clock.epoch_unix_ns() - clock.zero_ns() + zero_ns;
        let off = zero_unix_ns.abs_diff(truth);
        assert!(off <= error_ns + SLACK_NS, "off by {off} ns, and the error is {error_ns} ns");
        assert!(error_ns < 25_000_000 && at_ns > zero_ns, "{error_ns} ns, at {at_ns}");
        let info = run_on("info", &trace.folder, &[]).success().text().to_string();
        let said = info.lines().find(|line| line.contains("the collector's is")).expect("it is said").to_string();
        assert!(said.contains(" ahead of the sender's, ± ") && truth > EPOCH_UNIX_NS, "{said}");
        is_aligned(&trace, zero_unix_ns);
    }
}

/// Fails the test unless the commands tell times by the collector's clock when they are asked to.
#[track_caller]
fn is_aligned(trace: &Trace, zero_unix_ns: u64) {
    let first = |arguments: &[&str], key: &str| -> u64 {
        let text = run_on("events", &trace.folder, arguments).success().text().to_string();
        let line = text.lines().find(|line| line.contains(key)).expect("there are events");
        serde_json::from_str::<Value>(line).expect("JSON")[key].as_u64().expect("a time")
    };
    let (plain, aligned) = (first(&["--json"], "end_ns"), first(&["--json", "--align"], "end_ns"));
    assert_eq!(aligned, plain + zero_unix_ns);
    let text = run_on("events", &trace.folder, &["--align"]).success().text().to_string();
    let seconds = format!("{}.{:09}", aligned / 1_000_000_000, aligned % 1_000_000_000);
    assert!(text.trim_start().starts_with(&seconds), "{seconds}, not {}", text.lines().next().unwrap_or_default());
    let spans = run_on("spans", &trace.folder, &["--align", "--json", "--sort", "start", "--limit", "1"]).success();
    let spans = spans.text().to_string();
    let start = serde_json::from_str::<Value>(spans.lines().next_back().expect("a span")).expect("JSON");
    assert_eq!(start["start_ns"].as_u64(), Some(aligned), "{spans}");
    let count = |arguments: &[&str]| run_on("spans", &trace.folder, arguments).success().text().lines().count();
    let (all, second) = (count(&["--align"]), format!("{}s", aligned / 1_000_000_000));
    assert_eq!((count(&["--align", "--from", &second]), count(&["--align", "--to", &second])), (all, 1));
    let calls = trace.threads.values().flatten().filter(|event| event.kind == EventKind::Call);
    assert_eq!(calls.map(|event| event.time_ns).min(), Some(plain));
    let file = trace.folder.join("aligned.json");
    export(&trace.folder, &file);
    let chrome = fs::read_to_string(&file).expect("it was written");
    let micros = format!("{}.{:03}", aligned / 1_000, aligned % 1_000);
    assert!(chrome.contains(micros.trim_end_matches('0').trim_end_matches('.')), "no {micros} in the picture");
}

#[track_caller]
fn export(folder: &Path, file: &Path) {
    let file = file.display().to_string();
    run_on("export", folder, &["--format", "chrome", "--align", "-o", &file]).success();
}

#[test]
fn a_session_without_a_measurement_cannot_be_aligned() {
    let (folder, collector) = Collector::in_folder("unaligned", &[]);
    let agent = Agent::start(Settings::tcp(collector.tcp(), 5)).expect("it is heard");
    drop(agent);
    collector.stop().success();
    let session = &tests::trace::folders(folder.path())[0];
    let exit = run_on("events", session, &["--align"]);
    assert_eq!(exit.code, Some(1));
    assert!(exit.stderr.contains("--align") && exit.stderr.contains("clock"), "{}", exit.stderr);
}
