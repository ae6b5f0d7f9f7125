//! Whether this machine can trace, and what to do where it cannot.

mod practice;

use std::{
    env, fs,
    io::{self, ErrorKind, Read},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    process::{Resource, getrlimit},
};

use crate::{
    args::DoctorArgs,
    engine::Engine,
    frida::{self, python},
    process,
    quantity::Size,
    settings::{Collector, frida_options},
};

/// How long to wait for an answer.
const ANSWER: Duration = Duration::from_secs(3);

/// What was found out about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It will do.
    Good(String),
    /// It will do, but something is worth knowing.
    Fair(String),
    /// Nothing can be traced like this.
    Bad(String),
}

use self::Finding::{Bad, Fair, Good};

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let options = frida_options(&args.frida, false);
    let mut healthy = true;
    let mut tell = |what: &str, finding: &Finding| {
        let (mark, text) = match finding {
            Good(text) => ("ok", text),
            Fair(text) => ("note", text),
            Bad(text) => ("FAILED", text),
        };
        healthy &= mark != "FAILED";
        println!("{mark:6}  {what:13}  {text}");
    };
    tell("system", &system());
    tell("clock", &clock());
    tell("memory", &memory());
    if let Err(error) = process::require_ground() {
        // Nothing can be practised without.
        tell("proc", &Bad(error.to_string()));
    } else {
        practice::natively().iter().for_each(|(what, finding)| tell(what, finding));
        if args.engine == Some(Engine::Native) {
            tell("Frida", &Fair("not asked for: the native engine does without".into()));
        } else {
            let python = frida(&options);
            tell("Frida", &python);
            if let Good(_) = python {
                practice::with_frida(&options).iter().for_each(|(what, finding)| tell(what, finding));
            }
        }
    }
    match &args.to {
        Some(name) => tell("collector", &collector(name)),
        None => tell("collector", &Fair("not asked for: --to HOST:PORT checks that it can be reached".into())),
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What `doctor` practises on: it waits until its input ends.
pub(crate) fn idle() -> Result<ExitCode> {
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(ExitCode::SUCCESS)
}

fn system() -> Finding {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let system = format!("{} {} on {}", text(name.sysname()), text(name.release()), text(name.machine()));
    if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        Good(system)
    } else {
        Bad(format!("{system}: only Linux on x86_64 can be traced"))
    }
}

/// Times are read from a counter of the processor, and turned into times of the system later.
fn clock() -> Finding {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    if has("constant_tsc") && has("nonstop_tsc") {
        return Good("the processor's time counter runs evenly".into());
    }
    Fair("the processor's time counter may change its pace or stop: times within a trace may be off".into())
}

fn memory() -> Finding {
    let wanted = 64 << 20;
    let limit = getrlimit(Resource::Fsize).current;
    if let Some(limit) = limit.filter(|limit| *limit < wanted) {
        let limit = Size(limit);
        return Bad(format!("files may have at most {limit}, and rings are files in memory (raise `ulimit -f`)"));
    }
    let made = memfd_create("spoor-doctor", MemfdFlags::CLOEXEC).and_then(|file| {
        ftruncate(&file, wanted)?;
        rustix::io::pwrite(&file, b"x", wanted - 1)
    });
    match made {
        Ok(_) => Good(format!("shared memory of {} can be made", Size(wanted))),
        Err(error) => {
            Bad(format!("no shared memory can be made: {error} (is there a memory limit on this container?)"))
        }
    }
}

/// Whether Frida is there.
fn frida(options: &frida::Options) -> Finding {
    if cfg!(feature = "frida-core") && options.python.is_none() {
        return Good(format!("{} is linked in", frida::VERSION));
    }
    let Some(found) = python::present(options) else {
        return Fair(
            "not installed, so that programs are entered by this command itself (`agent setup` installs it)".into(),
        );
    };
    let place = found.command.display();
    match python::version(&found.command, found.packages.as_deref()) {
        Ok(version) if version.starts_with("17.") => Good(format!("{version} with {place}")),
        Ok(version) => Bad(format!("{version} with {place}, but 17 is needed (`agent setup` installs it)")),
        Err(why) => Bad(format!("{place} cannot load it: {why}")),
    }
}

/// Whether the collector can be reached.
fn collector(name: &str) -> Finding {
    let collector = match Collector::resolve(name) {
        Ok(collector) => collector,
        Err(message) => return Bad(message),
    };
    let mut why = String::new();
    for address in &collector.addresses {
        match TcpStream::connect_timeout(address, ANSWER) {
            Ok(_) => return Good(format!("{address} answers over TCP; whether UDP gets through, only a trace shows")),
            Err(error) => why = reason(address, error.kind(), &error.to_string()),
        }
    }
    Bad(why)
}

fn reason(address: &SocketAddr, kind: ErrorKind, text: &str) -> String {
    let remedy = match kind {
        ErrorKind::ConnectionRefused => "is a collector running there? `collector --listen 0.0.0.0:7000` starts one",
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "does a firewall drop what is sent there?",
        _ => "is there a way to that network?",
    };
    format!("{address} cannot be reached: {text} ({remedy})")
}

/// This command itself, which is a program that can be traced.
fn own_path() -> Option<PathBuf> {
    env::current_exe().ok().filter(|path| path.is_file())
}
