//! A collector that takes nothing while the program waits for it: the program goes on after a while, and all is told.

use std::{fs, path::Path, time::Duration};

use tests::{
    Collector, Folder, Process, Target, Trace, Transport, agent_command, collector::verified, process::Stdout,
};

use crate::tracing::{BOTH, LONG, child, eventually};

/// Little memory, so that the program soon has to wait.
const SMALL: [&str; 6] = ["--complete", "--no-detail", "--ring-bytes", "64KiB", "--replay-bytes", "1MiB"];

/// A program that calls much, traced to a collector that has stood still since the session began.
struct Stalled {
    folder: Folder,
    collector: Collector,
    agent: Process,
}

impl Stalled {
    #[track_caller]
    fn start(transport: Transport, options: &[&str]) -> Self {
        agent_command::prepare();
        let folder = Folder::new("stalled");
        let mut collector = Collector::events_to_disk(&folder.join("traces"));
        let options = [&SMALL[..], options].concat();
        let mut command = agent_command::run_to(collector.address(transport), transport, &options);
        command.arg(Target::named("hot_loop").program()).args(["400000", "4"]);
        command.env("SPOOR_COUNTS", folder.join("counts"));
        let agent = Process::start(command, Stdout::Collect);
        collector.wait_for("session ");
        collector.process().signal("STOP");
        Self { folder, collector, agent }
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        let line = self.agent.find(LONG, |lines| lines.iter().find(|line| line.contains(text)).cloned());
        line.unwrap_or_else(|| panic!("no {text:?} in what the agent said:\n{}", self.agent.said()))
    }

    /// The collector takes events again. What the agent said last, and the trace.
    #[track_caller]
    fn go_on(mut self) -> (String, Trace) {
        self.collector.process().signal("CONT");
        let exit = self.agent.exit(LONG);
        assert_eq!(exit.code, Some(0), "{}", exit.stderr);
        self.collector.stop().success();
        let trace = Trace::only(&self.folder.join("traces"));
        verified(&trace.folder);
        let last = exit.stderr.lines().last().unwrap_or_default().to_string();
        let produced: u64 = trace.manifest.threads.iter().filter_map(|thread| thread.produced).sum();
        assert!(produced >= 2 * 4 * 400_000, "{produced} events, and the loop alone has more");
        (last, trace)
    }
}

#[test]
fn the_program_goes_on_without_the_collector_and_both_sides_count_the_same() {
    for transport in BOTH {
        let stalled = Stalled::start(transport, &["--stall", "2s", "--linger", "60s"]);
        let waits = stalled.wait_for("the program has waited 1 s for the collector at ");
        assert!(waits.contains("not answer") && waits.contains("after 2 s it goes on"), "{waits}");
        stalled.wait_for("the program goes on after 2 s without the collector");
        eventually("the program ends, while nobody takes its events", || {
            fs::read_to_string(stalled.folder.join("counts")).is_ok_and(|counts| counts.contains("tiny"))
        });
        let (last, trace) = stalled.go_on();
        let missing = trace.missing("agent:stalled").len() as u64;
        assert!(missing > 100_000, "{last}");
        assert_eq!(trace.manifest.gaps.iter().map(|gap| gap.count).sum::<u64>(), missing);
        assert!(last.contains(&format!("{} events of 4 threads", trace.len())), "{last}");
        assert!(last.ends_with(&format!("{missing} dropped (stalled {missing})")), "{last}");
    }
}

#[test]
fn a_collector_that_comes_back_in_time_costs_nothing() {
    let stalled = Stalled::start(Transport::Udp, &["--stall", "never"]);
    let waits = stalled.wait_for("the program has waited 1 s");
    assert!(waits.contains("--stall never"), "{waits}");
    let (last, trace) = stalled.go_on();
    assert!(last.ends_with("nothing lost"), "{last}");
    assert!(trace.manifest.gaps.is_empty(), "{:?}", trace.manifest.gaps);
}

/// An agent that is stopped is not dead: the program waits for it as for a collector that takes nothing.
#[test]
fn an_agent_that_is_stopped_costs_nothing_within_the_stall() {
    agent_stopped("never", 6);
}

#[test]
fn an_agent_that_is_stopped_costs_something_without_a_stall() {
    agent_stopped("0s", 7);
}

#[track_caller]
fn agent_stopped(stall: &str, seconds: u64) {
    let Stalled { folder, mut collector, mut agent } = Stalled::start(Transport::Tcp, &["--stall", stall]);
    agent.signal("STOP");
    collector.process().signal("CONT");
    std::thread::sleep(Duration::from_secs(seconds));
    agent.signal("CONT");
    let (last, trace) = Stalled { folder, collector, agent }.go_on();
    let missing = trace.missing("agent:stalled").len() as u64;
    assert_eq!(missing > 0, stall == "0s", "--stall {stall}: {last}");
    assert_eq!(last.ends_with("nothing lost"), missing == 0, "{last}");
}

#[test]
fn a_program_that_waits_goes_on_without_an_agent_that_is_killed() {
    let Stalled { folder, mut collector, mut agent } = Stalled::start(Transport::Udp, &["--stall", "never"]);
    let program = child(agent.pid(), &Target::named("hot_loop").program());
    assert!(agent.find(LONG, |lines| lines.iter().any(|line| line.contains("has waited")).then_some(())).is_some());
    agent.signal("KILL");
    let counted = || fs::read_to_string(folder.join("counts")).is_ok_and(|counts| counts.contains("tiny"));
    eventually("the program ends by itself", counted);
    eventually("it is gone", || !Path::new(&format!("/proc/{program}/exe")).exists());
    collector.process().signal("CONT");
    assert_eq!(agent.exit(Duration::from_secs(30)).signal, Some(9));
}

/// The signal ends the program although it waits, and the agent does not wait for the collector for ever.
#[test]
fn an_interrupted_program_ends_while_it_waits() {
    let mut stalled = Stalled::start(Transport::Tcp, &["--stall", "never", "--linger", "1s"]);
    stalled.wait_for("the program has waited 1 s");
    stalled.agent.signal("INT");
    let exit = stalled.agent.exit(LONG);
    assert_eq!((exit.code, exit.signal), (None, Some(2)), "{}", exit.stderr);
    let last = exit.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("not-sent") && last.contains("has not confirmed"), "{last}");
    stalled.collector.process().signal("CONT");
}
