//! A command that runs to its end, with a deadline.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a measured command may take.
const LIMIT: Duration = Duration::from_secs(180);

/// How often its memory is looked at.
const GLANCE: Duration = Duration::from_millis(5);

/// How a command ran.
#[derive(Debug)]
pub struct Ran {
    /// How long it took.
    pub seconds: f64,
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// What it and its children printed to stderr.
    pub stderr: String,
    /// The most memory that it had, as it was seen every few milliseconds.
    pub peak_bytes: u64,
    /// The processor time that it took itself, without its children, in nanoseconds, seen in the same way.
    pub cpu_ns: f64,
}

impl Ran {
    /// Runs a command without input, and looks at nothing that it prints to stdout. Where it takes too long, it and its
    /// children are killed.
    pub fn new(command: &mut Command) -> Self {
        let started = Instant::now();
        let mut child = start(command);
        let stderr = child.stderr.take().expect("a pipe");
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            _ = io::Read::read_to_end(&mut { stderr }, &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let (done, waited) = channel::<()>();
        let group = Pid::from_child(&child);
        let watchdog = thread::spawn(move || {
            let (mut peak, mut cpu_ns) = (0, 0.0);
            while waited.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
                peak = status_bytes(group, "VmHWM:").unwrap_or(peak);
                cpu_ns = cpu_time_ns(group).unwrap_or(cpu_ns);
                if started.elapsed() > LIMIT {
                    _ = kill_process_group(group, Signal::KILL);
                }
            }
            (peak, cpu_ns)
        });
        let status = child.wait().expect("a child");
        let seconds = started.elapsed().as_secs_f64();
        // What it leaves running would keep the pipe open.
        let stderr = reader.join().expect("a reader");
        drop(done);
        let (peak_bytes, cpu_ns) = watchdog.join().expect("a watchdog");
        Self { seconds, code: status.code(), stderr, peak_bytes, cpu_ns }
    }

    /// The same, and it must succeed.
    pub fn well(command: &mut Command) -> Self {
        let ran = Self::new(command);
        assert_eq!(ran.code, Some(0), "{command:?}: {}", ran.stderr);
        ran
    }

    /// What follows `word` in the lines on stderr that start with it.
    pub fn lines<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.stderr.lines().filter_map(move |line| line.strip_prefix(word))
    }

    /// The number that follows `word` on stderr.
    pub fn number(&self, word: &str) -> Option<f64> {
        self.lines(word).find_map(|rest| rest.split_whitespace().next()?.parse().ok())
    }
}

/// What the kernel says of a process under this name: `VmRSS:` is the memory it has, `VmHWM:` the most it has had.
pub fn status_bytes(process: Pid, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The processor time that a process has taken so far, all its threads together, in steps of a clock tick.
pub fn cpu_time_ns(process: Pid) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The command's name may have spaces in it. Behind it come the state and then the third to the fifteenth field.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11).map_while(|field| field.parse::<f64>().ok());
    let ticks = fields.next()? + fields.next()?;
    Some(ticks * 1e9 / rustix::param::clock_ticks_per_second() as f64)
}

fn start(command: &mut Command) -> Child {
    // A group of its own, so that no child is left behind.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}
