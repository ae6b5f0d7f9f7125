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
fn who_is_traced_by_another_is_refused_at_once() {
    let program = Running::start(&mut Command::new("cat"));
    let mut tracer = Command::new("python3");
    let seize = format!(
        "import ctypes; ctypes.CDLL(None).ptrace(0x4206, {}, 0, 0); print('held', flush=True); input()",
        program.pid()
    );
    let mut tracer = Running::start(tracer.args(["-c", &seize]));
    assert_eq!(tracer.line(), "held");
    let begun = Instant::now();
    refused(program.pid(), &format!("process {} is tracing it", tracer.pid()));
    assert!(begun.elapsed() < Duration::from_secs(2), "it is not waited for");
    tracer.tell("");
    assert_eq!(tracer.end().code(), Some(0));
}

#[test]
fn who_is_confined_is_refused_and_lives() {
    let folder = Folder::new();
    // Whoever makes shared memory is killed.
    let source = "#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <stddef.h>\n#include <stdio.h>\n\
        #include <sys/prctl.h>\n#include <sys/syscall.h>\n\
        int main(void) {\n\
        struct sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),\n\
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};\n\
        struct sock_fprog program = {4, filter};\n\
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);\n\
        puts(\"confined\"); fflush(stdout); return getchar() == 'x' ? 7 : 8; }\n";
    let mut program = Running::start(&mut Command::new(compile(&folder, "confined", source, &[])));
    assert_eq!(program.line(), "confined");
    refused(program.pid(), "it has confined itself with seccomp");
    program.tell("x");
    assert_eq!(program.end().code(), Some(7));
}

#[test]
fn what_has_ended_is_refused_whoever_is_left_of_it() {
    let folder = Folder::new();
    let source = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
        static void *wait_for_input(void *none) { getchar(); exit(7); return none; }\n\
        int main(void) {\n\
        pid_t child = fork(); if (child == 0) _exit(0);\n\
        siginfo_t info; waitid(P_PID, child, &info, WEXITED | WNOWAIT);\n\
        printf(\"%d\\n\", child); fflush(stdout);\n\
        pthread_t thread; pthread_create(&thread, 0, wait_for_input, 0); pthread_exit(0); }\n";
    let mut program = Running::start(&mut Command::new(compile(&folder, "leaving", source, &["-pthread"])));
    let child = program.line().parse().expect("an id");
    refused(child, "it has ended, and its parent has not taken notice yet");
    let deadline = Instant::now() + Duration::from_secs(10);
    let is_over =
        |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    while !is_over(program.pid()) {
        assert!(Instant::now() < deadline, "its main thread ends");
        thread::sleep(Duration::from_millis(5));
    }
    refused(program.pid(), "its main thread has ended");
    program.tell("");
    assert_eq!(program.end().code(), Some(7));
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

#[test]
fn who_is_interrupted_while_it_attaches_leaves_nothing() {
    let mut program = Running::start(&mut Command::new("cat"));
    let pid = program.pid().to_string();
    let attach = ["attach", "--engine", "native", "--verbose", &pid];
    for delay in (0..8).map(|step| Duration::from_millis(15 * step)) {
        let mut agent = Running::start(&mut sending(&attach));
        thread::sleep(delay);
        agent.send("INT");
        let ended = agent.end();
        assert!(!ended.stderr.contains("cannot attach"), "{delay:?}: {ended:?}");
    }
    let mut agent = Running::start(&mut sending(&attach));
    agent.wait_said("agent: hooked ");
    agent.send("INT");
    assert_eq!(agent.end().code(), Some(0));
    program.tell("afterwards");
    assert_eq!(program.line(), "afterwards");
    assert_eq!(program.end().code(), Some(0));
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
