//! The collector as its users see it: a process, sockets, and what it leaves on disk.
//!
//! Every test has folders, ports and processes of its own, and waits for what it expects with a deadline.

mod access;
mod asked;
mod beyond;
mod browser;
mod clocks;
mod encrypted;
mod hostile;
mod kill;
mod loss;
mod memory;
mod offline;
mod plain;
mod pressure;
mod sinks;
mod transport;
mod ui;
mod unfinished;

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use codec::profile::EndReason;
use tests::{
    Agent, Settings, Trace, account,
    collector::verified,
    wait::{LONG, eventually},
};

/// Taken by tests that keep the whole machine busy, and by those that must not be kept waiting.
static MACHINE: Mutex<()> = Mutex::new(());

/// Waits until no other such test runs.
fn machine() -> MutexGuard<'static, ()> {
    // A test that failed has left nothing behind that would matter.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an agent from its start to its end.
#[track_caller]
fn trace(settings: Settings, events: u64) -> Agent {
    let mut agent = Agent::start(settings).expect("the collector hears the agent");
    agent.work(events).expect("the collector takes the events");
    finish(&mut agent);
    agent
}

/// Ends an agent's session.
#[track_caller]
fn finish(agent: &mut Agent) {
    agent.finish(EndReason::Exited(0), LONG).expect("the collector acknowledges all of it");
}

/// Fails the test unless the agent's session is on disk, whole and sound.
#[track_caller]
fn is_complete(below: &Path, agent: &Agent) -> Trace {
    let trace = Trace::of(below, agent.session());
    account::complete(&trace, agent.program());
    verified(&trace.folder);
    trace
}
