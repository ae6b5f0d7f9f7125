//! A program as it is and traced, side by side.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use codec::atf::Manifest;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

use super::{Foreign, Served, files, load};
use crate::{Collector, Exit, Folder, Process, Transport, agent_command, collector, process::Stdout, trace};

/// How long each run of a program may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long others may hold what a program prints to, once it has ended.
const SILENCE: Duration = Duration::from_secs(10);

/// The most that a trace may take on disk.
const ROOM: u64 = 6 << 30;

/// What came of a program as it is and traced.
#[derive(Debug)]
pub struct Beside {
    /// How long it took by itself: of a server, the load alone.
    pub untraced: Duration,
    /// How long it took traced, with the time to hook everything; of a server, the load alone.
    pub traced: Duration,
    /// What the trace says.
    pub manifest: Manifest,
    /// What it did otherwise than by itself, if anything.
    pub harm: Option<String>,
}

/// One run.
struct Side {
    took: Duration,
    /// Its exit code, or 128 and the signal that ended it.
    ending: i32,
    stdout: String,
    stderr: String,
    /// What a server answered.
    answers: String,
    /// What lies in its folder at the end.
    left: BTreeMap<PathBuf, Vec<u8>>,
}

impl Foreign {
    /// Runs it as it is, and then traced with these options. The error says why nothing can be compared.
    pub fn beside(&self, options: &[&str]) -> Result<Beside, String> {
        let folder = Folder::new(self.name);
        let page = load::page();
        let program = self.path().ok_or_else(|| format!("not here: apt-get install {}", self.packages))?;
        let untraced = self.once(&folder, page, Command::new(&program)).map_err(|why| format!("untraced: {why}"))?;
        if untraced.ending != self.exits || untraced.answers.contains(load::FAILED) {
            let Side { ending, stderr, answers, .. } = untraced;
            return Err(format!("untraced, it ended with {ending}, not {}: {stderr} {answers}", self.exits));
        }
        let traces = folder.join("traces");
        let collector = Collector::events_to_disk(&traces);
        let mut command = agent_command::run_to(collector.udp(), Transport::Udp, options);
        command.arg(&program);
        let traced = self.once(&folder, page, command).map_err(|why| format!("traced: {why}"));
        let ended = collector.stop();
        let traced = traced?;
        if ended.code != Some(0) {
            return Err(format!("the collector failed: {}", ended.stderr));
        }
        let (mut first, mut unsound) = (Vec::new(), None);
        for session in trace::folders(&traces) {
            let bytes = fs::read(session.join("manifest.json")).map_err(|error| error.to_string())?;
            let manifest = Manifest::parse(&bytes).map_err(|error| error.to_string())?;
            let checked = collector::run_on("verify", &session, &[]);
            let is_sound = checked.code == Some(0);
            unsound = unsound.or_else(|| (!is_sound).then(|| format!("verify: {}{}", checked.text(), checked.stderr)));
            unsound = unsound.or_else(|| uncounted(&manifest));
            if manifest.birth.is_none() {
                first.push(manifest);
            }
        }
        // The others have come from it.
        let [manifest] = <[Manifest; 1]>::try_from(first)
            .map_err(|first| format!("{} sessions; the agent said: {}", first.len(), traced.stderr))?;
        let harm = self.harm(&untraced, &traced).or(unsound);
        Ok(Beside { untraced: untraced.took, traced: traced.took, manifest, harm })
    }

    /// Runs it once, in a folder that is always the same and always new.
    fn once(&self, folder: &Folder, page: SocketAddr, command: Command) -> Result<Side, String> {
        let work = folder.join("work");
        for place in [&work, &folder.join("home")] {
            let _ = fs::remove_dir_all(place);
            fs::create_dir_all(place).expect("a folder");
        }
        (self.prepare)(&work);
        // A port that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let place = work.display().to_string();
        let here = self.path().and_then(|path| Some(path.parent()?.display().to_string())).unwrap_or_default();
        let filled = |text: &str| {
            let text = text.replace("{port}", &free.port().to_string()).replace("{folder}", &place);
            text.replace("{page}", &page.to_string()).replace("{here}", &here)
        };
        for (name, text) in self.files {
            fs::write(work.join(name), filled(text)).expect("room on disk");
        }
        let mut command = if self.unprivileged { files::as_nobody(&command) } else { command };
        command.args(self.arguments.iter().map(|argument| filled(argument)));
        agent_command::private(&mut command);
        // Frida keeps something in the home of whoever traces.
        command.current_dir(&work).env("HOME", folder.join("home")).env("LC_ALL", "C.UTF-8");
        command.envs(self.variables.iter().map(|(name, value)| (name, filled(value))));

        let start = Instant::now();
        let mut process = Process::start(command, Stdout::Collect);
        let (mut pipe, bytes) = (process.take_stdin().expect("stdin is piped"), (self.stdin)());
        let (mut took, mut answers) = (None, String::new());
        if let Some(load) = self.load {
            let served = Served { address: free, folder: work.clone() };
            let listens = wait_for(&mut process, &traces_of(folder), || served.listens());
            if listens.is_ok() {
                let start = Instant::now();
                answers = (load.ask)(&served);
                took = Some(start.elapsed());
                process.signal(load.end);
            }
            listens?;
        }
        let writer = thread::spawn(move || pipe.write_all(bytes.as_bytes()));
        wait_for(&mut process, &traces_of(folder), || false)?;
        let took = took.unwrap_or_else(|| start.elapsed());
        let exit = finish(process, SILENCE)?;
        // A program need not read its input.
        let _ = writer.join();
        let (theirs, ours) = agent_command::apart(&exit);
        let stderr = if self.load.is_some() { ours.join("\n") } else { theirs.join("\n") };
        let left = if self.load.is_some() { BTreeMap::new() } else { Folder::contents(&work) };
        let stdout = String::from_utf8_lossy(&exit.stdout).into_owned();
        let ending = exit.code.unwrap_or_else(|| 128 + exit.signal.unwrap_or_default());
        Ok(Side { took, ending, stdout, stderr, answers, left })
    }

    /// What it did otherwise when it was traced.
    fn harm(&self, untraced: &Side, traced: &Side) -> Option<String> {
        let alike = self.alike.unwrap_or(|text| text.to_owned());
        let server = self.load.is_some();
        let differs = |what: &str, untraced: &str, traced: &str| {
            (untraced != traced).then(|| format!("{what}: {}", first_difference(untraced, traced)))
        };
        let ending = |side: &Side| format!("exit code {}", side.ending);
        differs("how it ended", &ending(untraced), &ending(traced))
            .or_else(|| differs("answers", &alike(&untraced.answers), &alike(&traced.answers)))
            .or_else(|| if server { None } else { differs("stdout", &alike(&untraced.stdout), &alike(&traced.stdout)) })
            .or_else(|| if server { None } else { differs("stderr", &alike(&untraced.stderr), &alike(&traced.stderr)) })
            .or_else(|| differing_files(untraced, traced).filter(|_| self.tidy))
    }
}

impl Beside {
    /// How many functions were hooked, how many were found, and of how many of the hooked only the entry.
    pub fn functions(&self) -> (u64, u64, u64) {
        // A module may have a second number: from when only its entries are recorded.
        let mut hooked = BTreeMap::<&str, (u32, u64)>::new();
        for module in &self.manifest.modules {
            let count = u64::from(module.function_count);
            hooked.entry(&module.path).and_modify(|known| known.1 = known.1.max(count)).or_insert((module.id, count));
        }
        let numbers = self.manifest.modules.iter().map(|module| (module.id, module.path.as_str()));
        let paths: BTreeMap<_, _> = numbers.collect();
        let (mut left, mut entries) = (0, BTreeMap::<&str, BTreeMap<u32, u64>>::new());
        for limit in &self.manifest.limits {
            let Some(path) = paths.get(&limit.module) else { continue };
            match limit.reason.as_str() {
                "missing-symbol" | "runtime-linked-in" => {}
                "entry-only" => *entries.entry(path).or_default().entry(limit.module).or_default() += limit.count,
                _ if hooked[path].0 == limit.module => left += limit.count,
                _ => {}
            }
        }
        let hooked: u64 = hooked.values().map(|(_, count)| count).sum();
        let entries = entries.values().filter_map(|numbers| numbers.values().max()).sum();
        (hooked, hooked + left, entries)
    }

    /// How many events there were, whether they are in the trace or missing.
    pub fn produced(&self) -> u64 {
        self.manifest.threads.iter().filter_map(|thread| thread.produced).sum()
    }

    /// How many are missing, by cause.
    pub fn missing(&self) -> BTreeMap<&str, u64> {
        let mut missing = BTreeMap::new();
        for gap in &self.manifest.gaps {
            *missing.entry(gap.cause.as_str()).or_default() += gap.count;
        }
        missing
    }

    /// What was passed through without an event, by reason.
    pub fn passed_through(&self) -> BTreeMap<&str, u64> {
        let whole = self.manifest.limits.iter().filter(|limit| limit.module == 0);
        whole.map(|limit| (limit.reason.as_str(), limit.count)).collect()
    }
}

/// What a manifest does not account for.
fn uncounted(manifest: &Manifest) -> Option<String> {
    manifest.threads.iter().find_map(|thread| {
        let gaps = manifest.gaps.iter().filter(|gap| gap.thread == thread.id);
        let missing: u64 = gaps.map(|gap| gap.count).sum();
        let (Some(produced), Some(written)) = (thread.produced, thread.written) else {
            return Some(format!("thread {}: nothing says how many events it had", thread.id));
        };
        let text = || format!("thread {}: {produced} produced, {written} written, {missing} missing", thread.id);
        (produced != written + missing).then(text)
    })
}

/// The first line that is not the same.
fn first_difference(untraced: &str, traced: &str) -> String {
    let end = "(the end)";
    let lines = |text: &str| text.lines().map(String::from).chain([end.into()]).collect::<Vec<_>>();
    let (left, right) = (lines(untraced), lines(traced));
    let pair = left.iter().zip(&right).find(|(left, right)| left != right);
    pair.map_or_else(|| "in the ends of lines".into(), |(left, right)| format!("{left:?} became {right:?}"))
}

/// The files that only one run left, or left otherwise.
fn differing_files(untraced: &Side, traced: &Side) -> Option<String> {
    let names: BTreeSet<_> = untraced.left.keys().chain(traced.left.keys()).collect();
    let differ = names.into_iter().filter(|name| untraced.left.get(*name) != traced.left.get(*name));
    let differ: Vec<_> = differ.map(|name| name.display().to_string()).collect();
    (!differ.is_empty()).then(|| format!("the files it left: {}", differ.join(", ")))
}

fn traces_of(folder: &Folder) -> PathBuf {
    folder.join("traces")
}

/// Waits until something holds or the process ends. The error says that it took too long or wrote too much; then it and
/// all that it started is killed.
fn wait_for(process: &mut Process, traces: &Path, mut holds: impl FnMut() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let mut looks = 0_u32;
    while process.is_running() && !holds() {
        looks += 1;
        let late = Instant::now() > deadline;
        let much = looks.is_multiple_of(100) && size(traces) > ROOM;
        if late || much {
            let why =
                if late { format!("it hangs: not over after {PATIENCE:?}") } else { "its trace is too big".into() };
            kill_tree(process.pid());
            return Err(format!("{why}; it said: {}", process.said()));
        }
        thread::park_timeout(Duration::from_millis(5));
    }
    Ok(())
}

/// Waits for the end of a process, and until nobody has its output any more. The error says which of them took too long.
pub(super) fn finish(mut process: Process, patience: Duration) -> Result<Exit, String> {
    let deadline = Instant::now() + patience;
    while process.is_running() || !process.is_silent() {
        if Instant::now() > deadline {
            let who = if process.is_running() { "it" } else { "what it started" };
            kill_tree(process.pid());
            return Err(format!("{who} does not end; it said: {}", process.said()));
        }
        thread::park_timeout(Duration::from_millis(5));
    }
    Ok(process.exit(Duration::ZERO))
}

fn size(folder: &Path) -> u64 {
    let files = Folder::tree(folder).into_iter().filter_map(|path| fs::metadata(folder.join(path)).ok());
    files.map(|file| file.len()).sum()
}

/// The processes that a process has started, and those that these have, and so on.
fn descendants(of: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let lines = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> =
        lines.flat_map(|line| line.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    children.iter().flat_map(|child| std::iter::once(*child).chain(descendants(*child))).collect()
}

/// Kills a process and all that it has started, each by its id.
fn kill_tree(pid: u32) {
    for pid in descendants(pid).into_iter().chain([pid]) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Kills all that this process has started and that still runs, and what that left to it. Only for a process that has
/// asked to be given the children of its children, and at a time when nothing it started is to go on.
pub fn sweep() {
    for pid in descendants(u32::try_from(getpid().as_raw_nonzero().get()).unwrap_or_default()) {
        kill_tree(pid);
    }
    while wait(WaitOptions::empty()).is_ok_and(|ended| ended.is_some()) {}
}
