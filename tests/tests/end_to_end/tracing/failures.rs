//! What cannot be traced, and what is lost: one clear line, and exact numbers.

use std::{fs, net::TcpListener, process::Command, time::Duration};

use tests::{Collector, Exit, Folder, Process, Run, Target, Transport, agent_command, process::Stdout, spans};

use crate::tracing::{BOTH, LONG};

/// Runs `agent run` on a program that cannot be traced, and tells what it said: one line.
#[track_caller]
fn refused(command: Command) -> (Exit, String) {
    let exit = Process::start(command, Stdout::Collect).exit(LONG);
    assert!(exit.stdout.is_empty(), "the program was not run: {:?}", exit.text());
    let lines: Vec<_> = exit.stderr.lines().collect();
    assert!(matches!(lines[..], [line] if line.starts_with(agent_command::MARK)), "one line: {:?}", exit.stderr);
    let line = exit.stderr.clone();
    (exit, line)
}

#[test]
fn without_a_collector_the_program_is_not_started() {
    agent_command::prepare();
    for transport in BOTH {
        let folder = Folder::new("down");
        let marker = folder.join("started");
        // A port that was free a moment ago, and that nobody listens on.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let mut command = agent_command::run_to(address, transport, &[]);
        command.arg("touch").arg(&marker);
        let (exit, line) = refused(command);
        assert_eq!(exit.code, Some(125));
        assert!(line.contains(&address.to_string()), "{transport:?}: it says where it looked: {line}");
        assert!(!marker.exists(), "{transport:?}: the program was started");
    }
}

#[test]
fn nothing_is_run_that_lies_in_the_current_folder() {
    agent_command::prepare();
    let folder = Folder::new("current");
    let marker = folder.join("marker");
    for module in ["json", "frida", "ctypes", "threading", "encodings", "site", "venv", "pip"] {
        let code = format!("open({:?}, 'w').write('{module}')\nraise SystemExit(1)\n", marker.display().to_string());
        fs::write(folder.join(&format!("{module}.py")), code).expect("room on disk");
    }
    let (_folder, collector) = Collector::in_folder("current-traces", &[]);
    let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, &[]);
    command.arg(Target::named("plain").program()).current_dir(folder.path());
    let exit = Process::start(command, Stdout::Collect).exit(LONG);
    assert_eq!((exit.code, fs::read_to_string(&marker).ok()), (Some(3), None), "{}", exit.stderr);
}

/// Frida needs numbers of descriptors that the program may not have, and is lent them.
#[test]
fn where_few_files_may_be_open_it_works_or_is_refused_at_once() {
    agent_command::prepare();
    let (_folder, collector) = Collector::in_folder("few-files", &[]);
    for (limit, may_fail) in [("ulimit -S -n 20", false), ("ulimit -n 20", true)] {
        let agent = agent_command::run_to(collector.tcp(), Transport::Tcp, &["--no-detail"]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limit}; exec \"$@\""), "sh"]).arg(agent.get_program()).args(agent.get_args());
        command
            .args(["sh", "-c", "ulimit -S -n"])
            .envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let exit = Process::start(command, Stdout::Collect).exit(Duration::from_secs(15));
        if may_fail && exit.code == Some(125) {
            assert!(exit.stderr.lines().count() == 1 && exit.stderr.contains("ulimit -n"), "{}", exit.stderr);
        } else {
            assert_eq!((exit.code, exit.text()), (Some(0), "20\n"), "{}", exit.stderr);
            assert!(exit.stderr.contains("nothing lost"), "{}", exit.stderr);
        }
    }
}

#[test]
fn a_static_program_is_refused_where_frida_is_asked_for_and_left_alone() {
    agent_command::prepare();
    let folder = Folder::new("static");
    let collector = Collector::to_disk(&folder.join("traces"), &[]);
    let program = Target::named("plain_static").program();
    let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, &["--engine", "frida"]);
    command.arg(&program).env("SPOOR_COUNTS", folder.join("counts"));
    let (exit, line) = refused(command);
    assert!(exit.code.is_some_and(|code| code != 0 && code != 3), "its own code, and not the program's: {exit:?}");
    assert!(line.contains("static") && line.contains("plain_static"), "it says why: {line}");
    assert!(!folder.join("counts").exists(), "the program was not run");
}

#[test]
fn a_program_that_is_not_there_is_refused_as_a_shell_does() {
    agent_command::prepare();
    let (_folder, collector) = Collector::in_folder("missing", &[]);
    for (program, code) in [("/nowhere/at/all", 127), ("no-such-program-anywhere", 127), ("/etc/passwd", 126)] {
        let mut command = agent_command::run_to(collector.udp(), Transport::Udp, &[]);
        command.arg(program);
        let (exit, line) = refused(command);
        assert_eq!(exit.code, Some(code), "{program}");
        assert!(line.contains(program), "{line}");
    }
}

#[test]
fn what_a_full_ring_does_not_take_is_counted_and_told() {
    for transport in BOTH {
        let options = ["--budget", "none", "--ring-bytes", "64KiB"];
        let run = Run::target("hot_loop").arguments(&["300000", "2"]).over(transport).lossy(&options);
        let traced = run.trace();
        traced.same_behaviour().times_rise().ended_as_it_did();
        tests::collector::verified(&traced.trace.folder);
        let manifest = &traced.trace.manifest;
        assert!(!manifest.gaps.is_empty(), "so small a ring cannot hold it all");
        for gap in &manifest.gaps {
            assert_eq!(gap.cause, "agent:ring-full", "{gap:?}");
        }
        let missing: u64 = manifest.gaps.iter().map(|gap| gap.count).sum();
        assert_eq!(manifest.drops.get("ring-full"), Some(&missing), "{:?}", manifest.drops);
        for thread in &manifest.threads {
            let gaps = manifest.gaps.iter().filter(|gap| gap.thread == thread.id).map(|gap| gap.count).sum::<u64>();
            assert_eq!(thread.produced, thread.written.map(|written| written + gaps), "thread {}", thread.id);
        }
        // The calls and returns of the loop are all either there or missing.
        let counted = traced.counts["tiny"];
        let recorded = traced.recorded("tiny");
        assert!(recorded.calls < counted.calls, "{recorded:?}");
        let produced: u64 = manifest.threads.iter().filter_map(|thread| thread.produced).sum();
        assert!(produced >= counted.calls + counted.returns, "{produced} produced, {counted:?} counted");
        let known = recorded.calls + recorded.returns + missing;
        assert!(known >= counted.calls + counted.returns, "{recorded:?}, {missing} missing, {counted:?} counted");
    }
}

#[test]
fn a_ring_that_blocks_loses_nothing_however_small() {
    let run = Run::target("hot_loop").arguments(&["50000", "2"]).with(&["--ring-bytes", "64KiB"]);
    run.trace().sound().exact_counts();
}

#[test]
fn what_is_excluded_is_not_there_and_all_else_is() {
    let traced = Run::target("plain").with(&["--exclude", "leaf", "--exclude", "libc.so*"]).trace();
    traced.sound();
    assert_eq!(traced.recorded("leaf").calls, 0);
    assert_eq!(traced.recorded("middle"), traced.counts["middle"]);
    let libc = traced.trace.manifest.modules.iter().find(|module| module.path.contains("/libc.so"));
    let libc = libc.map(|module| module.id);
    let of_libc = traced.trace.threads.values().flatten().filter(|event| Some(event.function.module().0) == libc);
    // Those are not left out that say when processes end, or that may look at the return address of a function that is hooked.
    let joins = |id: u64| {
        let function = traced.trace.manifest.functions.iter().find(|function| function.id == id);
        function.is_some_and(|function| ["exit", "_exit", "_Exit", "__sigsetjmp"].contains(&function.name.as_str()))
    };
    let others: Vec<_> = of_libc.filter(|event| !joins(event.function.0)).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn calls_that_are_too_deep_are_left_out_when_asked() {
    let traced = Run::target("recursion").arguments(&["1000"]).with(&["--max-depth", "100", "--no-detail"]).trace();
    traced.sound();
    let deepest = traced.trace.threads.values().flatten().map(|event| event.depth).max();
    assert_eq!(deepest, Some(99), "a hundred of them");
    assert_eq!(traced.recorded("fibonacci"), traced.counts["fibonacci"], "these are not deep");
    let dive = traced.recorded("dive");
    assert!(dive.calls < 100 && dive.calls > 50 && dive.calls == dive.returns, "{dive:?}");
}

#[test]
fn a_runtime_that_lacks_functions_is_said_to_and_its_calls_are_traced() {
    let folder = Folder::new("runtime");
    let (source, library) = (folder.join("runtime.c"), folder.join("libswift_Concurrency.so"));
    let code = "int swift_job_run(int job) { return job + 1; }\n\
        __attribute__((destructor)) static void unload(void) { swift_job_run(1); }\n";
    fs::write(&source, code).expect("room");
    let built = Command::new("gcc").args(["-O0", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.is_ok_and(|status| status.success()), "gcc is there");
    let traced = Run::of("true").variable("LD_PRELOAD", &library).trace();
    assert!(traced.traced.stderr.contains("has no swift_task_create, "), "{}", traced.traced.stderr);
    let limits = &traced.trace.manifest.limits;
    let missing: Vec<_> = limits.iter().filter(|limit| limit.reason == "missing-symbol").collect();
    assert!(missing.iter().any(|limit| limit.detail == "swift_continuation_resume"), "{missing:?}");
    assert!(missing.iter().all(|limit| limit.detail != "swift_job_run"), "{missing:?}");
    // The calls are there all the same, and make frames; there is no task.
    let spans = spans::of(&traced.trace.folder, &["--function", "swift_job_run"]);
    assert!(spans.iter().any(|span| span.word("kind") == "frame" && span.word("status") == "matched"), "{spans:?}");
    assert!(spans.iter().all(|span| span.word("kind") != "task"), "{spans:?}");
}
