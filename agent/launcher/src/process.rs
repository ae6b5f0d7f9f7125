//! A process that is there already.

use std::{
    fmt, fs, io,
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

use agent::{
    plan::Image,
    shared::{Control, MAGIC},
};
use anyhow::{Context, Result, anyhow, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open},
};

use crate::{
    end_state::EndState,
    engine::{Choice, Engine},
    install::{Maps, TargetMemory},
    native::Library,
};

/// How long Frida may take to be gone from a process that it has left.
const FRIDA_LEAVING: Duration = Duration::from_secs(3);

/// A process that can be attached to, as far as can be told from outside.
#[derive(Debug)]
pub(crate) struct Process {
    pid: i32,
    descriptor: OwnedFd,
    /// Whether it belongs to another user.
    pub(crate) is_foreign: bool,
}

impl Process {
    /// Looks at a process before attaching to it, and says in one line why that would not work.
    pub(crate) fn find(pid: i32, engine: Choice) -> Result<(Self, Engine)> {
        Self::look_at(pid, engine).map_err(|error| match has_main_thread_ended(pid) {
            true if has_ended(pid) => {
                anyhow!("cannot attach to process {pid}: it has ended, and its parent has not taken notice yet")
            }
            true => {
                anyhow!("cannot attach to process {pid}: its main thread has ended, through which it is looked into")
            }
            false => error,
        })
    }

    fn look_at(pid: i32, engine: Choice) -> Result<(Self, Engine)> {
        let cannot = format!("cannot attach to process {pid}");
        if pid <= 0 {
            bail!("{cannot}: expected a number above 0");
        }
        if u32::try_from(pid) == Ok(std::process::id()) {
            bail!("{cannot}: it is this command itself");
        }
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
            bail!("{cannot}: there is no such process");
        };
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let number = |name: &str| field(name)?.split_whitespace().next()?.parse::<i32>().ok();
        if number("Tgid") != Some(pid) {
            let process = number("Tgid").unwrap_or_default();
            bail!("{cannot}: it is a thread of process {process} (attach to that)");
        }
        if matches!(state(pid), Some('Z' | 'X')) {
            // Where another thread runs another program, that takes its place.
            let what = if has_ended(pid) { "it has ended" } else { "its main thread has ended" };
            bail!("{cannot}: {what}");
        }
        if state(pid) == Some('T') {
            bail!("{cannot}: it is stopped (kill -CONT {pid} first)");
        }
        let descriptor = match open(pid) {
            Err(rustix::io::Errno::SRCH) => bail!("{cannot}: there is no such process"),
            opened => opened.context(cannot.clone())?,
        };
        let user = rustix::process::geteuid().as_raw();
        let is_foreign = number("Uid").and_then(|uid| u32::try_from(uid).ok()) != Some(user);

        let executable = match look_into(pid, |folder| fs::read_link(folder.join("exe"))) {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                bail!("{cannot}: permission denied ({})", ptrace_remedy())
            }
            Err(_) if has_ended(pid) => bail!("{cannot}: it has ended"),
            // Only the kernel's own threads have no program.
            Err(_) => bail!("{cannot}: it is a thread of the kernel"),
        };
        // One that leaves it is gone a moment later.
        let deadline = Instant::now() + FRIDA_LEAVING;
        while let Some(tracer) = tracer(pid) {
            if Instant::now() >= deadline || !is_leaving(tracer) {
                bail!("{cannot}: process {tracer} is tracing it (only one can: end that first)");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let image = Image::open(format!("/proc/{}/exe", living(pid)))
            .map_err(|error| anyhow!("{cannot}: {} is {error}", executable.display()))?;
        let suited = match Library::is_mapped_by_hand(pid) {
            true => engine.without_frida("it was traced without Frida before, and can only be so again"),
            false => engine.suited_to(&image),
        };
        let engine = suited.map_err(|why| anyhow!("{cannot}: {why} (try --engine native)"))?;
        // Its agent is in memory only, under this name, and is gone a moment after it leaves.
        let deadline = Instant::now() + FRIDA_LEAVING;
        while fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("frida-agent")) {
            if Instant::now() >= deadline {
                bail!("{cannot}: Frida is in it already (is another tool tracing it? end that first)");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if filters(pid) > filters(std::process::id() as i32) || number("Seccomp") == Some(1) {
            bail!(
                "{cannot}: it has confined itself with seccomp, which may kill it for what tracing needs (start it with `agent run`)"
            );
        }
        if has_leftover_hooks(pid) {
            bail!("{cannot}: an agent was killed while it was in it, and may have left hooks there (start it anew)");
        }
        Ok((Self { pid, descriptor, is_foreign }, engine))
    }

    /// A process that is traced already.
    pub(crate) fn traced(pid: i32) -> Result<Self> {
        Ok(Self { pid, descriptor: open(pid)?, is_foreign: false })
    }

    /// Waits for the process to end, for at most so long. Only its parent is sure to learn how it did.
    pub(crate) fn wait(&self, timeout: Duration) -> io::Result<Option<EndState>> {
        Ok(ended(&self.descriptor, timeout)?.then(|| exit_status(self.pid)))
    }
}

/// Whether an agent that was killed may have left its hooks in a process: its memory still says that events are wanted. What an
/// agent that is alive says is not asked here.
fn has_leftover_hooks(pid: i32) -> bool {
    const RECORDING: u64 = std::mem::offset_of!(Control, recording) as u64;
    let (Ok(maps), Ok(memory)) = (Maps::read(pid), TargetMemory::open(pid)) else { return false };
    let wants_events = |start: u64| {
        let (mut magic, mut recording) = ([0; 8], [0; 4]);
        let read = memory.read(start, &mut magic).and_then(|()| memory.read(start + RECORDING, &mut recording));
        read.is_ok() && u64::from_ne_bytes(magic) == MAGIC && u32::from_ne_bytes(recording) == 1
    };
    maps.starts_of("/memfd:spoor (deleted)").any(wants_events)
}

/// The threads of a process. One that has ended may be listed for as long as the process lives.
pub(crate) fn threads(pid: i32) -> Result<Vec<i32>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).context("the program is gone")?;
    Ok(tasks.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// A thread of a process that the system tells what it has of: the main one, unless that has ended.
pub(crate) fn living(pid: i32) -> i32 {
    let is_alive = |thread: &i32| !has_thread_ended(*thread);
    let others = || threads(pid).ok()?.into_iter().find(is_alive);
    if is_alive(&pid) { pid } else { others().unwrap_or(pid) }
}

/// Looks into what the system has of a process, in this folder. Of a thread that is about to end it tells nothing: another one may
/// go on.
pub(crate) fn look_into<T>(pid: i32, look: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    /// How often it is tried, and how long apart.
    const TRIES: u32 = 20;
    const APART: Duration = Duration::from_millis(1);
    for _ in 1..TRIES {
        let seen = look(Path::new(&format!("/proc/{}", living(pid))));
        if seen.is_ok() || has_ended(pid) {
            return seen;
        }
        std::thread::sleep(APART);
    }
    look(Path::new(&format!("/proc/{pid}")))
}

/// The process that says its id is this one, where it is, and that has mapped the file with this number.
pub(crate) fn outside(id: u32, inode: u64) -> Result<i32> {
    let has_mapped = |pid: i32| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.lines().any(|line| {
            line.contains("/memfd:spoor")
                && line.split_whitespace().nth(4).is_some_and(|number| number.parse() == Ok(inode))
        })
    };
    let id = id as i32;
    // In a namespace of its own a process is known by another id here.
    let is_it = |pid: &i32| innermost_id(&format!("/proc/{pid}")) == Some(id) && has_mapped(*pid);
    if is_it(&id) {
        return Ok(id);
    }
    let all = fs::read_dir("/proc").context("cannot read /proc")?;
    let mut ids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    ids.find(is_it).context("a process that the program has made cannot be found")
}

/// The thread of a process that says its id is this one, where it is.
pub(crate) fn thread_outside(pid: i32, id: u32) -> Result<i32> {
    let is_it = |tid: &i32| innermost_id(&format!("/proc/{pid}/task/{tid}")) == Some(id as i32);
    threads(pid)?.into_iter().find(is_it).context("a thread of the program cannot be found")
}

/// The id that a process or a thread has for itself.
fn innermost_id(folder: &str) -> Option<i32> {
    let status = fs::read_to_string(format!("{folder}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().last()?.parse().ok()
}

/// How many filters of system calls confine a process.
pub(crate) fn filters(pid: i32) -> u32 {
    status(pid, "Seccomp_filters:").and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// A descriptor that stands for a process.
pub(crate) fn open(pid: i32) -> rustix::io::Result<OwnedFd> {
    pidfd_open(Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?, PidfdFlags::empty())
}

/// Whether a process has ended; its parent may still have to take notice.
pub(crate) fn has_ended(pid: i32) -> bool {
    wait_for_end(pid, Duration::ZERO).unwrap_or(false)
}

/// Whether the main thread of a process has ended. A moment before, nothing can be done with it any more.
pub(crate) fn has_main_thread_ended(pid: i32) -> bool {
    /// How often is looked, a millisecond apart.
    const LOOKS: u32 = 10;
    (0..LOOKS).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        matches!(state(pid), Some('Z' | 'X'))
    })
}

/// Waits until a process has ended, for at most so long; its parent may then still have to take notice.
pub(crate) fn wait_for_end(pid: i32, timeout: Duration) -> io::Result<bool> {
    match open(pid) {
        Ok(descriptor) => ended(&descriptor, timeout),
        Err(rustix::io::Errno::SRCH) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The state of a process, by its letter.
pub(crate) fn state(pid: i32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

/// Whether a thread waits in the system for something that nothing interrupts, such as for its child to be another program.
pub(crate) fn is_unstoppable(tid: i32) -> bool {
    state(tid) == Some('D')
}

/// Waits until a thread does not wait in the system any more: most do so only for a moment. Whether it does not in time.
pub(crate) fn becomes_stoppable(tid: i32, deadline: Instant) -> bool {
    while is_unstoppable(tid) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}

/// Whether a thread is gone, or only waits to be forgotten.
pub(crate) fn has_thread_ended(tid: i32) -> bool {
    matches!(state(tid), None | Some('Z' | 'X'))
}

/// Whether a thread is the main thread of a program that this process has started.
pub(crate) fn is_own_child(tid: i32) -> bool {
    let is = |field: &str, number: i32| status(tid, field).and_then(|text| text.parse().ok()) == Some(number);
    is("Tgid:", tid) && is("PPid:", std::process::id() as i32)
}

/// The process that traces a thread, if any.
pub(crate) fn tracer(tid: i32) -> Option<i32> {
    status(tid, "TracerPid:")?.parse().ok().filter(|tracer| *tracer != 0)
}

/// Why a thread cannot be stopped.
pub(crate) fn why_unstoppable(tid: i32, error: impl fmt::Display) -> String {
    match tracer(tid) {
        Some(tracer) => format!(
            "cannot stop thread {tid} of the program: process {tracer} is tracing it (only one can: end that first)"
        ),
        None => format!("cannot stop thread {tid} of the program: {error}"),
    }
}

/// Whether who traces a process may be about to leave it: an agent, or Frida on behalf of one.
fn is_leaving(tracer: i32) -> bool {
    let is_agent = || fs::read_link(format!("/proc/{tracer}/exe")).ok() == std::env::current_exe().ok();
    is_agent() || fs::read_to_string(format!("/proc/{tracer}/maps")).is_ok_and(|maps| maps.contains("frida"))
}

/// The program that a process runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) pid: i32,
    /// What it has for memory, also when the process has other memory. Where that cannot be opened, nothing is known.
    memory: Option<TargetMemory>,
}

impl Running {
    pub(crate) fn of(pid: i32) -> Self {
        Self { pid, memory: TargetMemory::open(pid).ok() }
    }

    /// Whether the process has ended, or runs another program.
    pub(crate) fn is_over(&self) -> bool {
        has_ended(self.pid) || self.is_replaced()
    }

    /// Whether the process runs another program.
    pub(crate) fn is_replaced(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.is_replaced(self.pid))
    }
}

/// What the system says of a process under this name.
fn status(pid: i32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

fn ended(descriptor: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How a process ended, if its parent has not taken notice yet, so that the system still tells.
fn exit_status(pid: i32) -> EndState {
    let Some(fields) = stat(pid).filter(|fields| fields.first().is_some_and(|state| state == "Z")) else {
        return EndState::Unknown;
    };
    // The 52nd field, of which the first two are cut off.
    fields.get(49).and_then(|code| code.parse().ok()).map_or(EndState::Unknown, EndState::from_raw)
}

/// Where the heap of a process begins, or will begin; 0 where that is not known.
pub(crate) fn start_of_heap(pid: i32) -> u64 {
    // The 47th field, as above.
    stat(pid).and_then(|fields| fields.get(44)?.parse().ok()).unwrap_or(0)
}

/// What the system tells of a process, from its state on. Its name before that may contain anything.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_string).collect())
}

/// Yama's setting: 0 own processes, 1 own children, 2 administrators only, 3 nobody.
pub(crate) fn ptrace_scope() -> u32 {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// What can be done about a process that may not be attached to.
pub(crate) fn ptrace_remedy() -> &'static str {
    match ptrace_scope() {
        0 => "run this as root, or as the user whose process it is; in a container, allow SYS_PTRACE",
        1 => "only its own children may be traced: run this as root, or `sysctl kernel.yama.ptrace_scope=0`",
        2 => "only root may trace: run this as root, or `sysctl kernel.yama.ptrace_scope=0`",
        _ => "tracing is off until the machine is restarted with kernel.yama.ptrace_scope below 3, even for root",
    }
}

/// Fails where the system does not tell of processes, or gives this one too little to work with.
pub(crate) fn require_ground() -> Result<()> {
    /// Rings, of which a part may be used, and what is needed beside them.
    const ADDRESSES: u64 = 4 << 30;
    if !matches!(fs::exists("/proc/self/maps"), Ok(true)) {
        bail!("/proc is not there, and nothing can be traced without (`mount -t proc proc /proc`)");
    }
    match getrlimit(Resource::As).current {
        Some(most) if most < ADDRESSES => {
            let (most, needed) = (most >> 20, ADDRESSES >> 20);
            bail!("{most} MiB of addresses are too few: the agent needs {needed} (`ulimit -v unlimited` allows more)")
        }
        _ => Ok(()),
    }
}

/// Whether the system lets programs read and write what `fs` and `gs` are relative to.
pub(crate) fn may_use_bases() -> bool {
    const BASES: usize = 2;
    let (_, told) = rustix::param::linux_hwcap();
    told & BASES != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_attached_to_is_told() {
        let why = |pid| Process::find(pid, Choice::only(Engine::Frida)).expect_err("not to be attached to").to_string();
        let own = i32::try_from(std::process::id()).expect("an id");
        assert!(why(own).ends_with("it is this command itself"), "{}", why(own));
        assert!(why(0).ends_with("expected a number above 0"));
        assert!(why(i32::MAX).ends_with("there is no such process"));
    }

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut command = std::process::Command::new("sh");
        let mut child =
            command.args(["-c", "read x; exit 5"]).stdin(std::process::Stdio::piped()).spawn().expect("started");
        let pid = i32::try_from(child.id()).expect("an id");
        let (process, _) = Process::find(pid, Choice::only(Engine::Frida)).expect("found");
        assert_eq!(process.wait(Duration::from_millis(1)).expect("waited"), None);
        assert!(!process.is_foreign);
        drop(child.stdin.take());
        assert_eq!(process.wait(Duration::from_secs(10)).expect("waited"), Some(EndState::Exited(5)));
        assert_eq!(child.wait().expect("waited").code(), Some(5));
    }
}
