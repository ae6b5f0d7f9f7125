//! Delivering from rings to the real collector: everything arrives, or is told to be missing.
//!
//! The rings are real and the threads that write to them are not, so that what was produced is known exactly.

#[allow(dead_code)]
#[path = "../../../../agent/src/drain/fake.rs"]
mod fake;
mod full_disk;
mod going_on;
mod rig;
mod way;

use std::{
    collections::BTreeSet,
    io::Read,
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use codec::profile::EndReason;
use real_agent::ship::{Report, Settings, Transport};
use tests::{
    Collector, Faults, Folder, Relay, Trace,
    collector::{disk, run_on, verified},
    process::Stdout,
    trace::Recorded,
    wait::LONG,
};

use rig::Rig;

fn settings(to: SocketAddr, transport: Transport) -> Settings {
    Settings { patience: LONG, ..Settings::new(vec![to], transport) }
}

/// Ends the session. Fails the test unless it is on disk, whole and sound.
#[track_caller]
fn delivered(rig: &mut Rig, reason: EndReason, collector: Collector, folder: impl AsRef<Path>) -> (Report, Trace) {
    let report = rig.finish(reason, LONG);
    let exit = collector.stop();
    assert_eq!(exit.code, Some(i32::from(report.lost.keys().any(|cause| cause.contains("disk")))), "{}", exit.stderr);
    assert!(report.complete, "{report}");
    let trace = Trace::only(folder.as_ref());
    rig.is_all_in(&trace);
    verified(&trace.folder);
    (report, trace)
}

#[test]
fn everything_arrives_over_both_transports_in_datagrams_of_any_size() {
    use Transport::{Tcp, Udp};
    for (transport, datagram_bytes) in [(Udp, 1_200), (Udp, 1_400), (Udp, 9_000), (Udp, 60_000), (Tcp, 65_536)] {
        let (folder, collector) = Collector::in_folder("ships", &[]);
        let to = collector.address(transport);
        let mut rig = Rig::new(Settings { datagram_bytes, ..settings(to, transport) }, 4, 1 << 20);
        for _ in 0..40 {
            rig.work(5_000);
            rig.turn();
        }
        let (_, trace) = delivered(&mut rig, EndReason::Exited(3), collector, &folder);
        assert_eq!(trace.len(), 200_000);
        assert!(trace.manifest.gaps.is_empty());
    }
}

/// Both sides count the same, also where the collector waits too short a time for what the network loses again and again.
#[test]
fn what_the_collector_gives_up_is_in_the_agents_report() {
    let (folder, collector) =
        Collector::in_folder("ships-given-up", &["--reorder-time", "100ms", "--replay-time", "100ms"]);
    let faults = Faults { lose: 0.2, spare_options: true, lose_for_good: true, ..Faults::NONE };
    let relay = Relay::start(collector.udp(), 7, faults).expect("a socket");
    let settings = Settings { datagram_bytes: 1_400, ..settings(relay.address(), Transport::Udp) };
    let mut rig = Rig::new(settings, 3, 1 << 16);
    for _ in 0..20 {
        rig.work(500);
        rig.turn();
    }
    let (report, trace) = delivered(&mut rig, EndReason::Exited(0), collector, &folder);
    let missing = trace.missing("network").len() as u64;
    assert!(missing > 100, "{report}");
    assert_eq!(report.lost.iter().map(|(cause, count)| (&**cause, *count)).collect::<Vec<_>>(), [("network", missing)]);
    assert_eq!(trace.len() as u64 + missing, rig.produced());
}

/// A collector that is killed soon and never comes back has at least what it confirmed; the agent names all else.
#[test]
fn what_a_collector_killed_at_once_has_not_confirmed_is_named() {
    for (transport, wait_ms) in
        [(Transport::Udp, 50), (Transport::Tcp, 50), (Transport::Udp, 400), (Transport::Tcp, 400)]
    {
        let (folder, collector) = Collector::in_folder("ships-at-once", &[]);
        let mut rig = Rig::new(settings(collector.address(transport), transport), 2, 1 << 20);
        let killed = Instant::now() + Duration::from_millis(wait_ms);
        while Instant::now() < killed {
            rig.work(500);
            rig.turn();
        }
        collector.kill();
        // Some of it is sent into the void, some is ready to be sent, some is in the rings.
        for _ in 0..5 {
            rig.work(500);
            rig.turn();
        }
        rig.work(500);
        let report = rig.finish(EndReason::Exited(0), Duration::from_millis(500));
        run_on("repair", folder.path(), &[]).success();
        let there = Trace::all(folder.path()).iter().map(Trace::len).sum::<usize>() as u64;
        let about = format!("{transport}, {wait_ms} ms, {there} on disk: {report:?}");
        assert!(!report.complete && report.unsettled > 0, "{about}");
        assert_eq!(report.events + report.dropped_in_all(), rig.produced(), "{about}");
        assert!(there >= report.events - report.unsettled && there <= report.events, "{about}");
    }
}

#[test]
fn what_does_not_fit_the_rings_is_missing_and_said_to_be() {
    let (folder, collector) = Collector::in_folder("ships-full", &[]);
    let mut rig = Rig::new(settings(collector.udp(), Transport::Udp), 3, 1 << 13);
    for _ in 0..30 {
        rig.work(3_000);
        rig.turn();
    }
    rig.work(3_000);
    let (report, trace) = delivered(&mut rig, EndReason::Signaled(9), collector, &folder);
    let missing = trace.missing("agent:ring-full").len() as u64;
    assert!(missing > 10_000 && missing == report.dropped["ring-full"]);
    assert_eq!(trace.len() as u64 + missing, rig.produced());
}

#[test]
fn a_collector_that_is_killed_and_started_again_has_the_rest() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let (before, after) = (Folder::new("ships-killed"), Folder::new("ships-again"));
        let collector = Collector::to_disk(before.path(), &[]);
        let to = collector.address(transport);
        let mut rig = Rig::new(settings(to, transport), 2, 1 << 20);
        rig.work(2_000);
        rig.settle(LONG);
        // What is acknowledged is on disk a moment later.
        let flushed = Instant::now() + Duration::from_secs(1);
        while Instant::now() < flushed {
            rig.turn();
        }
        collector.kill();
        let first = rig.produced();
        rig.work(2_000);
        let noticed = Instant::now() + LONG;
        while rig.is_connected() {
            assert!(Instant::now() < noticed, "nobody notices");
            rig.turn();
        }
        rig.work(2_000);
        rig.turn();
        let arguments = ["--listen", &to.to_string(), "--sink", &disk(after.path())];
        let collector = Collector::start(&arguments, Stdout::Collect);
        rig.work(2_000);
        let report = rig.finish(EndReason::Exited(0), LONG);
        collector.stop().success();
        assert!(report.complete && report.reconnects == 1, "{transport}: {report:?}");
        run_on("repair", before.path(), &[]).success();
        let (before, after) = (Trace::only(before.path()), Trace::only(after.path()));
        assert_eq!((before.len() as u64, first), (2_000, 2_000));
        rig.is_all_in(&before);
        // The second has been told who it is and what there was, and what the first one has.
        assert_eq!((after.len(), after.missing("agent:kept-before").len()), (6_000, 2_000), "{transport}");
        assert_eq!(after.manifest.gaps.iter().map(|gap| gap.count).sum::<u64>(), 2_000);
        rig.is_all_in(&after);
        assert_eq!(after.manifest.threads.len(), 2);
        verified(&after.folder);
    }
}

/// What a collector had received and not written when it was killed, the next one gets.
#[test]
fn between_them_a_killed_collector_and_the_next_have_everything() {
    for (transport, turns) in [(Transport::Udp, 3), (Transport::Tcp, 3), (Transport::Udp, 40), (Transport::Tcp, 40)] {
        let (before, after) = (Folder::new("ships-cut"), Folder::new("ships-on"));
        let collector = Collector::to_disk(before.path(), &[]);
        let to = collector.address(transport);
        let mut rig = Rig::new(settings(to, transport), 2, 1 << 20);
        for _ in 0..turns {
            rig.work(2_000);
            rig.turn();
        }
        collector.kill();
        let arguments = ["--listen", &to.to_string(), "--sink", &disk(after.path())];
        let collector = Collector::start(&arguments, Stdout::Collect);
        rig.work(2_000);
        let report = rig.finish(EndReason::Exited(0), LONG);
        collector.stop().success();
        assert!(report.complete, "{transport}: {report:?}");
        run_on("repair", before.path(), &[]).success();
        let (before, after) = (Trace::only(before.path()), Trace::only(after.path()));
        rig.is_all_in(&before);
        rig.is_all_in(&after);
        let positions = |trace: &Trace| {
            let of = |(stream, events): (&u32, &Vec<Recorded>)| {
                events.iter().map(|event| (*stream, event.position)).collect::<Vec<_>>()
            };
            trace.threads.iter().flat_map(of).collect::<BTreeSet<_>>()
        };
        let there = positions(&before).union(&positions(&after)).count() as u64;
        assert_eq!(there, rig.produced(), "{transport} after {turns} turns: {report}");
    }
}

#[test]
fn a_collector_that_is_kept_waiting_costs_only_what_is_said() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let folder = Folder::new("ships-stuck");
        let arguments = ["--sink", "stdout:events,on-full=block", "--memory", "64MiB"];
        let mut collector = Collector::held(folder.path(), &arguments);
        let to = collector.address(transport);
        let mut rig = Rig::new(Settings { replay_bytes: 1 << 20, ..settings(to, transport) }, 2, 1 << 15);
        // Nobody reads what it prints, so that in the end nothing fits anywhere.
        let deadline = Instant::now() + LONG;
        while rig.dropped() < 10_000 {
            assert!(Instant::now() < deadline, "it takes all of it");
            rig.work(1_000);
            rig.turn();
        }
        let mut stdout = collector.process().take_stdout().expect("it was held");
        let reading = thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        rig.work(1_000);
        let (_, trace) = delivered(&mut rig, EndReason::Exited(0), collector, &folder);
        reading.join().expect("a reader").expect("readable");
        let missing = trace.missing("agent:ring-full").len() as u64;
        assert_eq!((trace.len() as u64 + missing, missing), (rig.produced(), rig.dropped()), "{transport}");
    }
}

#[test]
fn threads_come_and_go() {
    let (folder, collector) = Collector::in_folder("ships-threads", &[]);
    let mut rig = Rig::new(settings(collector.udp(), Transport::Udp), 4, 1 << 14);
    for _ in 0..5 {
        rig.work(1_000);
        rig.replace_threads(LONG);
    }
    rig.work(1_000);
    let (_, trace) = delivered(&mut rig, EndReason::Exited(0), collector, &folder);
    assert_eq!(trace.manifest.threads.len(), 24);
}
