//! Spans on their way to receivers of OpenTelemetry: one made of the messages that OpenTelemetry publishes, which answers
//! as it is told to, and a collector of others.

mod contexts;
mod receiver;
mod sent;
mod trouble;

use std::{collections::BTreeSet, time::Duration};

use tests::{Collector, Folder, Process, Target, Transport, agent_command, process::Stdout, python::python_with};

use crate::otlp::{
    receiver::{PACKAGES, Receiver, free_port},
    sent::Sent,
};

const LONG: Duration = Duration::from_secs(90);

/// What a program is started in.
const PARENT: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");

/// The same as a program's environment has it.
fn parent() -> String {
    format!("00-{}-{}-01", PARENT.0, PARENT.1)
}

/// Runs a program that makes threads or processes, traced.
fn trace(collector: &Collector, target: &str, engine: &str, variables: &[(&str, &str)]) {
    agent_command::prepare();
    let mut command = agent_command::run_to(collector.udp(), Transport::Udp, &["--complete", "--engine", engine]);
    command.arg(Target::named(target).program());
    agent_command::private(&mut command);
    command.envs(variables.iter().copied());
    let folder = Folder::new("otlp-work");
    command.current_dir(folder.path());
    let exit = Process::start(command, Stdout::Collect).exit(LONG * 2);
    assert!(exit.stderr.contains("nothing lost"), "{}", exit.stderr);
}

/// Both ways, to one receiver: each span comes twice, with the same ids.
#[test]
fn a_program_is_one_trace_below_what_it_was_started_in() {
    let Some(python) = python_with(PACKAGES) else { return };
    let folder = Folder::new("otlp");
    let mut receiver = Receiver::start(&python, folder.path(), "", &[]);
    let sinks = [format!("otlp:{}", receiver.http()), format!("otlp+grpc:{}", receiver.grpc())];
    let arguments = [
        "--listen",
        "127.0.0.1:0",
        "--sink",
        &sinks[0],
        "--sink",
        &sinks[1],
        "--on-full",
        "block",
        "--otlp-min",
        "100us",
    ];
    let collector = Collector::start(&arguments, Stdout::Collect);
    for (engine, target) in [("native", "pthreads"), ("frida", "pthreads")] {
        trace(&collector, target, engine, &[("TRACEPARENT", &parent()), ("TRACESTATE", "vendor=1")]);
    }
    let said = collector.stop().success().stderr;
    let spans = receiver.stop();
    assert!(said.contains(" spans sent"), "{said}");
    let again = spans.each_twice();
    again.all_in(PARENT.0, Some(PARENT.1));
    let processes: Vec<&Sent> = again.of_kind("process").collect();
    assert_eq!(processes.len(), 2, "one of each engine");
    for process in &processes {
        assert_eq!((process.parent.as_str(), process.state.as_str()), (PARENT.1, "vendor=1"));
        assert_eq!(process.resource["service.name"], "pthreads");
        assert_eq!((&*process.resource["os.type"], &*process.attributes["process.exit.code"]), ("linux", "0"));
        for name in ["host.name", "host.arch", "process.pid", "process.executable.path", "process.command_args"] {
            assert!(process.resource.contains_key(name), "{name} of {:?}", process.resource);
        }
    }
    let threads: Vec<_> = again.of_kind("thread").filter(|thread| !thread.links.is_empty()).collect();
    assert!(!threads.is_empty());
    for thread in threads {
        let creator = again.get(&thread.links[0]);
        assert!(creator.name.contains("pthread_create"), "{} is created by {}", thread.name, creator.name);
        assert!(thread.attributes.contains_key("thread.id"));
    }
    assert!(again.of_kind("frame").all(|frame| frame.attributes["code.function.name"] == frame.name));
}

/// A family is one trace, and each process is in a span of the one that made it.
#[test]
fn processes_are_one_trace() {
    let Some(python) = python_with(PACKAGES) else { return };
    let folder = Folder::new("otlp-family");
    let mut receiver = Receiver::start(&python, folder.path(), "", &[]);
    let sink = format!("otlp+grpc:{}", receiver.grpc());
    let collector = Collector::start(&["--listen", "127.0.0.1:0", "--sink", &sink], Stdout::Collect);
    trace(&collector, "fork", "native", &[]);
    collector.stop().success();
    let spans = receiver.stop().once();
    let traces: BTreeSet<_> = spans.0.values().map(|span| span.trace.clone()).collect();
    assert_eq!(traces.len(), 1);
    let trace = traces.first().expect("one");
    spans.all_in(trace, None);
    let mut processes = spans.of_kind("process").collect::<Vec<_>>();
    assert!(processes.len() > 1, "{processes:#?}");
    processes.retain(|process| !process.parent.is_empty());
    for child in &processes {
        let parent = spans.get(&child.parent);
        assert_ne!(parent.resource["service.instance.id"], child.resource["service.instance.id"]);
    }
    assert!(spans.0.values().any(|span| *trace == span.resource["service.instance.id"]), "the id of the first session");
}

/// A collector of others takes it as well: both ways in, and on to the receiver.
#[test]
fn a_collector_of_others_takes_it() {
    let Some((python, others)) = python_with(PACKAGES).zip(python_with(&["rotel"])) else { return };
    let folder = Folder::new("otlp-rotel");
    let mut receiver = Receiver::start(&python, folder.path(), "", &[]);
    let ports = [free_port(), free_port()];
    let mut rotel = receiver::rotel(&others, &receiver, ports);
    let sinks = [format!("otlp:http://127.0.0.1:{}", ports[0]), format!("otlp+grpc:http://127.0.0.1:{}", ports[1])];
    let arguments = ["--listen", "127.0.0.1:0", "--sink", &sinks[0], "--sink", &sinks[1], "--on-full", "block"];
    let collector = Collector::start(&arguments, Stdout::Collect);
    trace(&collector, "pthreads", "native", &[]);
    collector.stop().success();
    rotel.signal("TERM");
    rotel.exit(LONG);
    let spans = receiver.stop().each_twice();
    let trace = spans.0.values().next().expect("a span").trace.clone();
    spans.all_in(&trace, None);
}
