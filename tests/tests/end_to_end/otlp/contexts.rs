//! Real programs in traces of their own, however they are followed, and what their runtimes do.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use tests::{
    Collector, Folder, Identity, Process, Transport, agent_command, process::Stdout, python::python_with, runtimes,
    trace, wait::eventually,
};

use crate::otlp::{
    LONG, PARENT, parent,
    receiver::{PACKAGES, Receiver},
    sent::ById,
};

/// What a receiver gets of what is done with a collector.
fn sent(python: &Path, options: &[&str], act: impl FnOnce(&Collector)) -> ById {
    let folder = Folder::new("otlp-context");
    let mut receiver = Receiver::start(python, folder.path(), "", &[]);
    let sink = format!("otlp+grpc:{}", receiver.grpc());
    let own = ["--listen", "127.0.0.1:0", "--sink", &sink];
    let collector = Collector::start(&[&own, options].concat(), Stdout::Collect);
    act(&collector);
    collector.stop().success();
    receiver.stop().once()
}

/// Runs a command traced, in the trace of others.
fn run(collector: &Collector, options: &[&str], words: &[&str]) {
    let mut command =
        agent_command::run_to(collector.tcp(), Transport::Tcp, &[&["--engine", "native"], options].concat());
    command.args(words).env("TRACEPARENT", parent());
    let exit = Process::start(command, Stdout::Collect).exit(LONG * 2);
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
}

#[test]
fn a_process_that_is_attached_to_is_in_its_trace() {
    let Some(python) = python_with(PACKAGES) else { return };
    agent_command::prepare();
    for engine in ["native", "frida"] {
        let folder = Folder::new("otlp-attach");
        let disk = tests::collector::disk(folder.path());
        let spans = sent(&python, &["--sink", &disk, "--on-full", "block"], |collector| {
            let mut cat = Command::new("cat");
            cat.env("TRACEPARENT", parent()).stdin(Stdio::piped());
            let mut cat = Process::start(cat, Stdout::Collect);
            let mut input = cat.take_stdin().expect("a pipe");
            let options = ["--engine", engine];
            let attach = agent_command::attach_to(collector.tcp(), Transport::Tcp, &options, cat.pid());
            let mut agent = Process::start(attach, Stdout::Collect);
            eventually("it is traced", || {
                input.write_all(b"a line\n").expect("it reads");
                trace::folders(folder.path()).iter().any(|session| trace::indexed(session, 0) > 0)
            });
            // It may not be done with attaching.
            agent.signal("INT");
            agent.exit(LONG);
            drop(input);
            cat.exit(LONG).success();
        });
        spans.all_in(PARENT.0, Some(PARENT.1));
        assert_eq!(spans.of_kind("process").count(), 1, "{engine}");
    }
}

/// The program that a process becomes has an environment of its own.
#[test]
fn a_program_that_is_executed_is_in_the_trace_of_its_environment() {
    let Some(python) = python_with(PACKAGES) else { return };
    const OTHER: (&str, &str) = ("11111111111111111111111111111111", "2222222222222222");
    let other = format!("TRACEPARENT=00-{}-{}-01", OTHER.0, OTHER.1);
    let spans = sent(&python, &[], |collector| run(collector, &[], &["env", &other, "true"]));
    let processes: Vec<_> = spans.of_kind("process").collect();
    assert_eq!(processes.len(), 2, "{processes:#?}");
    let of = |name: &str| *processes.iter().find(|process| process.resource["service.name"] == name).expect(name);
    let (before, after) = (of("env"), of("true"));
    assert_eq!((before.trace.as_str(), before.parent.as_str()), PARENT);
    assert_eq!((after.trace.as_str(), after.parent.as_str()), OTHER);
    assert!(after.links.iter().any(|link| spans.get(link).trace == PARENT.0), "{after:#?}");
}

/// Blocks and tasks, with links to what submitted or created them.
#[test]
fn blocks_and_tasks_are_sent_with_their_causes() {
    let Some(python) = python_with(PACKAGES) else { return };
    for (name, kinds) in [("dispatch-O2", ["block", "group"]), ("tasks-O", ["task", "job"])] {
        let Some(program) = runtimes::program(name) else { return };
        let program = program.display().to_string();
        let folder = Folder::new("otlp-runtimes");
        let disk = tests::collector::disk(folder.path());
        let spans = sent(&python, &["--sink", &disk, "--on-full", "block"], |collector| {
            run(collector, &["--complete"], &[&program, "5"]);
        });
        spans.all_in(PARENT.0, Some(PARENT.1));
        let known = tests::spans::of(&tests::Trace::only(folder.path()).folder, &[]);
        for kind in kinds {
            let count = known.iter().filter(|span| span.word("kind") == kind).count();
            assert!(count > 0, "{name} has no {kind}");
            assert_eq!(spans.of_kind(kind).count(), count, "each {kind} of {name} is sent");
        }
        let causes = kinds.into_iter().flat_map(|kind| spans.of_kind(kind)).flat_map(|span| &span.links);
        assert!(causes.count() > 0, "{name}: what submits or creates something is linked");
    }
}

#[test]
fn spans_are_sent_encrypted_to_whom_is_trusted() {
    let Some(python) = python_with(PACKAGES) else { return };
    let identity = Identity::new();
    for way in ["otlp", "otlp+grpc"] {
        for (authority, is_trusted) in [("ca.pem", true), ("other-ca.pem", false)] {
            let folder = Folder::new("otlp-tls");
            let mut receiver = Receiver::encrypted(&python, folder.path(), &identity);
            let url = if way == "otlp" { receiver.http() } else { receiver.grpc() };
            let variables = [("OTEL_EXPORTER_OTLP_CERTIFICATE", &*identity.path(authority))];
            let arguments = ["--listen", "127.0.0.1:0", "--sink", &format!("{way}:{url}")];
            let collector = Collector::start_in(&variables, &arguments, Stdout::Collect);
            run(&collector, &[], &["true"]);
            let exit = collector.stop();
            assert_eq!(exit.code, Some(i32::from(!is_trusted)), "{}", exit.stderr);
            let spans = receiver.stop();
            assert_eq!(spans.len() > 0, is_trusted, "{}", exit.stderr);
            assert_eq!(exit.stderr.contains(&format!("TLS with {url}")), !is_trusted, "{}", exit.stderr);
        }
    }
}
