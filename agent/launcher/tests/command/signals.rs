//! Signals to the command reach the program, once.

use std::process::Command;

use crate::{
    program::compile,
    support::{Folder, Running, agent_run, run, sending},
};

/// Counts interrupts until it is asked for the count. Not a shell, which may lose a signal between two commands.
const COUNTING: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile sig_atomic_t interrupts, asked;
static void count(int signal) { interrupts++; }
static void ask(int signal) { asked = 1; }
int main(void) {
    signal(SIGINT, count);
    signal(SIGUSR1, ask);
    puts("ready");
    fflush(stdout);
    while (!asked)
        usleep(10000);
    printf("counted %d\n", (int) interrupts);
    return 5;
}
"#;

#[test]
fn a_signal_to_the_command_is_for_the_program() {
    let folder = Folder::new();
    let program = compile(&folder, "counting", COUNTING, &[]);
    let mut running = Running::start(&mut agent_run(&[&program]));
    assert_eq!(running.line(), "ready");
    running.send("USR1");
    assert_eq!(running.line(), "counted 0");
    assert_eq!(running.end().code(), Some(5));
}

#[test]
fn a_program_that_is_ended_ends_the_command() {
    let folder = Folder::new();
    let program = compile(&folder, "counting", COUNTING, &[]);
    let mut running = Running::start(&mut agent_run(&[&program]));
    assert_eq!(running.line(), "ready");
    running.send("TERM");
    assert_eq!(running.end().signal(), Some(15));
}

#[test]
fn ctrl_c_at_a_terminal_comes_once() {
    // A terminal of its own, as a shell would give it. The interrupt is written to it; the rest is as above. What was
    // handed on too much would have come before the second signal, since both take the same way.
    const TERMINAL: &str = r#"
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen = b''
def wait_for(text):
    global seen
    while text not in seen:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            part = b''
        if not part:
            sys.exit('only came: %r' % seen)
        seen += part
wait_for(b'ready')
os.write(terminal, b'\x03')
wait_for(b'^C')
os.kill(pid, signal.SIGUSR1)
wait_for(b'counted')
wait_for(b'\n')
print(seen.split(b'counted ')[1].split()[0].decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;
    let folder = Folder::new();
    let agent = agent_run(&[&compile(&folder, "counting", COUNTING, &[])]);
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL]).arg(agent.get_program()).args(agent.get_args());
    command.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = run(&mut command);
    assert_eq!((ended.stdout.trim_end(), ended.code()), ("1", Some(5)), "{ended:?}");
}

#[test]
fn what_was_ignored_stays_ignored_and_nothing_else() {
    let masks = ["grep", "Sig[BI]", "/proc/self/status"];
    let agent = agent_run(&masks);
    let traced = || agent.get_args().map(|arg| arg.to_str().expect("text")).collect::<Vec<_>>();
    for ignored in ["", "trap '' HUP INT USR1;"] {
        let script = format!("{ignored} exec \"$@\"");
        let mut plain = Command::new("sh");
        plain.args(["-c", &script, "sh"]).args(masks);
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(agent.get_program()).args(traced());
        command.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
        assert_eq!(signals(&run(&mut command).stdout), signals(&run(&mut plain).stdout), "{ignored}");
    }
}

/// Lines such as `SigIgn: 0000000000001000`, without the two signals that the C library keeps for itself.
fn signals(text: &str) -> Vec<(&str, u64)> {
    let masks: Vec<_> = text.lines().filter_map(|line| line.split_once(":\t")).collect();
    assert_eq!(masks.len(), 2, "{text}");
    let own = 0b11 << 31;
    masks.into_iter().map(|(name, mask)| (name, u64::from_str_radix(mask, 16).expect("a mask") & !own)).collect()
}

#[test]
fn it_can_be_stopped_while_it_starts() {
    let folder = Folder::new();
    // A Python that never answers, and says when it is there.
    let ready = folder.path("ready");
    let python = folder.executable("python", format!("#!/bin/sh\nmkfifo {ready}; echo >{ready}; exec sleep 1000\n"));
    let mut running = Running::start(&mut sending(&["run", "--frida-python", &python, "--", "echo", "begun"]));
    let there =
        Command::new("sh").args(["-c", &format!("until [ -p {ready} ]; do sleep 0.02; done; cat {ready}")]).status();
    assert!(there.expect("sh runs").success());
    running.send("TERM");
    let ended = running.end();
    assert_eq!((ended.signal(), ended.stdout.as_str()), (Some(15), ""), "the program has not begun: {ended:?}");
}
