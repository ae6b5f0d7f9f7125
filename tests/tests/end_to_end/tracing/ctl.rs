//! `agent ctl`: looking at a trace while it runs, and changing what is recorded.

use std::{thread, time::Duration};

use serde_json::Value;
use tests::{Collector, Exit, Folder, Process, Target, Trace, Transport, agent_command, process::Stdout};

use crate::tracing::{LONG, answer, child, kill};

/// A program that works until its input ends, and the agent that traces it.
struct Traced {
    folder: Folder,
    collector: Collector,
    agent: Process,
    pid: u32,
}

impl Traced {
    #[track_caller]
    fn start(options: &[&str]) -> Self {
        agent_command::prepare();
        let program = Target::named("steady").program();
        let (folder, collector) = Collector::in_folder("ctl", &[]);
        let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, options);
        command.arg(&program).env("SPOOR_COUNTS", folder.join("counts"));
        let agent = Process::start(command, Stdout::Collect);
        let pid = child(agent.pid(), &program);
        answer("the agent can be reached", || (ctl(pid, &[]).code == Some(0)).then_some(()));
        Self { folder, collector, agent, pid }
    }

    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        ctl(self.pid, arguments).success().text().trim_end().into()
    }

    #[track_caller]
    fn status(&self) -> Value {
        serde_json::from_str(&self.done(&["--json"])).expect("JSON")
    }

    #[track_caller]
    fn finish(mut self) -> (Exit, Trace, Folder) {
        drop(self.agent.take_stdin());
        let exit = self.agent.exit(LONG);
        assert_eq!(exit.code, Some(4), "{}", exit.stderr);
        self.collector.stop().success();
        let trace = Trace::only(self.folder.path());
        (exit, trace, self.folder)
    }
}

pub(crate) fn ctl(pid: u32, arguments: &[&str]) -> Exit {
    let pid = pid.to_string();
    let mut all = vec!["ctl", &pid];
    all.extend(arguments);
    Process::start(agent_command::command(&all), Stdout::Collect).exit(LONG)
}

#[test]
fn levels_that_are_set_stay_and_are_told() {
    for engine in ["native", "frida"] {
        let traced = Traced::start(&["--engine", engine, "--no-detail"]);
        let status = traced.status();
        assert_eq!((status["pid"].as_u64(), status["budget"].as_str()), (Some(traced.pid.into()), Some("rings")));
        assert!(status["program"].as_str().is_some_and(|program| program.ends_with("/steady")), "{status}");
        assert!(status["functions"]["full"].as_u64() > Some(100) && status["sessions"] == 1, "{status}");

        assert_eq!(traced.done(&["level", "off", "tick"]), "1 function: off");
        assert_eq!(traced.done(&["level", "counted", "function:di?es"]), "1 function: counted");
        assert_eq!(traced.done(&["level", "full", "compares"]), "1 function: full");
        let of_libc = traced.done(&["level", "counted", "libc.so*"]);
        assert!(of_libc.contains("functions: counted; ") && of_libc.contains("stay as they are"), "{of_libc}");
        thread::sleep(Duration::from_millis(500));
        let functions = &traced.status()["functions"];
        let number = |name: &str| functions[name].as_u64().expect("a number");
        assert!(number("set") > 100 && number("off") >= 1 && number("counted") > 100, "{functions}");
        let auto = traced.done(&["level", "auto", "*"]);
        assert!(auto.ends_with(" functions: as the budget allows"), "{auto}");
        assert_eq!(traced.status()["functions"]["set"], 0);
        assert_eq!(traced.done(&["exclude", "tick"]), "1 function: off");
        let only = traced.done(&["only", "dives"]);
        assert!(only.starts_with("1 function: as the budget allows; ") && only.contains(" others: off"), "{only}");
        assert!(traced.status()["functions"]["set"].as_u64() > Some(100));
        assert!(traced.done(&["status"]).contains(" set by hand: "));
        traced.done(&["level", "auto", "*"]);

        let (exit, trace, _folder) = traced.finish();
        assert!(exit.stderr.contains("are in no count") && !exit.stderr.contains("nothing lost"), "{}", exit.stderr);
        let named = |name: &str| {
            let function = trace.manifest.functions.iter().find(|function| function.name == name);
            function.unwrap_or_else(|| panic!("no {name}")).id
        };
        for (name, level) in [("tick", "off"), ("dives", "counted")] {
            let told = trace.manifest.levels.iter().any(|entry| entry.function == named(name) && entry.level == level);
            assert!(told, "{engine}: {name} was {level}: {:?}", trace.manifest.levels);
        }
    }
}

#[test]
fn the_budget_can_change_while_it_runs() {
    let traced = Traced::start(&["--engine", "native", "--no-detail", "--budget", "none"]);
    assert_eq!(traced.done(&["budget", "1%"]), "the budget is 1%");
    assert_eq!(traced.status()["budget"], "1%");
    answer("functions are turned down", || {
        let functions = &traced.status()["functions"];
        (functions["counted"].as_u64() > Some(0) || functions["off"].as_u64() > Some(0)).then_some(())
    });
    assert_eq!(traced.done(&["budget", "complete"]), "the budget is complete");
    answer("all are followed again", || {
        let functions = &traced.status()["functions"];
        (functions["counted"] == 0 && functions["off"] == 0).then_some(())
    });
    let text = traced.done(&[]);
    assert!(text.contains("budget       complete\n") && text.contains(" a second"), "{text}");
    traced.finish();
}

#[test]
fn what_is_kept_is_sent_when_it_is_asked_for() {
    let traced = Traced::start(&["--engine", "native", "--keep", "300ms", "--complete"]);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(traced.status()["events"], 0);
    assert_eq!(traced.done(&["dump"]), "what is asked for is sent");
    answer("something is sent", || (traced.status()["events"].as_u64() > Some(0)).then_some(()));
    assert_eq!(traced.done(&["stop"]), "nothing more is sent");
    let (_, trace, _) = traced.finish();
    let left_out = trace.manifest.limits.iter().find(|limit| limit.reason == "left-out");
    assert!(trace.manifest.gaps.is_empty() && left_out.is_some_and(|limit| limit.count > 0));
    let other = Traced::start(&["--engine", "native", "--no-detail"]);
    let exit = ctl(other.pid, &["dump"]);
    assert!(exit.code == Some(1) && exit.stderr.contains("everything is sent"), "{}", exit.stderr);
    other.finish();
}

#[test]
fn who_cannot_be_asked_is_said_and_why() {
    let wrong = |pid: u32, arguments: &[&str], code, why: &str| {
        let exit = ctl(pid, arguments);
        assert!(exit.code == Some(code) && exit.stderr.contains(why), "{arguments:?}: {:?} {}", exit.code, exit.stderr);
    };
    wrong(0x7FFF_FFF0, &[], 1, "there is no process 2147483632");
    wrong(std::process::id(), &[], 1, "no agent of this user traces process");
    wrong(1, &["level", "loud", "main"], 2, "loud");
    wrong(1, &["budget", "fast"], 2, "expected a share as 10%");
    let traced = Traced::start(&["--engine", "native", "--no-detail"]);
    wrong(traced.pid, &["level", "off", "no_such_*"], 1, "no_such_*: no module and no function has such a name");
    wrong(traced.pid, &["level", "off", "source:a.c"], 1, "source:a.c: what source files");
    wrong(traced.pid, &["level", "off", "_dl_debug_state"], 1, "cannot be set");
    // An agent that was killed leaves its socket, which is in nobody's way.
    let Traced { agent, pid, .. } = traced;
    kill("KILL", agent.pid());
    agent.exit(LONG);
    let exit = ctl(pid, &[]);
    assert!(exit.code == Some(1) && exit.stderr.contains("process"), "{}", exit.stderr);
    // The program goes on, and ends when its input does.
}
