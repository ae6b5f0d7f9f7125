//! Rules: which functions are recorded, and how deep below some.

use std::{fs, process::Command, thread, time::Duration};

use tests::{
    Collector, Exit, Folder, Process, Run, Target, Trace, Traced, Transport, agent_command,
    agent_command::PATIENCE,
    counts,
    process::{Stdout, build},
    spans,
};

const ENGINES: [&str; 2] = ["frida", "native"];

/// How many functions or calls the trace says were left for a reason.
fn limited(traced: &Traced, reason: &str) -> u64 {
    traced.trace.manifest.limits.iter().filter(|limit| limit.reason == reason).map(|limit| limit.count).sum()
}

/// Fails the test unless these functions were recorded exactly, and those not at all.
#[track_caller]
fn exact(traced: &Traced, whole: &[&str], not: &[&str]) {
    for name in whole {
        assert_eq!(traced.recorded(name), traced.counts[*name], "{name}: {}", traced.traced.stderr);
    }
    for name in not {
        assert!(traced.recorded(name).calls == 0 && traced.counts[*name].calls > 0, "{name}");
    }
}

#[test]
fn of_several_rules_the_last_that_matches_decides() {
    for engine in ENGINES {
        let run = || Run::target("plain").with(&["--engine", engine, "--no-detail"]);
        let traced = run().with(&["--only", "m*", "--only", "leaf", "--exclude", "module:libc.so*"]).trace();
        traced.sound();
        exact(&traced, &["middle", "leaf"], &["outer", "nothing"]);
        let left = limited(&traced, "excluded");
        let told = format!("; {left} functions left out by rules");
        assert!(left > 1000 && traced.traced.stderr.contains(&told), "{told}: {}", traced.traced.stderr);
        assert!(traced.trace.len() < 5000, "{} events", traced.trace.len());
        let traced = run().with(&["--exclude", "*", "--only", "middle"]).trace();
        exact(&traced, &["middle"], &["outer", "nothing", "leaf"]);
    }
}

#[test]
fn rules_go_by_source_files_and_sizes() {
    let run = || Run::target("plain_debug").with(&["--engine", "native", "--no-detail"]);
    let traced = run().with(&["--only", "targets/plain.c", "--exclude", "leaf"]).trace();
    traced.sound();
    exact(&traced, &["middle", "outer", "nothing"], &["leaf"]);
    assert_eq!(counts::of_functions(&traced.trace, "printf").calls, 0);
    let traced = run().with(&["--exclude", "source:plain.c"]).trace();
    exact(&traced, &[], &["middle", "leaf", "outer", "nothing"]);
    assert!(counts::of_functions(&traced.trace, "exit").calls > 0, "{} events", traced.trace.len());
    let traced = run().with(&["--min-size", "1MiB"]).trace();
    traced.sound();
    exact(&traced, &[], &["middle", "leaf", "outer", "nothing"]);
    assert!(limited(&traced, "min-size") > 1000, "{:?}", traced.trace.manifest.limits);
}

#[test]
fn rules_hold_for_libraries_that_are_loaded_later() {
    for engine in ENGINES {
        let traced = Run::target("dlopen_loop").with(&["--engine", engine, "--only", "plugin_leaf"]).trace();
        traced.sound();
        exact(&traced, &["plugin_leaf"], &["plugin_entry", "round_trip"]);
    }
}

#[test]
fn rules_hold_for_processes_that_are_followed() {
    for engine in ENGINES {
        let run = Run::target("family").variable("SPOOR_FAMILY", "family");
        let traced = run.with(&["--engine", engine, "--exclude", "*", "--only", "work"]).trace();
        traced.same_behaviour().nothing_lost();
        let told = fs::read_to_string(traced.folder.join("work").join("family")).expect("it tells");
        let times: u64 = told.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).sum();
        let worked: u64 = traced.all().map(|trace| counts::of_functions(trace, "work").calls).sum();
        assert_eq!(worked, times, "{engine}: {}", traced.traced.stderr);
        let of = |name: &str| traced.all().map(|trace| counts::of_functions(trace, name).calls).sum::<u64>();
        assert_eq!((of("main"), of("malloc")), (0, 0), "{engine}");
    }
}

#[test]
fn what_joins_events_together_is_there_whatever_the_rules_say() {
    for target in ["exceptions", "longjmp", "contexts", "rust_panics"] {
        Run::target(target).with(&["--engine", "native", "--only", "main", "--only", "*e*"]).trace().sound();
    }
    let traced =
        Run::target("pthreads").with(&["--engine", "native", "--exclude", "libc.so*", "--exclude", "main"]).trace();
    traced.sound();
    let threads = spans::of(&traced.trace.folder, &["--kind", "thread"]);
    assert_eq!(threads.iter().filter(|span| span.word("function") == "returns").count(), 10, "{}", threads.len());
}

#[test]
fn what_is_jumped_to_by_a_function_left_out_that_it_jumped_to_is_recorded() {
    for options in [&["--engine", "native", "--no-detail"][..], &["--engine", "frida"]] {
        let traced = Run::target("tail_calls").with(options).with(&["--exclude", "pong"]).trace();
        traced.sound();
        exact(&traced, &["relay", "chosen", "counts_down"], &["pong"]);
        // Where the other is the last, it returns to where this one was called from.
        assert_eq!(traced.recorded("ping").calls, traced.counts["ping"].calls);
    }
}

#[test]
fn below_a_function_calls_are_recorded_to_a_depth() {
    for engine in ENGINES {
        let run = |target| Run::target(target).with(&["--engine", engine, "--no-detail"]);
        let traced = run("plain").with(&["--max-depth", "outer:1"]).trace();
        traced.sound();
        exact(&traced, &["outer", "middle"], &["leaf", "nothing"]);
        assert_eq!(limited(&traced, "max-depth"), traced.counts["leaf"].calls + traced.counts["nothing"].calls);
        let stderr = &traced.traced.stderr;
        assert!(stderr.contains(" calls not recorded") && !stderr.contains("nothing lost"), "{stderr}");
        // What is not below it is there.
        assert!(counts::of_functions(&traced.trace, "printf").calls > 0 || traced.trace.len() > 1000);

        let traced = run("recursion").arguments(&["1000"]).with(&["--max-depth", "dive:10"]).trace();
        traced.sound();
        exact(&traced, &["even", "odd", "fibonacci"], &[]);
        assert_eq!((traced.recorded("dive").calls, limited(&traced, "max-depth")), (11, 989));
        assert_eq!(traced.recorded("dive").returns, 11);
    }
    for target in ["exceptions", "longjmp", "tail_calls", "fibers", "contexts"] {
        let run = Run::target(target).with(&["--engine", "native", "--max-depth", "main:2"]);
        run.trace().same_behaviour().nothing_lost().times_rise();
    }
}

#[test]
fn what_depths_are_counted_from_is_not_turned_down() {
    // As many calls as fit the ring: nothing keeps what is full for good from filling it.
    let run = Run::target("hot_loop").arguments(&["30000", "1"]);
    let traced = run.lossy(&["--engine", "native", "--no-detail", "--budget", "1%", "--max-depth", "tiny:0"]).trace();
    traced.same_behaviour().nothing_lost();
    assert_eq!(traced.recorded("tiny"), traced.counts["tiny"]);
}

#[test]
fn rules_hold_for_a_program_that_runs_already() {
    agent_command::prepare();
    for engine in ENGINES {
        let mut program = Command::new(Target::named("steady").program());
        let (folder, collector) = Collector::in_folder("attached-rules", &[]);
        program.env("SPOOR_COUNTS", folder.join("counts"));
        let mut program = Process::start(program, Stdout::Collect);
        let options =
            ["--engine", engine, "--no-detail", "--only", "tick", "--only", "round_of", "--max-depth", "dives:3"];
        let attach = agent_command::attach_to(collector.tcp(), Transport::Tcp, &options, program.pid());
        let mut agent = Process::start(attach, Stdout::Collect);
        collector.wait_for("session ");
        thread::sleep(Duration::from_secs(3));
        agent.signal("INT");
        let exit = agent.exit(PATIENCE);
        assert_eq!(exit.code, Some(0), "{}", exit.stderr);
        drop(program.take_stdin());
        assert_eq!(program.exit(PATIENCE).code, Some(4));
        collector.stop().success();
        let trace = Trace::only(folder.path());
        let calls = |name| counts::of_functions(&trace, name).calls;
        // It is needed to count depths from.
        assert!(calls("round_of") > 0 && calls("dives") > 0, "{engine}: {}", exit.stderr);
        assert_eq!((calls("compares"), calls("jumps"), calls("malloc")), (0, 0, 0), "{engine}");
    }
}

fn record(folder: &Folder, options: &[&str]) -> Exit {
    build("collector");
    let mut command = agent_command::command(&["record", "--engine", "native", "-o"]);
    command.arg(folder.join("traces")).args(options).arg("--").arg(Target::named("plain").program());
    Process::start(command, Stdout::Collect).exit(PATIENCE)
}

#[test]
fn a_file_of_rules_is_read_where_it_stands() {
    agent_command::prepare();
    let folder = Folder::new("rules");
    let file = folder.join("rules");
    let path = file.to_str().expect("text");
    fs::write(&file, "# what is mine\nexclude *\n\nonly m*\nexclude middle\nmax-depth main:9\n").expect("written");
    let exit = record(&folder, &["--rules", path, "--only", "middle", "--exclude", "no_such"]);
    assert_eq!(exit.code, Some(3), "{}", exit.stderr);
    assert!(exit.stderr.contains("--exclude no_such: no module and no function"), "{}", exit.stderr);
    let trace = Trace::only(&folder.join("traces"));
    let calls = |name| counts::of_functions(&trace, name).calls;
    assert!(calls("middle") == 100 && calls("leaf") == 0 && calls("main") == 1, "{}", exit.stderr);

    fs::write(&file, "only main\nmax-depth main\n").expect("written");
    let exit = record(&folder, &["--rules", path]);
    assert!(exit.code == Some(2) && exit.stderr.contains(&format!("{path}:2: expected a number")), "{}", exit.stderr);
    fs::remove_file(&file).expect("removed");
    let exit = record(&folder, &["--rules", path]);
    assert!(exit.code == Some(125) && exit.stderr.contains("cannot read it"), "{}", exit.stderr);
}

#[test]
fn what_would_be_hooked_goes_by_the_same_rules() {
    let program = Target::named("plain_debug").program();
    let list = |options: &[&str]| -> Vec<serde_json::Value> {
        let mut command: Command = agent_command::command(&["list", "--json", "--functions"]);
        let output = command.args(options).arg(&program).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = text.lines().next().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        first.expect("a module")["list"].as_array().expect("functions").clone()
    };
    let listed = list(&["--only", "plain.c", "--exclude", "leaf"]);
    let how = |name: &str| {
        let function = listed.iter().find(|function| function["name"] == name).expect("it is there");
        (function["hook"].as_str().map(String::from), function["left"].as_str().map(String::from))
    };
    assert_eq!(how("middle"), (Some("frame".into()), None));
    assert_eq!(how("leaf"), (None, Some("excluded".into())));
}
