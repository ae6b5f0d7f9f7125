//! Room for descriptors, Frida's and the command's own, where only few files may be open.

use std::fs;

use anyhow::{Result, anyhow};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// How many a process must be allowed to have open for Frida to enter: it wants numbers above 32.
const LEAST: u64 = 64;

/// How many let Frida's numbers be so high that they are out of the program's way.
const ENOUGH: u64 = 512;

/// A process that may have more files open than it was allowed, until this is dropped.
#[derive(Debug)]
pub(crate) struct DescriptorRoom {
    pid: i32,
    before: Option<Rlimit>,
}

impl DescriptorRoom {
    /// Lets a process that is to be entered have more files open.
    pub(crate) fn make(pid: i32) -> Result<Self> {
        Self::raise(pid).map_err(|few| anyhow!("cannot attach to process {pid}: it may have {few}"))
    }

    /// The same for this process and those that it starts. They are to be given back what they were allowed.
    pub(crate) fn make_own() -> Result<Self> {
        Self::raise(std::process::id() as i32).map_err(|few| anyhow!("a process may have {few}"))
    }

    fn raise(pid: i32) -> Result<Self, String> {
        let before = limit(pid).filter(|limit| limit.current.is_some_and(|current| current < ENOUGH));
        let Some(allowed) = before else { return Ok(Self { pid, before: None }) };
        let within = allowed.maximum.map_or(ENOUGH, |most| most.min(ENOUGH));
        // Beyond what it may allow itself only who may do anything can go.
        let room = Self { pid, before };
        let raised = [ENOUGH, within].into_iter().find(|current| {
            let maximum = allowed.maximum.map(|most| most.max(*current));
            set(pid, Rlimit { current: Some(*current), maximum })
        });
        match raised.or(allowed.current) {
            Some(few) if few < LEAST => {
                Err(format!("only {few} files open, and tracing needs {LEAST} (raise `ulimit -n`)"))
            }
            _ => Ok(room),
        }
    }

    /// Has the room of another process be given back: one that began with this one's.
    pub(crate) fn of(&self, pid: i32) -> Self {
        Self { pid, before: self.before }
    }
}

impl Drop for DescriptorRoom {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            // Where that fails, the process is gone.
            set(self.pid, before);
        }
    }
}

fn set(pid: i32, limit: Rlimit) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| prlimit(Some(pid), Resource::Nofile, limit).is_ok())
}

/// How many files a process may have open.
fn limit(pid: i32) -> Option<Rlimit> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let mut words = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace();
    let mut next = || words.next().map(|word| word.parse().ok());
    Some(Rlimit { current: next()?, maximum: next()? })
}
