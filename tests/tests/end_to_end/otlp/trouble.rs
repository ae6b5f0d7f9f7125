//! Receivers that are not there, or do not want what they get.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use codec::profile::EndReason;
use tests::{Agent, Collector, Exit, Folder, Settings, process::Stdout, python::python_with, wait::eventually};

use crate::otlp::{
    LONG,
    receiver::{PACKAGES, Receiver, free_port},
    sent::Spans,
};

/// How many calls and returns a program makes before something happens, and then again.
const EVENTS: u64 = 4_000;

/// How long an agent asks for the time: often enough for an answer.
const ASKING: Duration = Duration::from_millis(500);

/// A collector that exports every frame.
fn collector(variables: &[(&str, &str)], sinks: &[&str]) -> Collector {
    let mut arguments = vec!["--listen", "127.0.0.1:0", "--otlp-min", "0s"];
    sinks.iter().for_each(|sink| arguments.extend(["--sink", sink]));
    Collector::start_in(variables, &arguments, Stdout::Collect)
}

/// A program that works, something that happens, and then works on to its end. Its session is always the same.
fn work(collector: &Collector, meanwhile: impl FnOnce()) {
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 7)).expect("it is heard");
    agent.work(EVENTS).expect("it is taken");
    agent.settle(LONG).expect("it is settled");
    meanwhile();
    agent.drop_events(0, 10, "test");
    agent.work(EVENTS).expect("it is taken");
    let asking = Instant::now();
    while asking.elapsed() < ASKING {
        agent.listen(Duration::from_millis(10));
    }
    agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
}

/// What a receiver takes that answers the first requests like this.
fn sent(python: &Path, is_grpc: bool, variables: &[(&str, &str)], token: &str, answers: &[&str]) -> (Spans, Exit) {
    let folder = Folder::new("otlp-trouble");
    let mut receiver = Receiver::start(python, folder.path(), token, answers);
    let sink = if is_grpc { format!("otlp+grpc:{}", receiver.grpc()) } else { format!("otlp:{}", receiver.http()) };
    let collector = collector(variables, &[&sink]);
    work(&collector, || {});
    let exit = collector.stop();
    (receiver.stop(), exit)
}

fn count(exit: &Exit, what: &str) -> usize {
    exit.stderr.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn nothing_is_lost_while_a_receiver_is_busy_or_away() {
    let Some(python) = python_with(PACKAGES) else { return };
    let (spans, exit) = sent(&python, false, &[], "", &[]);
    let exit = exit.success();
    assert_eq!(count(&exit, "takes no spans") + count(&exit, "works again"), 0, "{}", exit.stderr);
    assert_eq!(count(&exit, "the clock of machine is "), 1, "{}", exit.stderr);
    let spans = spans.once();
    spans.all_in(&spans.of_kind("process").next().expect("one").trace, None);
    let gaps: Vec<_> = spans.of_kind("thread").flat_map(|thread| &thread.gaps).collect();
    assert_eq!(gaps, [&("agent:test".to_owned(), 10)]);
    let all: BTreeSet<_> = spans.0.into_keys().collect();
    assert!(all.len() as u64 > EVENTS / 2, "{}", all.len());

    for is_grpc in [false, true] {
        let (spans, exit) = sent(&python, is_grpc, &[], "", &["503", "slow", "503", "503"]);
        let exit = exit.success();
        assert_eq!(spans.once().0.into_keys().collect::<BTreeSet<_>>(), all);
        assert!(count(&exit, "takes no spans just now") >= 1 && count(&exit, "works again") >= 1, "{}", exit.stderr);
        assert!(count(&exit, "takes no spans just now") <= 2, "it is said once: {}", exit.stderr);
    }

    let folder = Folder::new("otlp-away");
    let mut receiver = Receiver::start(&python, folder.path(), "", &[]);
    let ports = receiver.ports();
    let collector = collector(&[], &[&format!("otlp+grpc:{}", receiver.grpc())]);
    work(&collector, || {
        eventually("it takes spans", || receiver.taken().len() > 0);
        receiver.stop();
    });
    eventually("it is missed", || collector.said().contains("cannot reach http://127.0.0.1"));
    let mut receiver = Receiver::on(&python, folder.path(), ports, "", &[]);
    eventually("it is found again", || collector.said().contains("works again"));
    let exit = collector.stop().success();
    assert_eq!(count(&exit, "cannot reach http://127.0.0.1"), 1, "{}", exit.stderr);
    // The answer to some may have been on its way.
    assert_eq!(receiver.stop().ids(), all);
}

#[test]
fn what_a_receiver_refuses_is_counted_and_told_once() {
    let Some(python) = python_with(PACKAGES) else { return };
    for is_grpc in [false, true] {
        let (spans, exit) = sent(&python, is_grpc, &[], "secret", &[]);
        assert_eq!((exit.code, spans.len()), (Some(1), 0), "{}", exit.stderr);
        assert_eq!(count(&exit, "refuses the credentials ("), 1, "{}", exit.stderr);
        assert_eq!(count(&exit, ": 0 spans sent, 4,"), 1, "{}", exit.stderr);
        let headers = [("OTEL_EXPORTER_OTLP_HEADERS", "x-other=1,authorization=Bearer%20secret")];
        let (known, exit) = sent(&python, is_grpc, &headers, "secret", &[]);
        let exit = exit.success();
        assert!(known.len() as u64 > EVENTS / 2 && !exit.stderr.contains("secret"), "{}", exit.stderr);
        let (_, exit) = sent(&python, is_grpc, &[], "", &["reject", "reject"]);
        assert_eq!((exit.code, count(&exit, "has rejected some spans (1 of a request: too old)")), (Some(1), 1));
        assert_eq!(count(&exit, " spans sent, 2 refused by the receiver, 0 given up"), 1, "{}", exit.stderr);
    }
    let wrong = [("OTEL_EXPORTER_OTLP_HEADERS", "authorization")];
    let command = ["--listen", "127.0.0.1:0", "--sink", "otlp:http://127.0.0.1:1"];
    let exit = tests::collector::run_in(&wrong, &command);
    assert_eq!(exit.code, Some(1));
    assert!(exit.stderr.contains("OTEL_EXPORTER_OTLP_HEADERS: expected NAME=VALUE"), "{}", exit.stderr);
}

/// Where nobody answers, the others go on, and at the end what waits is given up.
#[test]
fn what_cannot_be_sent_is_given_up_and_told() {
    let Some(python) = python_with(PACKAGES) else { return };
    let folder = Folder::new("otlp-nowhere");
    let receiver = Receiver::start(&python, folder.path(), "", &[]);
    let nowhere = format!("otlp:http://127.0.0.1:{}", free_port());
    let plain = format!("otlp:https://127.0.0.1:{}", receiver.ports()[0]);
    let elsewhere = format!("otlp:{}/elsewhere", receiver.http());
    let disk = format!("disk:{}", folder.join("traces").display());
    let collector = collector(&[], &[&disk, &nowhere, &plain, &elsewhere]);
    work(&collector, || {});
    let exit = collector.stop();
    assert_eq!(exit.code, Some(1), "{}", exit.stderr);
    for what in [
        "cannot reach http://127.0.0.1",
        "TLS with https://127.0.0.1",
        "/elsewhere/v1/traces is not there (404 Not Found: told to)",
    ] {
        assert_eq!(count(&exit, what), 1, "{what}: {}", exit.stderr);
    }
    assert_eq!(count(&exit, " takes nothing any more: "), 2, "{}", exit.stderr);
    assert_eq!(count(&exit, ": 0 spans sent, 0 refused by the receiver, 4,"), 2, "{}", exit.stderr);
    let trace = tests::Trace::only(&folder.join("traces"));
    tests::collector::verified(&trace.folder);
}

/// What waits for a receiver is bounded. Others get everything, and what is left out is counted.
#[test]
fn what_does_not_fit_is_left_out_and_told() {
    let folder = Folder::new("otlp-full");
    let nowhere = format!("otlp:http://127.0.0.1:{}", free_port());
    let disk = format!("disk:{}", folder.join("traces").display());
    let collector = collector(&[], &[&disk, &nowhere]);
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 9)).expect("it is heard");
    agent.work(400_000).expect("it is taken");
    agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
    let exit = collector.stop();
    assert_eq!(exit.code, Some(1), "{}", exit.stderr);
    let told = exit.stderr.lines().find_map(|line| line.split_once(": 0 spans sent, 0 refused by the receiver, "));
    let told = told.unwrap_or_else(|| panic!("{}", exit.stderr)).1.replace(',', "");
    let numbers: Vec<u64> = told.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers.len() == 2 && numbers.iter().all(|number| *number > 0), "{told}");
    let trace = tests::Trace::only(&folder.join("traces"));
    tests::collector::verified(&trace.folder);
    let (spans, threads) = (trace.manifest.table.as_ref().expect("a table").rows, trace.manifest.threads.len() as u64);
    assert_eq!(numbers.iter().sum::<u64>(), spans + threads + 1, "those in the table, threads, the process: {told}");
}
