//! A disk that is full for a while: what it does not take stays with the agent, whatever becomes of the collector.

use std::time::{Duration, Instant};

use codec::profile::EndReason;
use real_agent::ship::Transport;
use tests::{
    Collector, Folder, SmallDisk, Trace,
    collector::{run, run_on, verified},
    process::Stdout,
    wait::LONG,
};

use crate::delivery::{delivered, going_on::has_everything, rig::Rig, way::Way};

/// Events, in turns, until nothing is taken any more.
fn work_until_stuck(rig: &mut Rig, collector: &Collector) {
    let deadline = Instant::now() + LONG;
    while !collector.said().contains("what it cannot keep is counted") {
        assert!(Instant::now() < deadline, "the disk is full and nobody says so: {}", collector.said());
        rig.work(1_000);
        rig.turn();
    }
    rig.work(3_000);
    let later = Instant::now() + Duration::from_millis(300);
    while Instant::now() < later {
        rig.turn();
    }
}

/// What happens to the collector while the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waits,
    IsStopped,
    IsKilled,
}

fn a_full_disk(transport: Transport, fate: Fate) {
    let Some(disk) = SmallDisk::new(20 << 10) else { return };
    let way = Way::new(transport);
    let mut collector = way.collector("127.0.0.1:0", disk.path(), &[]);
    let to = collector.address(transport);
    let mut rig = Rig::new(way.settings(to), 3, 1 << 20);
    rig.work(3_000);
    rig.settle(LONG);
    disk.fill();
    work_until_stuck(&mut rig, &collector);
    if fate != Fate::Waits {
        for _ in 0..2 {
            match fate {
                Fate::IsKilled => collector.kill(),
                _ => {
                    let exit = collector.stop();
                    let said = "its agent keeps what is not written, and the next collector goes on with it";
                    assert_eq!(exit.code, Some(1), "{transport}: {}", exit.stderr);
                    assert!(exit.stderr.contains(said), "{transport}: {}", exit.stderr);
                }
            }
            // The disk is still full when the next one starts.
            collector = way.collector(&to.to_string(), disk.path(), &[]);
            work_until_stuck(&mut rig, &collector);
        }
    }
    disk.free();
    rig.work(3_000);
    has_everything(&mut rig, &way, collector, &disk);
}

/// Parts are finished one after the other, so that whoever goes on finds all of those before the last.
#[test]
fn a_full_disk_and_parts_lose_nothing() {
    for fate in [Fate::IsStopped, Fate::IsKilled] {
        let Some(disk) = SmallDisk::new(40 << 10) else { return };
        let way = Way::new(Transport::Tcp);
        let rotate = ["--rotate-bytes", "1MiB"];
        let mut collector = way.collector("127.0.0.1:0", disk.path(), &rotate);
        let to = collector.address(way.transport);
        let mut rig = Rig::new(way.settings(to), 3, 1 << 20);
        // So much that the disk is full in the middle of a part, or where one ends.
        for kib in [300, 900, 1_000, 1_050, 1_100] {
            rig.work(10_000);
            rig.settle(LONG);
            disk.fill_but(kib);
            work_until_stuck(&mut rig, &collector);
            match fate {
                Fate::IsKilled => collector.kill(),
                _ => _ = collector.stop(),
            }
            disk.free();
            collector = way.collector(&to.to_string(), disk.path(), &rotate);
        }
        let report = rig.finish(EndReason::Exited(0), LONG);
        assert!(report.complete && report.lost.is_empty(), "{fate:?}: {report}");
        let said = collector.stop().success().stderr;
        assert!(!said.contains("another directory"), "{fate:?}: {said}");
        let parts = Trace::all(disk.path());
        assert!(parts.len() > 3 && parts.iter().all(|part| part.manifest.gaps.is_empty()), "{fate:?}");
        assert_eq!(parts.iter().map(Trace::len).sum::<usize>() as u64, rig.produced(), "{fate:?}");
        run_on("verify", disk.path(), &[]).success();
    }
}

/// A disk that drops what it does not take: the program goes on, and both sides count the same.
#[test]
fn what_a_full_disk_drops_is_in_the_agents_report() {
    let Some(disk) = SmallDisk::new(20 << 10) else { return };
    let way = Way::new(Transport::Udp);
    let collector = way.collector("127.0.0.1:0", disk.path(), &["--on-full", "drop"]);
    let mut rig = Rig::new(way.settings(collector.address(way.transport)), 1, 1 << 20);
    rig.work(3_000);
    rig.settle(LONG);
    disk.fill();
    let deadline = Instant::now() + LONG;
    while rig.lost() == 0 {
        assert!(Instant::now() < deadline, "nothing is lost: {}", collector.said());
        rig.work(3_000);
        rig.settle(LONG);
    }
    disk.free();
    rig.work(3_000);
    let (report, trace) = delivered(&mut rig, EndReason::Exited(0), collector, &disk);
    let missing = trace.missing("collector:disk-full").len() as u64;
    assert!(missing > 0, "{report}");
    let lost: Vec<_> = report.lost.iter().map(|(cause, count)| (&**cause, *count)).collect();
    assert_eq!(lost, [("collector:disk-full", missing)]);
    assert_eq!(trace.len() as u64 + missing, rig.produced());
}

/// A file is waited for as a directory is, where it is all there is.
#[test]
fn a_full_disk_is_waited_for_by_a_file() {
    let Some(disk) = SmallDisk::new(20 << 10) else { return };
    let file = disk.path().join("packets.heph");
    let arguments = ["--listen", "127.0.0.1:0", "--sink", &format!("heph:{}", file.display())];
    let collector = Collector::start(&arguments, Stdout::Collect);
    let mut rig = Rig::new(Way::new(Transport::Tcp).settings(collector.tcp()), 2, 1 << 20);
    rig.work(3_000);
    rig.settle(LONG);
    disk.fill();
    work_until_stuck(&mut rig, &collector);
    disk.free();
    rig.work(3_000);
    let report = rig.finish(EndReason::Exited(0), LONG);
    assert!(report.complete && report.lost.is_empty(), "{report}");
    let said = collector.stop().success().stderr;
    let folder = Folder::new("full-file");
    run(&["ingest", &file.display().to_string(), "--sink", &tests::collector::disk(folder.path())]).success();
    assert_eq!(Trace::only(folder.path()).len() as u64, rig.produced(), "{said}");
}

/// The agent has ended and is gone, and so is the collector: what was not written is named all the same.
#[test]
fn what_nobody_has_any_more_is_named_by_a_repair() {
    let Some(disk) = SmallDisk::new(20 << 10) else { return };
    let way = Way::new(Transport::Tcp);
    let collector = way.collector("127.0.0.1:0", disk.path(), &[]);
    let mut rig = Rig::new(way.settings(collector.address(way.transport)), 2, 1 << 20);
    rig.work(3_000);
    rig.settle(LONG);
    disk.fill();
    work_until_stuck(&mut rig, &collector);
    let report = rig.finish(EndReason::Exited(3), Duration::from_millis(500));
    assert!(!report.complete && report.unsettled > 0, "{report}");
    let exit = collector.stop();
    assert_eq!(exit.code, Some(1), "{}", exit.stderr);
    assert!(exit.stderr.contains("received (the disk has not taken all of them)"), "{}", exit.stderr);
    disk.free();
    run_on("repair", disk.path(), &[]).success();
    let trace = Trace::only(disk.path());
    verified(&trace.folder);
    let missing: u64 = trace.manifest.gaps.iter().map(|gap| gap.count).sum();
    assert_eq!(trace.len() as u64 + missing, rig.produced(), "{report}: {:?}", trace.manifest.gaps);
    let end = trace.manifest.end.expect("it is finished");
    assert_eq!((end.how.as_str(), end.code), ("exited", Some(3)));
}

#[test]
fn a_full_disk_is_waited_for() {
    a_full_disk(Transport::Udp, Fate::Waits);
    a_full_disk(Transport::Tcp, Fate::Waits);
}

#[test]
fn a_collector_that_is_stopped_while_its_disk_is_full_loses_nothing() {
    a_full_disk(Transport::Udp, Fate::IsStopped);
    a_full_disk(Transport::Tcp, Fate::IsStopped);
}

#[test]
fn a_collector_that_is_killed_while_its_disk_is_full_loses_nothing() {
    a_full_disk(Transport::Udp, Fate::IsKilled);
    a_full_disk(Transport::Quic, Fate::IsKilled);
}
