//! Programs that are killed at full speed: every call that they made is in the trace or in a gap, to the last one.

use std::{fs, path::Path, thread, time::Duration};

use codec::EventKind;
use tests::{
    Collector, Folder, Process, Random, Shaker, Target, Trace, Transport, agent_command, collector::verified, counts,
    process::Stdout, shaker::EXACT_LEVELS, trace::Recorded,
};

use crate::tracing::{LONG, child, eventually, kill};

const ROUNDS: u64 = 8;
const THREADS: usize = 3;

#[test]
fn every_call_of_a_killed_program_is_there_or_missing() {
    agent_command::prepare();
    for round in 0..ROUNDS {
        let mut random = Random::new(round);
        let transport = if random.chance(0.5) { Transport::Udp } else { Transport::Tcp };
        let blocks = random.chance(0.5);
        let folder = Folder::new("killed");
        let (slots, traces) = (folder.join("slots"), folder.join("traces"));
        let collector = Collector::events_to_disk(&traces);
        let pace = if blocks { "--complete" } else { "--budget=none" };
        let options = [pace, "--ring-bytes", "64KiB", "--no-detail"];
        let program = Target::named("endless").program();
        let mut command = agent_command::run_to(collector.address(transport), transport, &options);
        command.arg(&program).arg(&slots).arg(THREADS.to_string());
        let agent = Process::start(command, Stdout::Collect);
        let pid = child(agent.pid(), &program);
        eventually("all threads call", || counted(&slots).iter().filter(|(calls, _)| *calls > 0).count() == THREADS);
        thread::sleep(Duration::from_micros(random.below(300_000)));
        kill("KILL", pid);
        let exit = agent.exit(LONG);
        assert_eq!(exit.signal, Some(9), "{}", exit.stderr);
        collector.stop().success();
        let trace = Trace::only(&traces);
        verified(&trace.folder);
        let about = format!("round {round}, {transport:?}, {pace}: {}", exit.stderr);
        is_all_there(&trace, counted(&slots), blocks, &about);
    }
}

#[test]
fn every_call_of_a_killed_program_is_recorded_or_counted() {
    agent_command::prepare();
    for round in 0..4 {
        let folder = Folder::new("killed-counted");
        let (slots, traces) = (folder.join("slots"), folder.join("traces"));
        let collector = Collector::events_to_disk(&traces);
        let options = ["--complete", "--ring-bytes", "64KiB", "--no-detail", "--engine", "native"];
        let program = Target::named("endless").program();
        let mut command = agent_command::run_to(collector.address(Transport::Tcp), Transport::Tcp, &options);
        command.arg(&program).arg(&slots).arg(THREADS.to_string());
        let agent = Process::start(command, Stdout::Collect);
        let shaker = Shaker::start(agent.pid(), round, EXACT_LEVELS);
        let pid = child(agent.pid(), &program);
        eventually("all threads call", || counted(&slots).iter().filter(|(calls, _)| *calls > 0).count() == THREADS);
        thread::sleep(Duration::from_millis(100 + 50 * round));
        kill("KILL", pid);
        shaker.stop();
        let exit = agent.exit(LONG);
        assert_eq!(exit.signal, Some(9), "{}", exit.stderr);
        collector.stop().success();
        let trace = Trace::only(&traces);
        let told: u64 = counted(&slots).iter().map(|(calls, _)| calls).sum();
        let recorded = counts::of_functions(&trace, "tiny").calls;
        let counted = counts::turned_down(&trace).get("tiny").copied().unwrap_or(0);
        let about = format!("{told} calls, {recorded} recorded, {counted} counted: {}", exit.stderr);
        assert!((told..=told + THREADS as u64).contains(&(recorded + counted)) && counted > 0, "{about}");
    }
}

/// The calls and returns that each thread counted.
fn counted(slots: &Path) -> Vec<(u64, u64)> {
    let bytes = fs::read(slots).unwrap_or_default();
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    bytes.chunks_exact(64).map(|slot| (word(&slot[..8]), word(&slot[8..16]))).collect()
}

/// What a trace has of a thread: calls, returns, and events in gaps.
#[derive(Debug)]
struct Found {
    calls: u64,
    returns: u64,
    missing: u64,
}

impl Found {
    fn events(&self) -> u64 {
        self.calls + self.returns + self.missing
    }
}

/// What a trace has of the threads that call, those with fewest events first.
fn found(trace: &Trace) -> Vec<Found> {
    let calling = |kind, events: &[Recorded]| {
        let of_it = |event: &&Recorded| event.kind == kind && event.name.as_deref() == Some("tiny");
        events.iter().filter(of_it).count() as u64
    };
    let found = trace.threads.iter().map(|(id, events)| Found {
        calls: calling(EventKind::Call, events),
        returns: calling(EventKind::Return, events),
        missing: trace.manifest.gaps.iter().filter(|gap| gap.thread == *id).map(|gap| gap.count).sum(),
    });
    let mut found: Vec<_> = found.filter(|found| found.calls > 0).collect();
    found.sort_by_key(Found::events);
    found
}

/// Fails the test unless the trace has what the threads counted, and of each thread at most the call and the return more
/// that had begun when it was killed. Who is who need not be known: if it holds for each, it holds in order.
#[track_caller]
fn is_all_there(trace: &Trace, mut counted: Vec<(u64, u64)>, blocks: bool, about: &str) {
    let found = found(trace);
    counted.sort_by_key(|(calls, returns)| calls + returns);
    assert_eq!(found.len(), counted.len(), "{about}");
    for (found, (calls, returns)) in found.iter().zip(counted) {
        let about = format!("{calls} calls and {returns} returns counted, {found:?}; {about}");
        assert!((calls + returns..=calls + returns + 2).contains(&found.events()), "{about}");
        if blocks {
            assert_eq!(found.missing, 0, "{about}");
            assert!((calls..=calls + 1).contains(&found.calls), "{about}");
            assert!((returns..=returns + 1).contains(&found.returns), "{about}");
        }
    }
}
