//! Programs that are ended by others: what they had called until then is in the trace.

use std::io::{BufRead, BufReader};

use tests::{
    Collector, Exit, Folder, Process, Target, Trace, Transport, agent_command, collector::run_on, counts,
    process::Stdout, traced::LOSSLESS,
};

use crate::tracing::{BOTH, LONG, child, eventually, kill};

/// A program that waits to be ended, traced.
struct Waiting {
    folder: Folder,
    collector: Collector,
    agent: Process,
    program: u32,
}

impl Waiting {
    /// Starts it, and waits until it has made all its calls.
    #[track_caller]
    fn start(transport: Transport) -> Self {
        agent_command::prepare();
        let folder = Folder::new("waiting");
        let collector = Collector::to_disk(&folder.join("traces"), &[]);
        let program = Target::named("ends").program();
        let mut command = agent_command::run_to(collector.address(transport), transport, LOSSLESS);
        command.arg(&program).arg("wait").env("SPOOR_COUNTS", folder.join("counts"));
        let mut agent = Process::start(command, Stdout::Hold);
        let mut lines = BufReader::new(agent.take_stdout().expect("it is held")).lines();
        let ready = lines.any(|line| line.is_ok_and(|line| line == "waiting"));
        assert!(ready, "it ended before: {}", agent.said());
        let program = child(agent.pid(), &program);
        Self { folder, collector, agent, program }
    }

    /// Waits for the end of the agent, and reads the trace.
    #[track_caller]
    fn finish(self) -> (Exit, Trace) {
        let exit = self.agent.exit(LONG);
        self.collector.stop().success();
        let trace = Trace::only(&self.folder.join("traces"));
        let counted = std::fs::read_to_string(self.folder.join("counts")).expect("the program has counted");
        for (name, counted) in counts::parse(&counted) {
            assert_eq!(counts::of_functions(&trace, &name), counted, "{name} in {}", trace.folder.display());
        }
        assert!(trace.manifest.gaps.is_empty(), "{:?}", trace.manifest.gaps);
        (exit, trace)
    }
}

#[test]
fn a_program_that_is_killed_has_everything_in_the_trace() {
    for transport in BOTH {
        let waiting = Waiting::start(transport);
        kill("KILL", waiting.program);
        let (exit, trace) = waiting.finish();
        assert_eq!((exit.code, exit.signal), (None, Some(9)), "the agent ends as the program did: {}", exit.stderr);
        let end = trace.manifest.end.as_ref().map(|end| (end.how.as_str(), end.code));
        assert_eq!(end, Some(("signaled", Some(9))));
    }
}

/// Whoever looks at the trace when the agent has returned finds all of it, with all names.
#[test]
fn the_session_is_complete_when_the_agent_returns() {
    agent_command::prepare();
    for transport in BOTH {
        let folder = Folder::new("returned");
        let arguments = ["--sink", "stdout:events,on-full=block"];
        let collector = Collector::to_disk(&folder.join("traces"), &arguments);
        let mut command = agent_command::run_to(collector.address(transport), transport, LOSSLESS);
        command.arg(Target::named("plain").program());
        Process::start(command, Stdout::Collect).exit(LONG);
        let trace = Trace::only(&folder.join("traces"));
        assert!(trace.manifest.end.is_some(), "{transport:?}: the session is finished");
        let said = run_on("top", &trace.folder, &[]).success().stderr;
        assert!(!said.contains("not finished") && !said.contains("still"), "{transport:?}: {said}");
        let events = collector.stop().success().text().to_owned();
        let nameless = events.lines().filter(|line| {
            let id = line.split(r#""fn":""#).nth(1).and_then(|rest| rest.split('"').next());
            id.is_some_and(|id| line.contains(&format!(r#""function":"{id}""#)))
        });
        assert_eq!(nameless.count(), 0, "{transport:?}: every function has a name");
    }
}

#[test]
fn signals_to_the_agent_reach_the_program() {
    for (name, number) in [("TERM", 15), ("HUP", 1), ("USR1", 10)] {
        let mut waiting = Waiting::start(Transport::Tcp);
        waiting.agent.signal(name);
        let (exit, trace) = waiting.finish();
        assert_eq!((exit.code, exit.signal), (None, Some(number)), "SIG{name}: {}", exit.stderr);
        let end = trace.manifest.end.as_ref().map(|end| (end.how.as_str(), end.code));
        assert_eq!(end, Some(("signaled", Some(number))), "SIG{name}");
    }
}

#[test]
fn a_program_does_not_end_with_an_agent_that_is_killed() {
    let Waiting { folder: _folder, collector: _collector, mut agent, program } = Waiting::start(Transport::Udp);
    agent.signal("KILL");
    eventually("the agent is gone", || !agent.is_running());
    // Frida leaves it first, and its main thread is kept out of the way.
    eventually("it waits on", || {
        let state = std::fs::read_to_string(format!("/proc/{program}/stat")).expect("the program is there");
        state.contains(" S ")
    });
    kill("KILL", program);
    // Its output ends only now, since the program had it too.
    assert_eq!(agent.exit(LONG).signal, Some(9));
}
