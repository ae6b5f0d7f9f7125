//! Attaching to a process that runs already.

use std::process::Command;

use crate::{
    program::compile,
    support::{Folder, Running, agent, run},
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
    refused(running.pid(), "is linked statically");
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
    refused(program.pid(), "Frida is in it already");
    program.tell("while attached");
    assert_eq!(program.line(), "while attached");

    agent.send("INT");
    let ended = agent.end();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(!has_frida(program.pid()), "Frida has left");
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
    // It may have ended just before all was ready, which is said.
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(ended.code() == Some(0) || last.starts_with("agent: the program ended while"), "{ended:?}");
}

/// Attaches to a program, and waits until everything is hooked: Frida's threads are then told to take no signals.
fn attached(program: &Running) -> Running {
    let pid = program.pid();
    let mut running = Running::start(&mut agent(&["attach", "--quiet", "--linger", "0s", &pid.to_string()]));
    running.until("attached", || has_frida(pid) && frida_takes_no_signals(pid));
    running
}

/// Whether all threads but the first block the signals that a program may have handlers for.
fn frida_takes_no_signals(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let others = threads.flatten().filter(|thread| thread.file_name().to_str() != Some(&pid.to_string()));
    let blocked = others.map(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let mask =
            status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).map(|mask| u64::from_str_radix(mask, 16));
        let wanted = 1 << 1 | 1 << 9 | 1 << 14;
        mask.is_some_and(|mask| mask.is_ok_and(|mask| mask & wanted == wanted))
    });
    let blocked: Vec<bool> = blocked.collect();
    blocked.len() > 1 && blocked.iter().all(|blocked| *blocked)
}

fn has_frida(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("frida-agent"))
}
