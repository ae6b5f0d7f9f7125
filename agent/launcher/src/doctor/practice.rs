//! Doing to a program of our own what tracing does: stopping it, writing to its memory, entering it, and letting Frida in.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    Finding::{self, Bad, Fair, Good},
    own_path,
};
use crate::{
    engine::{Choice, Engine},
    executable::Executable,
    frida::{Host, Options, python},
    library::{self, Reader},
    native::{Borrowed, Library},
    process::{ptrace_remedy, ptrace_scope},
    program::Gated,
    signals::Signals,
};
use anyhow::{Result, anyhow};

/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What practice is for, and how it went.
type Findings = Vec<(&'static str, Finding)>;

/// Each step without Frida, and how it went. The first that fails is the last.
pub(super) fn natively() -> Findings {
    let gated = match start() {
        Ok(gated) => gated,
        Err(error) => return vec![("start", Bad(format!("{error:#} ({})", ptrace_remedy())))],
    };
    let mut findings =
        vec![("start", Good("a program can be stopped before its first instruction".into())), ("ptrace", permission())];
    if let Err(error) = write_memory(gated.pid()) {
        let remedy = "the kernel may forbid it: look for proc_mem.force_override on its command line";
        findings.push(("code", Bad(format!("the code of a stopped program cannot be changed: {error:#} ({remedy})"))));
        return findings;
    }
    findings.push(("code", Good("the code of a stopped program can be changed".into())));
    findings.push(match enter_natively(gated.pid()) {
        Ok(()) => ("native", Good("a program can be entered without Frida".into())),
        Err(error) => ("native", Bad(format!("{error:#}"))),
    });
    findings
}

/// Each step with Frida, and how it went.
pub(super) fn with_frida(options: &Options) -> Findings {
    const OTHERWISE: &str = "--engine native needs no file";
    let library = match library::place(Reader::Own) {
        Ok(library) => library,
        Err(error) => return vec![("library", Bad(format!("{error}; {OTHERWISE}")))],
    };
    let begun = Instant::now();
    let injection = match enter_with_frida(options, &library) {
        Ok(()) => Good(format!("Frida loads the library in {:.1} s", begun.elapsed().as_secs_f64())),
        Err(error) => Bad(format!("{error:#}")),
    };
    vec![("library", Good(library.display().to_string())), ("injection", injection)]
}

/// Starts this command itself, and stops it at its first instruction. It never begins.
fn start() -> Result<Gated> {
    let own = own_path().ok_or_else(|| anyhow!("this command does not know where it is"))?;
    let (executable, _) = Executable::find(own.as_os_str(), Choice::only(Engine::Native))?;
    Gated::stopped(&executable, own.as_os_str(), &[OsString::from("idle")])
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

/// Maps the library into a program that is stopped.
fn enter_natively(pid: i32) -> Result<()> {
    let mut thread = Borrowed::of_stopped(pid, pid)?;
    Library::enter(&mut thread, pid, Instant::now() + PATIENCE)?;
    thread.give_back()
}

/// Has Frida load the library into a program that waits for its beginning: this command itself, or where that is linked
/// statically the Python that Frida is driven with.
fn enter_with_frida(options: &Options, library: &Path) -> Result<()> {
    let own = own_path().ok_or_else(|| anyhow!("this command does not know where it is"))?;
    let python = || python::present(options).map(|python| python.command);
    let find = |path: &Path| Executable::find(path.as_os_str(), Choice::only(Engine::Frida));
    let (executable, _) = find(&own).or_else(|error| python().map_or(Err(error), |python| find(&python)))?;
    let (deadline, _signals) = (Instant::now() + PATIENCE, Signals::watch()?);
    let gated = Gated::start(&executable, executable.path.as_os_str(), &[OsString::from("idle")], library, deadline)?;
    Host::start(options, gated.pid(), library, deadline)?;
    Ok(())
}
