//! `agent record`: a trace on this machine, with one command.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tests::{
    Exit, Folder, Process, Target, Trace, agent_command,
    agent_command::PATIENCE,
    collector::{run_on, verified},
    process::{Stdout, build},
    small_disk::SmallDisk,
    wait::eventually,
};

use crate::tracing::kill;

/// `agent record`, up to the program's name and arguments. The collector is built, and so lies beside the agent.
fn record_to(dir: &Path, options: &[&str]) -> Command {
    build("collector");
    let mut command = agent_command::command(&["record", "--engine", "native", "-o"]);
    command.arg(dir).args(options).arg("--");
    command
}

fn record(dir: &Path, options: &[&str], program: &[&str]) -> Exit {
    let mut command = record_to(dir, options);
    command.args(program);
    Process::start(command, Stdout::Collect).exit(PATIENCE)
}

/// The collector that an agent has started.
fn collector_of(agent: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).ok()?;
    let is_collector =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "collector\n");
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_collector)
}

fn is_there(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}

#[test]
fn one_command_makes_a_trace() {
    let folder = Folder::new("record");
    let dir = folder.join("new/traces");
    let mut command = record_to(&dir, &[]);
    command.arg(Target::named("plain").program());
    let exit = Process::start(command, Stdout::Collect).exit(PATIENCE);
    assert_eq!(exit.code, Some(3), "{}", exit.stderr);
    assert!(exit.stderr.contains("nothing lost"), "{}", exit.stderr);
    let next = exit.stderr.lines().last().expect("lines");
    assert!(next.contains(&format!("collector top {}", dir.display())), "{next}");
    let trace = Trace::only(&dir);
    assert!(trace.len() > 100 && trace.manifest.gaps.is_empty(), "{} events", trace.len());
    verified(&trace.folder);
    run_on("top", &dir, &[]).success();

    // The next one lies beside it, and quietly.
    let exit = record(&dir, &["--quiet"], &["sh", "-c", "kill -TERM $$"]);
    assert_eq!((exit.code, exit.stderr.as_str()), (None, ""), "it died as the program did");
    assert_eq!(Trace::all(&dir).len(), 2);
}

/// What `--summary` has written.
fn summary(text: &str) -> Value {
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(lines.len(), 1, "one object: {text}");
    serde_json::from_str(lines[0]).expect("JSON")
}

#[test]
fn a_summary_tells_scripts_what_came_of_it() {
    let folder = Folder::new("record-summary");
    let (dir, file) = (folder.join("traces"), folder.join("summary.json"));
    let name = file.to_str().expect("text");
    let exit = record(&dir, &["--quiet", "--summary", name], &["sh", "-c", "exit 9"]);
    assert_eq!((exit.code, exit.stderr.as_str()), (Some(9), ""));
    let told = summary(&fs::read_to_string(&file).expect("written"));
    let trace = Trace::only(&dir);
    assert_eq!(told["session"].as_str(), trace.manifest.session.as_deref());
    assert_eq!(told["events"].as_u64(), Some(trace.len() as u64), "{told}");
    assert_eq!((told["end"].as_str(), told["exit_code"].as_i64()), (Some("exited"), Some(9)), "{told}");
    assert!(told["program"].as_str().is_some_and(|program| program.starts_with('/')), "{told}");
    assert!(told["pid"].as_u64().is_some() && told["functions"].as_u64() > Some(100), "{told}");
    assert_eq!((&told["threads"], &told["unconfirmed"], &told["not_recorded"]), (&1.into(), &0.into(), &0.into()));
    assert_eq!((&told["complete"], &told["signal"]), (&true.into(), &Value::Null));
    assert!(told["dropped"].as_object().is_some_and(|dropped| dropped.is_empty()), "{told}");

    // What is lost is there, too, and by a signal. Standard error is as good as a file.
    let spin = "i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done; kill -KILL $$";
    let options = ["--summary", "-", "--ring-bytes", "64KiB", "--budget", "none"];
    let exit = record(&dir, &options, &["sh", "-c", spin]);
    let told = summary(&exit.stderr);
    assert_eq!((exit.signal, told["signal"].as_i64()), (Some(9), Some(9)), "{told}");
    assert!(told["dropped"]["ring-full"].as_u64() > Some(0), "{told}");

    let exit = record(&dir, &["--summary", "/no/such/folder/file"], &["true"]);
    assert!(exit.code == Some(125) && exit.stderr.contains("--summary /no/such/folder/file"), "{}", exit.stderr);
}

#[test]
fn what_cannot_be_written_to_is_told_before_the_program_begins() {
    let folder = Folder::new("record-nowhere");
    let (file, sign) = (folder.join("file"), folder.join("it ran"));
    fs::write(&file, "").expect("written");
    let sign = sign.to_str().expect("text");
    for (dir, options, code, said) in [
        (file.as_path(), &[][..], 125, "the collector did not start: cannot open sink disk:"),
        (Path::new("/proc/nowhere"), &[], 125, "the collector did not start: cannot open sink disk:/proc/nowhere"),
        (folder.path(), &["--collector", "/no/such/collector"], 125, "cannot start /no/such/collector"),
        (folder.path(), &["--collector", "true"], 125, "the collector did not start: it ended without a word"),
    ] {
        let exit = record(dir, options, &["touch", sign]);
        assert_eq!(exit.code, Some(code), "{}", exit.stderr);
        assert!(exit.stderr.lines().count() == 1 && exit.stderr.contains(said), "{}", exit.stderr);
        assert!(!Path::new(sign).exists(), "the program must not run");
    }
    let dir = folder.join("new");
    let exit = record(&dir, &[], &["/no/such/program"]);
    assert!(exit.code == Some(127) && !dir.exists(), "{}", exit.stderr);
}

#[test]
fn a_disk_that_is_full_is_told() {
    let Some(disk) = SmallDisk::new(256) else { return };
    let exit = record(&disk.path().join("traces"), &["--linger", "1s"], &["ls", "/usr/bin"]);
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    for said in ["No space left on device", "has not confirmed", "the collector failed"] {
        assert!(exit.stderr.contains(said), "{said}: {}", exit.stderr);
    }
    assert!(!exit.stderr.contains("nothing lost"), "{}", exit.stderr);
}

#[test]
fn the_collector_ends_with_an_agent_that_is_killed() {
    let folder = Folder::new("record-killed");
    let dir = folder.join("traces");
    let mut command = record_to(&dir, &[]);
    command.args(["sh", "-c", "echo $$ >&2; read line"]);
    let mut agent = Process::start(command, Stdout::Collect);
    let _input = agent.take_stdin();
    let begun = |lines: &[String]| lines.iter().find_map(|line| line.parse::<u32>().ok());
    let program = agent.find(Duration::from_secs(20), begun).expect("it begins");
    let collector = collector_of(agent.pid()).expect("a collector");
    kill("KILL", agent.pid());
    eventually("the collector ends", || !is_there(collector));
    let trace = Trace::only(&dir);
    assert!(!trace.is_empty(), "what came is kept");
    kill("KILL", program);
}

#[test]
fn an_interrupt_is_for_the_program() {
    let folder = Folder::new("record-interrupted");
    let dir = folder.join("traces");
    let mut command = record_to(&dir, &[]);
    command.args(["sh", "-c", "trap 'exit 5' INT; echo ready >&2; while :; do sleep 0.05; done"]);
    // As a terminal does it: to all of the group.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut agent = Process::start(command, Stdout::Collect);
    agent.find(Duration::from_secs(20), |lines| lines.iter().any(|line| line == "ready").then_some(())).expect("ready");
    let collector = collector_of(agent.pid()).expect("a collector");
    let group = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(2).map(String::from)).expect("a group")
    };
    assert_ne!(group(collector), group(agent.pid()), "the terminal does not interrupt the collector");
    agent.signal("INT");
    let exit = agent.exit(PATIENCE);
    assert_eq!(exit.code, Some(5), "{}", exit.stderr);
    assert!(exit.stderr.contains("nothing lost"), "{}", exit.stderr);
    // Each `sleep` is a session of its own.
    let all = Trace::all(&dir);
    assert!(all.len() > 1);
    all.iter().for_each(|trace| verified(&trace.folder));
}

#[test]
fn only_a_socket_can_be_listened_to_as_standard_input() {
    let output = Command::new(build("collector")).arg("--stdin").stdin(Stdio::null()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("standard input is no stream socket"), "{said}");
    let mut command = Command::new(build("collector"));
    let output = command.args(["--stdin", "--listen", "127.0.0.1:0"]).stdin(Stdio::null()).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "there is nobody else to listen to");
}

#[test]
fn a_collector_that_was_killed_is_not_waited_for() {
    let folder = Folder::new("record-collector-killed");
    let dir = folder.join("traces");
    let mut command = record_to(&dir, &[]);
    command.args(["sh", "-c", "echo ready >&2; read line; exit 7"]);
    let mut agent = Process::start(command, Stdout::Collect);
    let input = agent.take_stdin();
    agent.find(Duration::from_secs(20), |lines| lines.iter().any(|line| line == "ready").then_some(())).expect("ready");
    let collector = collector_of(agent.pid()).expect("a collector");
    kill("KILL", collector);
    eventually("it is gone", || !is_there(collector));
    drop(input);
    // Else it would linger for ten seconds.
    let exit = agent.exit(Duration::from_secs(8));
    assert_eq!(exit.code, Some(7), "{}", exit.stderr);
    assert!(exit.stderr.contains("the collector failed"), "{}", exit.stderr);
    assert!(!exit.stderr.contains("nothing lost"), "{}", exit.stderr);
}

#[test]
fn a_session_that_fails_to_start_leaves_nothing() {
    let folder = Folder::new("record-not-started");
    for name in ["new", "old"] {
        let dir = folder.join(name);
        let kept = dir.join("kept");
        if name == "old" {
            fs::create_dir_all(&kept).expect("a folder");
        }
        let mut command = record_to(&dir, &["--startup-timeout", "1ms"]);
        command.arg(Target::named("plain").program());
        let exit = Process::start(command, Stdout::Collect).exit(PATIENCE);
        assert_eq!(exit.code, Some(125), "{}", exit.stderr);
        let left: Vec<_> = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        assert_eq!(left, if name == "old" { vec![kept] } else { Vec::new() }, "{}", exit.stderr);
        assert_eq!(dir.exists(), name == "old", "{}", exit.stderr);
    }
}
