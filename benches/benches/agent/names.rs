//! How many of the functions that programs call have a name, with and without debug files. There is no aim here.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use benches::{
    agent,
    built::{installed, own_file},
    running::{self, Running, only_session},
};
use rustix::process::{Pid, Signal, kill_process};

use super::Settings;

/// How long a server runs.
const SERVING: Duration = Duration::from_secs(3);

/// A program, what it is given, and whether it runs until it is told to end.
const CASES: [(&str, &[&str], bool); 3] = [
    (
        "python3",
        &["-c", "import json, re; print(json.dumps([re.sub('a', 'b', str(n)) for n in range(100)])[:9])"],
        false,
    ),
    ("sqlite3", &[":memory:", "create table t(a, b); insert into t values (1, 2); select sum(a) from t;"], false),
    ("redis-server", &["--port", "0", "--save", ""], true),
];

pub(super) fn measure(settings: &Settings) {
    println!("\n### Functions that are called and have a name\n");
    println!("| program | without debug files | with those that are there |");
    println!("|---|---:|---:|");
    for (name, arguments, serves) in CASES {
        match installed(name) {
            Some(program) => row(settings, name, &program, arguments, serves),
            None => println!("| {name}: skipped, not installed | | |"),
        }
    }
    let program = stripped(settings);
    row(settings, "stripped C++", &program, &[], false);
    _ = fs::remove_dir_all(program.parent().expect("a folder"));
}

fn row(settings: &Settings, name: &str, program: &Path, arguments: &[&str], serves: bool) {
    let [without, with] = [true, false].map(|hidden| {
        let (all, named) = called(settings, program, arguments, serves, hidden);
        format!("{named} of {all} ({:.0} %)", named as f64 * 100.0 / all.max(1) as f64)
    });
    println!("| {name} | {without} | {with} |");
}

/// Traces a program, and counts the functions it called and those of them that have names. With `hidden` there are no debug
/// files on the machine.
fn called(settings: &Settings, program: &Path, arguments: &[&str], serves: bool, hidden: bool) -> (usize, usize) {
    let traces = settings.fresh().join("traces");
    let collector = Running::start_with(&["--sink", &format!("disk:{},spans=no", traces.display())]);
    let traced = agent::run(collector.address, &["--transport", "tcp", "--complete", "--no-detail"]);
    let (beside, aside) = (program.with_extension("debug"), program.with_extension("aside"));
    let mut command = match hidden {
        true => without_debug_files(&traced),
        false => traced,
    };
    if hidden {
        // There may be none.
        _ = fs::rename(&beside, &aside);
    }
    command.arg(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    if serves {
        thread::sleep(SERVING);
        kill_process(Pid::from_child(&child), Signal::TERM).expect("it is there");
    }
    child.wait().expect("it ends");
    collector.stop();
    if hidden {
        _ = fs::rename(&aside, &beside);
    }
    let mut top = Command::new(running::binary());
    let top = top.arg("top").arg(only_session(&traces)).args(["--json", "--limit", "1000000"]).output();
    let top = String::from_utf8(top.expect("it runs").stdout).expect("text");
    (top.lines().count(), top.lines().filter(|line| !line.contains("\"symbol\":null")).count())
}

/// The same command where the system's debug files cannot be seen.
fn without_debug_files(command: &Command) -> Command {
    let mut hiding = Command::new("unshare");
    let script = "mkdir -p /usr/lib/debug && mount -t tmpfs tmpfs /usr/lib/debug && exec \"$@\"";
    hiding.args(["--mount", "sh", "-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    hiding.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    hiding
}

/// A C++ program without symbols, and its debug file beside it.
fn stripped(settings: &Settings) -> PathBuf {
    let folder = settings.folder.with_extension("stripped");
    fs::create_dir_all(&folder).expect("a folder");
    let (program, debug) = (folder.join("program"), folder.join("program.debug"));
    let run = |command: &mut Command| assert!(command.status().is_ok_and(|status| status.success()), "{command:?}");
    run(Command::new("g++")
        .args(["-O1", "-g", "-pthread", "-D_GNU_SOURCE", "-o"])
        .arg(&program)
        .args(["exceptions.cpp", "thrower.cpp"].map(|file| own_file(&format!("../fixtures/targets/{file}")))));
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&debug));
    run(Command::new("strip").arg(&program));
    run(Command::new("objcopy").arg(format!("--add-gnu-debuglink={}", debug.display())).arg(&program));
    program
}
