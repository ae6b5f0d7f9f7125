//! Attaching to a process that runs already.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    program::compile,
    support::{Folder, Running, agent, run, sending},
};

fn refused(pid: u32, said: &str) {
    let ended = run(&mut agent(&["attach", &pid.to_string()]));
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert!(ended.error().contains(said), "{ended:?}");
}

#[test]
fn what_cannot_be_attached_to_is_told() {
    refused(0x3fff_fffe, "there is no such process");
    let folder = Folder::new();
    let source = "void _start(void) { for (;;) __asm__ volatile (\"syscall\" :: \"a\"(34)); }\n";
    let program = compile(&folder, "pausing", source, &["-static", "-nostdlib"]);
    let running = Running::start(&mut Command::new(program));
    let ended = run(&mut agent(&["attach", "--engine", "frida", &running.pid().to_string()]));
    assert!(ended.error().contains("it is linked statically, and Frida cannot be loaded into it"), "{ended:?}");
}

#[test]
fn a_thread_is_not_a_process() {
    let mut program = Command::new("python3");
    program.args([
        "-c",
        "import threading; t = threading.Thread(target=input); t.start(); print(t.native_id, flush=True)",
    ]);
    let mut running = Running::start(&mut program);
    let thread = running.line().parse().expect("an id");
    refused(thread, &format!("it is a thread of process {}", running.pid()));
    running.tell("");
    assert_eq!(running.end().code(), Some(0));
}

#[test]
fn a_program_that_is_let_go_goes_on() {
    let mut program = Running::start(&mut Command::new("cat"));
    let mut agent = attached(&program);
    refused(program.pid(), "another agent is tracing it");
    program.tell("while attached");
    assert_eq!(program.line(), "while attached");

    agent.send("INT");
    let ended = agent.end();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    // Its agent unloads itself, a moment after it has said so.
    let deadline = Instant::now() + Duration::from_secs(10);
    while has_frida(program.pid()) {
        assert!(Instant::now() < deadline, "Frida has left");
        thread::sleep(Duration::from_millis(5));
    }
    program.tell("afterwards");
    assert_eq!(program.line(), "afterwards");
    assert_eq!(program.end().code(), Some(0));
}

#[test]
fn a_program_that_ends_ends_the_trace() {
    let mut program = Running::start(&mut Command::new("cat"));
    let mut agent = attached(&program);
    assert_eq!(program.end().code(), Some(0));
    let ended = agent.end();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
}

/// Attaches to a program, and waits until everything is hooked.
fn attached(program: &Running) -> Running {
    let pid = program.pid().to_string();
    let mut running = Running::start(&mut sending(&["attach", "--verbose", &pid]));
    running.wait_said("agent: hooked ");
    running
}

fn has_frida(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("frida-agent"))
}
