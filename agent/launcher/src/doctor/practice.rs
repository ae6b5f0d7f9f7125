//! Doing to a program of our own what tracing does: holding it at the gate, stopping it, writing to its memory, and
//! letting Frida in.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use nix::{
    sys::{
        ptrace,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::{
    Finding::{self, Bad, Fair, Good},
    own_path,
};
use crate::{
    args::Engine,
    executable::Executable,
    frida::{Host, Options},
    native::{Borrowed, Library},
    process::{ptrace_remedy, ptrace_scope},
    program::Gated,
    signals::Signals,
};

/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Each step, and how it went. The first that fails is the last.
pub(super) fn run(library: &Path, frida: Option<&Options>) -> Vec<(&'static str, Finding)> {
    let mut findings = Vec::new();
    let gated = match start(library) {
        Ok(gated) => gated,
        Err(error) => return vec![("start", Bad(format!("{error:#}")))],
    };
    findings.push(("start", Good("a program can be held before its first instruction".into())));
    let memory = match stopped(gated.pid(), write_memory) {
        Ok(memory) => memory,
        Err(error) => {
            findings.push(("ptrace", Bad(format!("{error:#} ({})", ptrace_remedy()))));
            return findings;
        }
    };
    findings.push(("ptrace", permission()));
    findings.push(match memory {
        Ok(()) => ("code", Good("the code of a stopped program can be changed".into())),
        Err(error) => {
            let remedy = "the kernel may forbid it: look for proc_mem.force_override on its command line";
            ("code", Bad(format!("the code of a stopped program cannot be changed: {error:#} ({remedy})")))
        }
    });
    findings.push(match enter_natively() {
        Ok(()) => ("native", Good("a program can be entered without Frida".into())),
        Err(error) => ("native", Bad(format!("{error:#}"))),
    });
    if let Some(options) = frida {
        let begun = Instant::now();
        findings.push(match enter(options, gated.pid(), library) {
            Ok(()) => ("injection", Good(format!("Frida loads the library in {:.1} s", begun.elapsed().as_secs_f64()))),
            Err(error) => ("injection", Bad(format!("{error:#}"))),
        });
    }
    findings
}

fn start(library: &Path) -> Result<Gated> {
    let own = own_path().ok_or_else(|| anyhow!("this command does not know where it is"))?;
    let executable = Executable::find(own.as_os_str(), Engine::Frida)?;
    let _signals = Signals::watch()?;
    Gated::start(&executable, own.as_os_str(), &[OsString::from("idle")], library, Instant::now() + PATIENCE)
}

/// Stops a process, does something to it, and lets it go on.
fn stopped<T>(pid: i32, act: impl FnOnce(i32) -> T) -> Result<T> {
    let id = Pid::from_raw(pid);
    ptrace::seize(id, ptrace::Options::empty()).context("a program of this user cannot be stopped")?;
    let acted = ptrace::interrupt(id).and_then(|()| wait_stopped(id)).map(|()| act(pid));
    ptrace::detach(id, None).context("a stopped program cannot be let go")?;
    acted.context("a program of this user cannot be stopped")
}

fn wait_stopped(id: Pid) -> nix::Result<()> {
    match waitpid(id, Some(WaitPidFlag::__WALL))? {
        WaitStatus::Exited(..) | WaitStatus::Signaled(..) => Err(nix::errno::Errno::ESRCH),
        _ => Ok(()),
    }
}

/// Writes what is there already over the first byte of code, which takes the same permission as anything else.
fn write_memory(pid: i32) -> Result<()> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let code = maps.lines().find(|line| line.split_whitespace().nth(1).is_some_and(|rights| rights.starts_with("r-x")));
    let start = code.and_then(|line| line.split_once('-')).map(|(start, _)| u64::from_str_radix(start, 16));
    let start = start.ok_or_else(|| anyhow!("it has no code"))??;
    let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
    let mut byte = [0];
    memory.read_exact_at(&mut byte, start)?;
    memory.write_all_at(&byte, start)?;
    Ok(())
}

/// Programs that this command starts can be stopped. Others?
fn permission() -> Finding {
    let root = rustix::process::geteuid().is_root();
    match ptrace_scope() {
        1 | 2 if !root => Fair(format!("`agent run` works, `agent attach` does not: {}", ptrace_remedy())),
        _ if root => Good("any program can be stopped".into()),
        _ => Good("this user's programs can be stopped".into()),
    }
}

/// Maps the library into a program that is stopped at its first instruction, which never begins.
fn enter_natively() -> Result<()> {
    let own = own_path().ok_or_else(|| anyhow!("this command does not know where it is"))?;
    let executable = Executable::find(own.as_os_str(), Engine::Native)?;
    let gated = Gated::stopped(&executable, own.as_os_str(), &[OsString::from("idle")])?;
    let mut thread = Borrowed::of_stopped(gated.pid(), gated.pid())?;
    Library::enter(&mut thread, gated.pid(), Instant::now() + PATIENCE)?;
    thread.give_back()
}

fn enter(options: &Options, pid: i32, library: &Path) -> Result<()> {
    Host::start(options, pid, library, Instant::now() + PATIENCE)?;
    Ok(())
}
