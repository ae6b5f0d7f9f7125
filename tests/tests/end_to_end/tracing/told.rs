//! What the agent says: options that mean nothing, waits, and no «nothing lost» where little was followed.

use std::{fmt::Write as _, fs, process::Command};

use tests::{Collector, Folder, Process, Run, Transport, agent_command, process::Stdout, wait::answer};

use crate::tracing::{LONG, kill};

/// The line that the agent ends with.
#[track_caller]
fn last_line(stderr: &str) -> &str {
    stderr
        .lines()
        .rfind(|line| line.contains(" events of "))
        .unwrap_or_else(|| panic!("it says what it sent: {stderr}"))
}

#[test]
fn an_unknown_option_is_no_program() {
    for arguments in [&["run", "--no-such-option", "--", "true"][..], &["run", "-Z", "true"]] {
        let output = agent_command::command(arguments).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains("unexpected argument"), "{text}");
    }
    // Those of the program are its own, with and without dashes before it.
    for program in [&["--", "sh", "-c", "exit 7"][..], &["sh", "-c", "exit 7"]] {
        let (_folder, collector) = Collector::in_folder("own-options", &[]);
        let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, &[]);
        // `run_to` ends with the dashes.
        command.args(program.strip_prefix(&["--"]).unwrap_or(program));
        assert_eq!(Process::start(command, Stdout::Collect).exit(LONG).code, Some(7));
    }
}

#[test]
fn a_pattern_that_excludes_nothing_is_told() {
    let run = || Run::target("plain").with(&["--exclude", "leaf", "--exclude", "no_such_*"]);
    let said = run().trace().traced.stderr;
    let told: Vec<_> = said.lines().filter(|line| line.contains("--exclude")).collect();
    assert!(matches!(told[..], [line] if line.contains("--exclude no_such_*: no module and no function")), "{said}");
    // One that another makes needless has matched something.
    let said = Run::target("plain").with(&["--exclude", "libc.so*", "--exclude", "malloc"]).trace().traced.stderr;
    assert!(!said.contains("--exclude"), "{said}");
}

#[test]
fn a_program_that_is_replaced_is_said_to_be() {
    let traced = Run::of("sh").arguments(&["-c", "exec ls /"]).with(&["--follow", "none"]).trace();
    let line = last_line(&traced.traced.stderr);
    assert!(line.contains("that came from it is not traced") && !line.contains("nothing lost"), "{line}");
    let limits = &traced.trace.manifest.limits;
    assert!(limits.iter().any(|limit| limit.detail.contains("ran another one in its place")), "{limits:?}");
}

#[test]
fn a_program_that_cannot_be_followed_is_said_to_be() {
    let folder = Folder::new("undescribed");
    let (source, program) = (folder.join("undescribed.c"), folder.join("undescribed"));
    let mut text = String::new();
    for index in 0..40 {
        writeln!(text, "__attribute__((noinline)) int f{index}(int x) {{ return x * {index} + 1; }}").expect("text");
    }
    text += "int main(void) { return f1(0) - f2(0); }";
    fs::write(&source, text).expect("written");
    let flags = ["-O1", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-o"];
    let status = Command::new("gcc").args(flags).arg(&program).arg(&source).status().expect("gcc runs");
    assert!(status.success());
    let traced = Run::of(&program).trace();
    let line = last_line(&traced.traced.stderr);
    assert!(line.contains("functions of ") && line.contains("no unwind entry"), "{line}");
    assert!(!line.contains("nothing lost"), "{line}");
}

#[test]
fn calls_that_are_not_recorded_are_told() {
    let traced = Run::target("recursion").arguments(&["1000"]).with(&["--max-depth", "100", "--no-detail"]).trace();
    let line = last_line(&traced.traced.stderr);
    assert!(line.contains(" calls not recorded") && !line.contains("nothing lost"), "{line}");
}

#[test]
fn nobody_waits_for_the_collector_without_a_word() {
    agent_command::prepare();
    let (folder, mut collector) = Collector::in_folder("waits", &[]);
    let go = folder.join("go");
    let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, &["--linger", "20s"]);
    command.args(["sh", "-c", "echo ready; while [ ! -e \"$0\" ]; do sleep 0.05; done"]).arg(&go);
    let agent = Process::start(command, Stdout::Collect);
    collector.wait_for("session ");
    let collector_id = collector.process().pid();
    // What was sent so far says nothing of the end.
    kill("STOP", collector_id);
    fs::write(&go, "").expect("written");
    answer("it says that it waits", || agent.said().contains("waiting for the collector").then_some(()));
    kill("CONT", collector_id);
    let exit = agent.exit(LONG).success();
    assert!(exit.stderr.contains("nothing lost"), "{}", exit.stderr);
}

#[test]
fn the_doctor_tries_what_run_would_do() {
    agent_command::prepare();
    let exit = Process::start(agent_command::command(&["doctor"]), Stdout::Collect).exit(LONG).success();
    assert!(exit.text().contains("Frida loads the library"), "{}", exit.text());
    assert!(exit.text().contains("a program can be entered without Frida"), "{}", exit.text());
    // A place to install Frida to, and nowhere to get it from: that is not tried unasked.
    let folder = Folder::new("offline");
    let offline = |subcommand| {
        let mut command = agent_command::command(&[subcommand]);
        command.env("XDG_DATA_HOME", folder.path());
        command.env("PIP_INDEX_URL", "http://127.0.0.1:9/").env("PIP_NO_INDEX", "1");
        Process::start(command, Stdout::Collect).exit(LONG)
    };
    let exit = offline("doctor").success();
    assert!(exit.text().contains("note    Frida          not installed"), "{}", exit.text());
    assert_eq!(offline("setup").code, Some(1));
}
