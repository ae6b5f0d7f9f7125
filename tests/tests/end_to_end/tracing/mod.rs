//! The agent as its users see it: programs traced over real sockets into files, and the programs none the wiser.
//!
//! Every test has a collector, folders and processes of its own, and waits for what it expects with a deadline. The
//! target programs are in `fixtures/targets`.

mod attach;
mod collector_ctl;
mod ctl;
mod detail;
mod encrypted;
mod endings;
mod failures;
mod family;
mod fibers;
mod go;
mod killed;
mod levels;
mod libraries;
mod lossy;
mod moments;
mod musl;
mod names;
mod programs;
mod reader;
mod record;
mod redis;
mod rules;
mod selection;
mod spans;
mod stall;
mod targets;
mod threads;
mod told;

use std::{fs, path::Path, process::Command};

use tests::{
    Transport,
    wait::{LONG, answer, eventually},
};

/// Both ways to the collector.
const BOTH: [Transport; 2] = [Transport::Udp, Transport::Tcp];

/// Sends a signal, by its name without `SIG`, to a process.
#[track_caller]
fn kill(signal: &str, pid: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -s {signal} {pid}")]).status();
    assert!(sent.is_ok_and(|status| status.success()), "SIG{signal} to {pid}");
}

/// The process that another one has started from this file. Fails the test where it does not come.
#[track_caller]
fn child(parent: u32, program: &Path) -> u32 {
    let program = fs::canonicalize(program).expect("the program is there");
    let is_it = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == program);
    answer("the program runs", || {
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).ok()?.flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let pids: Vec<u32> =
            children.flat_map(|line| line.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
        pids.into_iter().find(is_it)
    })
}
