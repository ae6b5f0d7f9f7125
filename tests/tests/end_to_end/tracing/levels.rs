//! Functions that are turned down and up while the program runs.

use std::{fs, os::unix::fs::FileExt, path::Path, process::Command};

use tests::{
    Collector, Process, Run, Target, Trace, Transport, agent_command, collector, counts,
    process::Stdout,
    wait::{LONG, eventually},
};

use crate::tracing::{attach::on_disk, child, ctl::ctl};

/// What goes on on stacks that is not calling and returning, with functions that go up and down at random: the program does
/// what it does by itself.
#[track_caller]
fn shaken(target: &str, engine: &str) {
    let run = Run::target(target).with(&["--engine", engine, "--no-detail"]);
    run.shaken(1).trace().same_behaviour().nothing_lost().times_rise();
}

macro_rules! shaken {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                shaken(stringify!($name), "native");
            }
        )*
    };
}

shaken! {
    plain recursion threads64 short_threads pthreads exceptions rust_panics longjmp contexts fibers fibers_throw signals fork
    fork_throws vfork_exec spawn exec family tail_calls callbacks dlopen_loop
}

#[test]
fn functions_go_up_and_down_beside_frida() {
    ["plain", "exceptions", "longjmp", "fork", "dlopen_loop"].into_iter().for_each(|target| shaken(target, "frida"));
}

#[test]
fn every_call_is_recorded_or_counted() {
    let targets =
        ["plain", "recursion", "threads64", "short_threads", "exceptions", "longjmp", "fork", "exec", "tail_calls"];
    for (target, engine) in targets.into_iter().zip(["native", "native", "frida"].into_iter().cycle()) {
        println!("{target} with {engine}");
        let run = Run::target(target).with(&["--engine", engine, "--no-detail"]);
        run.counting(7).trace().same_behaviour().nothing_lost().exact_calls();
    }
}

#[test]
fn a_function_that_is_left_by_jumps_is_turned_down_and_up() {
    const CALLS: u64 = 200_000;
    let recorded: u64 = (0..2)
        .map(|seed| {
            let traced = Run::target("crossings").with(&["--engine", "native", "--no-detail"]).shaken(seed).trace();
            traced.same_behaviour().nothing_lost().times_rise();
            counts::of_functions(&traced.trace, "_Z6jumperi").calls
        })
        .sum();
    assert!((1..2 * CALLS).contains(&recorded), "some calls are recorded, and others are not: {recorded}");
}

#[test]
fn functions_turn_themselves_down_among_jumps_and_exceptions() {
    for budget in [&["--budget", "1%"][..], &["--budget", "10%"], &["--ring-bytes", "64KiB"]] {
        let options = [budget, &["--engine", "native", "--no-detail"]].concat();
        Run::target("crossings").lossy(&options).trace().same_behaviour().times_rise();
    }
}

/// Where a function of a running program is.
fn address(pid: u32, program: &Path, function: &str) -> u64 {
    let symbols = Command::new("nm").arg(program).output().expect("nm runs").stdout;
    let symbols = String::from_utf8(symbols).expect("text");
    let line = symbols.lines().find(|line| line.ends_with(&format!(" T {function}"))).expect("it is there");
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let first = maps.lines().find(|line| line.ends_with(&*program.to_string_lossy())).expect("it is mapped");
    let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    number(first.split('-').next().unwrap_or_default()) + number(line.split(' ').next().unwrap_or_default())
}

/// Whether a function begins with a jump, behind what may be jumped to.
fn is_hooked(pid: u32, function: u64) -> bool {
    let mut code = [0; 9];
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("it runs");
    memory.read_exact_at(&mut code, function).expect("it is there");
    let behind = if code.starts_with(&[0xF3, 0x0F, 0x1E, 0xFA]) { 4 } else { 0 };
    code[behind] == 0xE9
}

#[test]
fn what_is_called_too_often_to_be_hooked_is_not_hooked_any_more() {
    agent_command::prepare();
    for engine in ["native", "frida"] {
        let (folder, collector) = Collector::in_folder("hottest", &[]);
        let target = Target::named("hot_loop").program();
        let options = ["--engine", engine, "--no-detail", "--budget", "5%"];
        let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, &options);
        command.arg(&target).args(["1000000000000", "2"]);
        let mut agent = Process::start(command, Stdout::Collect);
        let pid = child(agent.pid(), &target);
        let tiny = address(pid, &target, "tiny");
        eventually("something is recorded", || on_disk(folder.path()) > 0);
        eventually("its first bytes are its own", || !is_hooked(pid, tiny));
        // Whoever asks for it gets it back, and from then on its calls are exact.
        let level = |level| ctl(pid, &["level", level, "tiny"]).success();
        level("counted");
        eventually("it is hooked again", || is_hooked(pid, tiny));
        level("auto");
        eventually("its first bytes are its own again", || !is_hooked(pid, tiny));
        agent.signal("INT");
        let exit = agent.exit(LONG);
        assert_eq!(exit.signal, Some(2), "{}", exit.stderr);
        assert!(exit.stderr.contains("while they were off are in no count"), "{}", exit.stderr);
        collector.stop().success();
        let trace = Trace::only(folder.path());
        assert!(trace.manifest.gaps.is_empty() && counts::of_functions(&trace, "tiny").calls > 0);
    }
}

#[test]
fn nothing_is_lost_of_a_hot_loop_whatever_is_recorded_of_it() {
    for (engine, pace) in [
        ("native", &[][..]),
        ("frida", &[]),
        ("native", &["--budget", "10%"]),
        ("native", &["--budget", "2x", "--no-detail"]),
    ] {
        let options = [pace, &["--engine", engine]].concat();
        let traced = Run::target("hot_loop").arguments(&["3000000", "2"]).lossy(&options).trace();
        traced.same_behaviour().nothing_lost().times_rise();
        let stderr = &traced.traced.stderr;
        assert!(stderr.contains("of the calls: counted"), "{pace:?}: {stderr}");
        let is_off = traced.trace.manifest.levels.iter().any(|entry| entry.level == "off");
        let counted = counts::turned_down(&traced.trace).get("tiny").copied().unwrap_or(0);
        let calls = counts::of_functions(&traced.trace, "tiny").calls + counted;
        assert!(calls == 6_000_000 || is_off && calls < 6_000_000, "{pace:?}: {calls} calls");
    }
}

#[test]
fn a_rare_slow_call_among_very_many_is_followed_with_all_that_called_it() {
    const CALLS: u64 = 100_000_000;
    let calls = CALLS.to_string();
    let options = ["--budget", "10%", "--engine", "native", "--no-detail"];
    let traced = Run::target("needle").arguments(&[&calls]).lossy(&options).trace();
    traced.same_behaviour().nothing_lost().times_rise();
    for name in ["main", "rare", "slow"] {
        let count = counts::of_functions(&traced.trace, name);
        assert_eq!((count.calls, count.returns), (1, 1), "{name}");
    }
    let recorded = counts::of_functions(&traced.trace, "cheap").calls;
    assert!(recorded < CALLS / 10, "{recorded}");
    // What is off is in no count.
    let top = collector::run_on("top", &traced.trace.folder, &["--json", "--function", "cheap"]).success();
    let row: serde_json::Value = serde_json::from_slice(&top.stdout).expect("one line");
    let counted = row["counted"].as_u64().expect("a number");
    assert_eq!(row["count"].as_u64(), Some(recorded));
    assert_eq!(counted, counts::turned_down(&traced.trace)["cheap"]);
    let is_off = traced.trace.manifest.levels.iter().any(|entry| entry.level == "off");
    assert!(recorded + counted == CALLS || is_off && recorded + counted < CALLS, "{recorded} and {counted}");
}
