//! A disk that is full for a while: what it does not take stays with the agent, whatever becomes of the collector.

use std::time::{Duration, Instant};

use real_agent::ship::Transport;
use tests::{Collector, SmallDisk, wait::LONG};

use crate::{going_on::has_everything, rig::Rig, way::Way};

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
