//! Attaching to programs that run, and leaving them.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::{ChildStdout, Command},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tests::{
    Collector, Folder, Process, Target, Trace, Transport, agent_command,
    counts::{self, Count},
    depths::{self, Stacks},
    process::Stdout,
    trace,
    traced::LOSSLESS,
};

use crate::tracing::{BOTH, LONG, answer, eventually, kill, programs::installed};

/// What gets into a program.
pub(crate) const ENGINES: [&str; 2] = ["frida", "native"];

/// A program that works until it is told to stop.
pub(crate) struct Steady {
    pub(crate) process: Process,
    rest: JoinHandle<String>,
    folder: Folder,
}

impl Steady {
    fn start() -> Self {
        Self::of("steady")
    }

    /// Another program that does so.
    pub(crate) fn of(name: &str) -> Self {
        let folder = Folder::new(name);
        let mut command = Command::new(Target::named(name).program());
        command.env("SPOOR_COUNTS", folder.join("counts"));
        let mut process = Process::start(command, Stdout::Hold);
        let mut stdout = BufReader::new(process.take_stdout().expect("it is held"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("it says something");
        assert_eq!(line, "working\n");
        Self { process, rest: thread::spawn(|| read_rest(stdout)), folder }
    }

    /// Has it end, and reads what it counted. It has gone on unharmed if it says so.
    #[track_caller]
    pub(crate) fn finish(mut self) -> std::collections::BTreeMap<String, Count> {
        let stdin = self.process.take_stdin();
        self.finish_by(stdin)
    }

    /// The same, where its input was taken before.
    #[track_caller]
    fn finish_by<T>(mut self, stdin: T) -> std::collections::BTreeMap<String, Count> {
        assert!(self.process.is_running(), "it is alive");
        drop(stdin);
        let exit = self.process.exit(LONG);
        assert_eq!((exit.code, exit.signal, exit.stderr.as_str()), (Some(4), None, ""));
        assert_eq!(self.rest.join().expect("it is read"), "all went well\n");
        counts::parse(&fs::read_to_string(self.folder.join("counts")).expect("it has counted"))
    }
}

fn read_rest(mut stdout: BufReader<ChildStdout>) -> String {
    let mut rest = String::new();
    let _ = stdout.read_to_string(&mut rest);
    rest
}

/// The events that are in the files below a folder.
pub(crate) fn on_disk(below: &Path) -> u64 {
    let of_session = |session: &PathBuf| {
        let threads = trace::folders(session).len() as u32;
        (0..threads).map(|thread| trace::indexed(session, thread)).sum::<u64>()
    };
    trace::folders(below).iter().map(of_session).sum()
}

/// What a process has that an agent could leave behind.
#[derive(Debug)]
struct Left {
    address_bytes: u64,
    resident_bytes: u64,
    /// Mappings of code that is in no file and is only executed.
    code: usize,
    threads: usize,
    descriptors: usize,
}

impl Left {
    fn of(pid: u32) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).expect("it runs");
        let count = |folder: &str| fs::read_dir(format!("/proc/{pid}/{folder}")).expect("it runs").count();
        let pages: Vec<u64> = read("statm").split_whitespace().map(|pages| pages.parse().expect("a number")).collect();
        let code = |line: &&str| matches!(line.split_whitespace().collect::<Vec<_>>()[..], [_, "r-xp", _, _, _]);
        Self {
            address_bytes: pages[0] * 4096,
            resident_bytes: pages[1] * 4096,
            code: read("maps").lines().filter(code).count(),
            threads: count("task"),
            descriptors: count("fd"),
        }
    }

    /// Fails the test unless the last of these is as the first. The first time leaves something behind, which the others
    /// use again; the allocator gives memory of its own to threads of Frida's.
    #[track_caller]
    fn stays(all: &[Self]) {
        let [first, .., last] = all else { panic!("two at least") };
        let counts = |left: &Self| (left.code, left.threads, left.descriptors);
        assert_eq!(counts(last), counts(first), "{all:?}");
        assert!(last.address_bytes < first.address_bytes + (256 << 20), "{all:?}");
        assert!(last.resident_bytes < first.resident_bytes + (2 << 20), "{all:?}");
    }
}

/// Attaches to a process, and waits until that is done: functions are recorded before all are hooked, and who ends meanwhile,
/// or asks to stop, has that undone.
#[track_caller]
fn attached(options: &[&str], collector: &Collector, transport: Transport, pid: u32) -> Process {
    agent_command::prepare();
    let options = [options, &["--verbose"]].concat();
    let command = agent_command::attach_to(collector.address(transport), transport, &options, pid);
    let mut agent = Process::start(command, Stdout::Collect);
    eventually("all is hooked", || {
        assert!(agent.is_running(), "the agent gave up: {}", agent.said());
        agent.said().contains("agent: hooked ")
    });
    agent
}

/// Attaches to a process until enough has been seen, leaves it, and tells what was traced.
#[track_caller]
fn watch(pid: u32, transport: Transport, engine: &str) -> (Folder, Trace) {
    let (folder, collector) = Collector::in_folder("attached", &[]);
    let options = [LOSSLESS, &["--engine", engine]].concat();
    let mut agent = attached(&options, &collector, transport, pid);
    eventually("enough is traced", || on_disk(folder.path()) > 20_000);
    agent.signal("INT");
    let exit = agent.exit(LONG);
    assert_eq!((exit.code, exit.signal), (Some(0), None), "it leaves in peace: {}", exit.stderr);
    collector.stop().success();
    let trace = Trace::only(folder.path());
    let end = trace.manifest.end.as_ref().map(|end| end.how.as_str());
    assert_eq!(end, Some("detached"));
    assert!(trace.manifest.gaps.is_empty(), "{:?}", trace.manifest.gaps);
    assert!(!has_frida(pid) || exit.stderr.contains(STAYS), "{}", exit.stderr);
    (folder, trace)
}

/// What the agent says where Frida itself has not come to an end, as happens once in a while.
const STAYS: &str = "Frida has not left";

/// That it has happened.
struct FridaStays;

/// The same for a program that is attached to again, which it cannot be while Frida is in it.
#[track_caller]
fn watch_once_more(pid: u32, transport: Transport, engine: &str) -> (Folder, Trace) {
    let watched = watch(pid, transport, engine);
    if has_frida(pid) {
        panic::resume_unwind(Box::new(FridaStays));
    }
    watched
}

/// Tests something, with another program where Frida stays in one.
fn unless_frida_stays(test: impl Fn()) {
    for _ in 0..3 {
        match panic::catch_unwind(AssertUnwindSafe(&test)) {
            Ok(()) => return,
            Err(why) if why.is::<FridaStays>() => {}
            Err(why) => panic::resume_unwind(why),
        }
    }
    panic!("Frida has stayed in three programs");
}

/// The same with each engine.
fn with_each_engine(test: impl Fn(&str)) {
    ENGINES.into_iter().for_each(|engine| unless_frida_stays(|| test(engine)));
}

/// Fails the test unless the trace is one of the steady program's.
#[track_caller]
fn is_steady(trace: &Trace) {
    depths::consistent(trace, Stacks::One);
    is_counted(trace);
}

/// Fails the test unless the functions of the steady program were seen.
#[track_caller]
fn is_counted(trace: &Trace) {
    for name in ["tick", "dives", "jumps", "compares", "round_of"] {
        let count = counts::of_functions(trace, name);
        assert!(count.calls > 0, "{name} was called");
        let ended = count.returns + count.unwound;
        // What was open when the agent came or went has only one of the two; `dives` was up to 51 times on each stack.
        assert!(count.calls.abs_diff(ended) <= 51 * 4, "{name}: {count:?}");
    }
    for events in trace.threads.values() {
        assert!(events.is_sorted_by_key(|event| event.time_ns));
    }
}

#[test]
fn an_attached_program_goes_on_unharmed_when_it_is_left() {
    for (transport, engine) in BOTH.into_iter().zip(ENGINES) {
        let steady = Steady::start();
        let (_folder, trace) = watch(steady.process.pid(), transport, engine);
        is_steady(&trace);
        let counted = steady.finish();
        assert!(counted["round_of"].returns >= 4 * 200);
    }
}

/// Its runtime moves stacks and goroutines about meanwhile, and interrupts its threads.
#[test]
fn a_program_of_go_goes_on_unharmed_each_time() {
    if installed("go", "golang-go").is_none() {
        return;
    }
    let steady = Steady::of("goroutines_steady");
    for transport in BOTH.into_iter().cycle().take(5) {
        let (_folder, trace) = watch(steady.process.pid(), transport, "native");
        for name in ["main.leaf", "main.dive", "main.tree", "main.work"] {
            assert!(counts::of_functions(&trace, name).calls > 0, "{name} was called");
        }
    }
    steady.finish();
}

/// Frida leaves before the program changes who it is; hooks stay until the agent leaves, too.
#[test]
fn a_program_that_must_be_alone_is_traced_on_and_left_in_peace() {
    let mut steady = Steady::start();
    let pid = steady.process.pid();
    let (folder, collector) = Collector::in_folder("alone", &[]);
    let mut agent = attached(LOSSLESS, &collector, Transport::Tcp, pid);
    eventually("enough is traced", || on_disk(folder.path()) > 20_000);
    let mut stdin = steady.process.take_stdin().expect("it is held");
    let has_frida = || fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs").contains("frida-agent");
    assert!(has_frida());
    stdin.write_all(b"another\n").expect("it reads");
    // Once in a while Frida itself does not come to an end. Then that is said, and there is nothing more to try.
    let is_stuck = || agent.said().contains(STAYS);
    eventually("Frida is gone", || !has_frida() || is_stuck());
    if has_frida() {
        return;
    }
    let before = on_disk(folder.path());
    eventually("it is traced on", || on_disk(folder.path()) > before + 20_000);
    agent.signal("INT");
    let exit = agent.exit(LONG);
    assert_eq!((exit.code, exit.signal), (Some(0), None), "it leaves in peace: {}", exit.stderr);
    collector.stop().success();
    let trace = Trace::only(folder.path());
    is_counted(&trace);
    // To take the hooks out, Frida comes in again through the main thread, which is hooked.
    depths::consistent(&trace, Stacks::Many);
    let (_folder, trace) = watch(pid, Transport::Tcp, "frida");
    is_steady(&trace);
    steady.finish_by(stdin);
}

/// Frida comes in through the main thread, and saves only its general registers. `SPOOR_CYCLES` says how often it does.
#[test]
fn all_registers_and_system_calls_of_a_program_are_its_own_while_it_is_attached_to() {
    let cycles = env::var("SPOOR_CYCLES").map_or(3, |cycles| cycles.parse().expect("a number"));
    with_each_engine(|engine| {
        let steady = Steady::of("registers");
        let pid = steady.process.pid();
        let mut left = Vec::new();
        for _ in 0..cycles {
            watch_once_more(pid, Transport::Tcp, engine);
            left.push(Left::of(pid));
        }
        println!("{engine}: {:?}\n{:?}", left.first(), left.last());
        Left::stays(&left);
        steady.finish();
    });
}

/// When the hooks are taken out, a thread may just be on its way from one stack to another; and of several stacks in a mapping
/// nobody tells where each is.
#[test]
fn coroutines_that_were_there_before_go_on_when_they_are_left() {
    for name in ["steady_fibers", "side_by_side", "side_by_side_open"] {
        unless_frida_stays(|| {
            let steady = Steady::of(name);
            // Frida cannot follow where it was not first.
            for engine in ["frida", "native", "native"] {
                watch_once_more(steady.process.pid(), Transport::Tcp, engine);
            }
            steady.finish();
        });
    }
}

/// Frida is lent descriptors, which the program may not use.
#[test]
fn a_program_that_may_open_few_files_is_attached_to() {
    unless_frida_stays(|| {
        let steady = Steady::start();
        let pid = steady.process.pid();
        let open_files = || {
            let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
            limits.lines().find(|line| line.starts_with("Max open files")).map(String::from)
        };
        let id = Pid::from_raw(pid as i32);
        let few = Rlimit { maximum: getrlimit(Resource::Nofile).maximum, current: Some(20) };
        prlimit(id, Resource::Nofile, few).expect("it is allowed less");
        let before = open_files();
        for engine in ENGINES {
            let (_folder, trace) = watch_once_more(pid, Transport::Tcp, engine);
            is_steady(&trace);
            assert_eq!(open_files(), before);
        }
        steady.finish();
    });
}

/// Hooks whose agent is gone are passed through, and another agent does not take them for the program's own code.
#[test]
fn a_program_whose_agent_was_killed_goes_on_and_is_not_attached_to_again() {
    agent_command::prepare();
    for (program, options) in [
        ("steady", &["--budget", "none", "--engine", "frida"][..]),
        ("steady", &["--budget", "none", "--engine", "native"]),
        ("steady_fibers", &["--complete", "--stall", "never", "--engine", "frida"]),
        ("steady_fibers", &["--complete", "--stall", "never", "--engine", "native"]),
    ] {
        // Rings that are full at once.
        let options = &[options, &["--ring-bytes", "64KiB"]].concat();
        // The second unwinds coroutines, which nobody runs on when the agent is killed.
        let steady = Steady::of(program);
        let (folder, collector) = Collector::in_folder("killed-agent", &[]);
        let attach = || agent_command::attach_to(collector.tcp(), Transport::Tcp, options, steady.process.pid());
        let mut agent = Process::start(attach(), Stdout::Collect);
        eventually("enough is traced", || on_disk(folder.path()) > 20_000);
        agent.signal("KILL");
        assert_eq!(agent.exit(LONG).signal, Some(9));
        let refused = answer("Frida has left", || {
            let exit = Process::start(attach(), Stdout::Collect).exit(LONG);
            (!exit.stderr.contains("Frida is in it already")).then_some(exit)
        });
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("was killed while it was in it, and may have left hooks there"),
            "{}",
            refused.stderr
        );
        collector.stop();
        steady.finish();
    }
}

/// Nor is it harmed by one that is killed while Frida comes in: its main thread waits meanwhile, and goes on whoever is left.
#[test]
fn an_agent_may_be_killed_at_any_moment_of_an_attach() {
    agent_command::prepare();
    let (_folder, collector) = Collector::in_folder("killed-early", &[]);
    for moment_ms in [0, 10, 30, 60, 100, 160, 400] {
        let steady = Steady::of("registers");
        let pid = steady.process.pid();
        let command = agent_command::attach_to(collector.tcp(), Transport::Tcp, &["--no-detail"], pid);
        let mut agent = Process::start(command, Stdout::Collect);
        eventually("Frida comes in", || is_kept(pid) || has_frida(pid));
        thread::sleep(Duration::from_millis(moment_ms));
        let helper = helper_of(&agent);
        agent.signal("KILL");
        assert_eq!(agent.exit(LONG).signal, Some(9));
        // Now and then Frida does not leave a program; its own threads stay then, and do no harm. A program that ends just when it leaves
        // may die in it.
        eventually("Frida leaves", || fs::read(format!("/proc/{helper}/cmdline")).unwrap_or_default().is_empty());
        eventually("the main thread is let go", || !is_kept(pid));
        steady.finish();
    }
    collector.stop();
}

/// The process that has Frida come in and leave for an agent.
#[track_caller]
fn helper_of(agent: &Process) -> u32 {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", agent.pid())).expect("it runs");
    children.split_whitespace().next().and_then(|child| child.parse().ok()).expect("it has a helper")
}

/// Nor by one that is killed while it has borrowed a thread. A system call that was interrupted for that may say so, where the
/// agent was killed before it could have it made again. The next agent traces it, unless there are hooks already.
#[test]
fn an_agent_may_be_killed_at_any_moment_of_a_native_attach() {
    agent_command::prepare();
    let (_folder, collector) = Collector::in_folder("killed-early", &[]);
    let mut was_attached_to = false;
    for moment_ms in (0..30).map(|moment| moment * 4) {
        // A handler that is interrupted, too.
        let steady = Steady::of(if moment_ms % 8 == 0 { "steady" } else { "realtime" });
        let options = ["--no-detail", "--engine", "native", "--verbose"];
        let pid = steady.process.pid();
        let attach = || {
            let command = agent_command::attach_to(collector.tcp(), Transport::Tcp, &options, pid);
            Process::start(command, Stdout::Collect)
        };
        let mut agent = attach();
        thread::sleep(Duration::from_millis(moment_ms));
        agent.signal("KILL");
        assert_eq!(agent.exit(LONG).signal, Some(9));
        let mut next = attach();
        eventually("it is done or refused", || !next.is_running() || next.said().contains("agent: hooked "));
        next.signal("INT");
        let exit = next.exit(LONG);
        let is_refused = exit.stderr.contains("may have left hooks there");
        assert_eq!(exit.code, Some(i32::from(is_refused)), "{moment_ms} ms: {}", exit.stderr);
        was_attached_to |= !is_refused;
        steady.finish();
    }
    assert!(was_attached_to, "nobody was killed early enough");
    collector.stop();
}

/// Frida is let in again to take the hooks out.
#[test]
fn a_program_whose_helper_was_killed_is_left_in_peace() {
    let steady = Steady::of("registers");
    let pid = steady.process.pid();
    let folder = Folder::new("killed-helper");
    let collector = Collector::events_to_disk(folder.path());
    let mut agent = attached(LOSSLESS, &collector, Transport::Tcp, pid);
    eventually("enough is traced", || on_disk(folder.path()) > 20_000);
    kill("KILL", helper_of(&agent));
    eventually("that is told", || {
        assert!(agent.is_running(), "the agent gave up: {}", agent.said());
        agent.said().contains("Frida's helper was ended")
    });
    agent.signal("INT");
    let exit = agent.exit(LONG);
    assert_eq!((exit.code, exit.signal), (Some(0), None), "it leaves in peace: {}", exit.stderr);
    collector.stop();
    watch(pid, Transport::Tcp, "frida");
    steady.finish();
}

#[test]
fn a_program_may_end_at_any_moment_of_an_attach() {
    agent_command::prepare();
    let (folder, collector) = Collector::in_folder("ends-early", &[]);
    let moments_ms = [0, 20, 50, 90, 130, 180];
    for (engine, moment_ms) in ENGINES.into_iter().flat_map(|engine| moments_ms.map(|moment| (engine, moment))) {
        let steady = Steady::start();
        let pid = steady.process.pid();
        let options = ["--no-detail", "--engine", engine];
        let command = agent_command::attach_to(collector.tcp(), Transport::Tcp, &options, pid);
        let agent = Process::start(command, Stdout::Collect);
        if engine == "frida" {
            eventually("Frida comes in", || is_kept(pid) || has_frida(pid));
        }
        thread::sleep(Duration::from_millis(moment_ms));
        steady.finish();
        let exit = agent.exit(Duration::from_secs(8));
        let about = format!("{engine}, {moment_ms} ms: {:?} {}", exit.code, exit.stderr);
        match exit.code {
            // It was quicker.
            Some(0) => {}
            // So was the program.
            Some(1) if exit.stderr.starts_with(&format!("agent: cannot attach to process {pid}: ")) => {
                assert!(exit.stderr.lines().count() == 1 && engine == "native", "{about}");
            }
            Some(1) => assert_eq!(exit.stderr, "agent: the program ended while it was being prepared", "{about}"),
            _ => panic!("{about}"),
        }
    }
    collector.stop();
    for trace in Trace::all(folder.path()) {
        let end = trace.manifest.end.expect("it has ended").how;
        assert!(end.as_str() != "stopped", "nobody has said how {} ended", trace.folder.display());
    }
}

/// Whether Frida is in a process.
pub(crate) fn has_frida(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("frida-agent"))
}

/// Whether somebody keeps the main thread of a process.
pub(crate) fn is_kept(pid: u32) -> bool {
    keeper_of(pid).is_some()
}

/// The process that keeps the main thread of another one.
pub(crate) fn keeper_of(pid: u32) -> Option<u32> {
    let args = format!("park\0{pid}\0");
    let is_keeper =
        |entry: &fs::DirEntry| fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.ends_with(args.as_bytes()));
    let keeper = fs::read_dir("/proc").expect("there are processes").flatten().find(is_keeper)?;
    keeper.file_name().to_str()?.parse().ok()
}

#[test]
fn a_program_can_be_attached_to_again_and_again() {
    with_each_engine(|engine| {
        let steady = Steady::start();
        let pid = steady.process.pid();
        let before = Left::of(pid);
        let mut left = Vec::new();
        let mut sessions = Vec::new();
        for _ in 0..4 {
            sessions.push(watch_once_more(pid, Transport::Tcp, engine));
            left.push(Left::of(pid));
        }
        for (_, trace) in &sessions {
            is_steady(trace);
        }
        Left::stays(&left);
        if engine == "native" {
            assert_eq!((left[0].threads, left[0].descriptors), (before.threads, before.descriptors));
            let refused = agent_command::command(&["attach", "--engine", "frida", &pid.to_string()]).output();
            let text = String::from_utf8_lossy(&refused.expect("it runs").stderr).into_owned();
            assert!(text.contains("can only be so again (try --engine native)"), "{text}");
        }
        steady.finish();
    });
}

#[test]
fn an_agent_ends_with_the_program_that_it_is_attached_to() {
    let steady = Steady::start();
    let (folder, collector) = Collector::in_folder("ends", &[]);
    let agent = attached(LOSSLESS, &collector, Transport::Tcp, steady.process.pid());
    eventually("something is traced", || on_disk(folder.path()) > 20_000);
    let counted = steady.finish();
    let exit = agent.exit(LONG);
    assert_eq!((exit.code, exit.signal), (Some(0), None), "{}", exit.stderr);
    collector.stop().success();
    let trace = Trace::only(folder.path());
    is_steady(&trace);
    assert_eq!(trace.manifest.end.as_ref().map(|end| end.how.as_str()), Some("exited"));
    // The last 200 rounds of each thread were made while it was watched.
    let recorded = counts::of_functions(&trace, "round_of");
    assert!(recorded.calls >= 800 && recorded.calls <= counted["round_of"].calls, "{recorded:?} of {counted:?}");
}

/// A thread that is stopped may just be given a signal, also one without a name, and is so again when it goes on.
#[test]
fn a_program_that_is_given_signals_all_the_time_is_attached_to_and_left() {
    for program in ["alarmed", "realtime"] {
        with_each_engine(|engine| {
            let steady = Steady::of(program);
            for _ in 0..3 {
                watch_once_more(steady.process.pid(), Transport::Tcp, engine);
            }
            steady.finish();
        });
    }
}

/// A thread that waits for a child which it has made with `vfork` cannot be stopped, and nobody stands still for it.
#[test]
fn nobody_stands_still_for_a_thread_that_waits_for_its_child() {
    let steady = Steady::of("slow_children");
    for _ in 0..2 {
        watch(steady.process.pid(), Transport::Tcp, "native");
    }
    steady.finish();
}

/// A debugger that comes meanwhile keeps the agent from leaving. Hooks are not left behind with rings that others are given.
#[test]
fn a_program_that_somebody_else_holds_is_left_when_that_is_over() {
    for gives_up in [false, true] {
        let steady = Steady::start();
        let pid = steady.process.pid();
        let (folder, collector) = Collector::in_folder("held", &[]);
        let options = [LOSSLESS, &["--engine", "native"]].concat();
        let mut agent = attached(&options, &collector, Transport::Tcp, pid);
        eventually("enough is traced", || on_disk(folder.path()) > 20_000);
        let mut command = Command::new(Target::named("holds").program());
        command.arg(pid.to_string());
        let mut holder = Process::start(command, Stdout::Hold);
        let mut line = String::new();
        let mut stdout = BufReader::new(holder.take_stdout().expect("it is held"));
        stdout.read_line(&mut line).expect("it says something");
        assert_eq!(line, "holding\n");
        agent.signal("INT");
        let why = format!("process {} is tracing it", holder.pid());
        eventually("that is told", || agent.said().contains("cannot leave process") && agent.said().contains(&why));
        let before = on_disk(folder.path());
        eventually("it is traced on", || on_disk(folder.path()) > before + 20_000);
        if gives_up {
            agent.signal("INT");
            let exit = agent.exit(LONG);
            assert!(exit.code == Some(1) && exit.stderr.contains("the hooks stay in the program"), "{}", exit.stderr);
            assert_eq!(holder.exit(LONG).code, Some(0));
        } else {
            assert_eq!(holder.exit(LONG).code, Some(0));
            let exit = agent.exit(LONG);
            assert_eq!((exit.code, exit.signal), (Some(0), None), "it leaves in peace: {}", exit.stderr);
            collector.stop().success();
            is_steady(&Trace::only(folder.path()));
        }
        steady.finish();
    }
}

/// Frida has the main thread wait until its own library is loaded, for which the loader must be free.
#[test]
fn a_program_that_is_loading_a_library_is_attached_to_when_it_has_done_so() {
    let mut steady = Steady::of("loads");
    let pid = steady.process.pid();
    let (folder, collector) = Collector::in_folder("loads", &[]);
    let options = [LOSSLESS, &["--engine", "frida"]].concat();
    let attach = || {
        agent_command::prepare();
        let command = agent_command::attach_to(collector.tcp(), Transport::Tcp, &options, pid);
        let agent = Process::start(command, Stdout::Collect);
        eventually("its main thread is to be kept", || is_kept(pid));
        agent
    };
    let mut interrupted = attach();
    interrupted.signal("INT");
    let exit = interrupted.exit(Duration::from_secs(8));
    let line = format!("agent: stopped by SIGINT: process {pid} goes on untraced");
    assert_eq!((exit.signal, exit.stderr), (Some(2), line));
    eventually("nobody is left", || !is_kept(pid));
    let mut agent = attach();
    let mut stdin = steady.process.take_stdin().expect("it is held");
    stdin.write_all(b"l").expect("it reads");
    eventually("enough is traced", || {
        assert!(agent.is_running(), "the agent gave up: {}", agent.said());
        on_disk(folder.path()) > 20_000
    });
    agent.signal("INT");
    let exit = agent.exit(LONG);
    assert_eq!((exit.code, exit.signal), (Some(0), None), "it leaves in peace: {}", exit.stderr);
    collector.stop();
    steady.finish_by(stdin);
}

/// The library knows threads by `gs`.
#[test]
fn a_program_that_uses_gs_itself_is_refused_and_left_in_peace() {
    agent_command::prepare();
    let (_folder, collector) = Collector::in_folder("uses-gs", &[]);
    for engine in ENGINES {
        let steady = Steady::of("uses_gs");
        let options = ["--engine", engine];
        let command = agent_command::attach_to(collector.tcp(), Transport::Tcp, &options, steady.process.pid());
        let exit = Process::start(command, Stdout::Collect).exit(LONG);
        assert_eq!(exit.code, Some(1), "{engine}: {}", exit.stderr);
        assert!(exit.stderr.lines().count() == 1 && exit.stderr.contains("uses the register gs"), "{}", exit.stderr);
        steady.finish();
    }
}

#[test]
fn a_process_that_is_not_there_is_one_clear_line() {
    agent_command::prepare();
    let (_folder, collector) = Collector::in_folder("nobody", &[]);
    // The largest there can be on Linux, and just so never in use.
    let command = agent_command::attach_to(collector.udp(), Transport::Udp, &[], 4_194_304);
    let exit = Process::start(command, Stdout::Collect).exit(Duration::from_secs(30));
    assert_eq!(exit.code, Some(1));
    assert_eq!(exit.stderr.lines().count(), 1, "{}", exit.stderr);
    assert!(exit.stderr.contains("4194304"), "{}", exit.stderr);
}

#[test]
fn a_process_without_its_main_thread_is_refused_for_that() {
    let script = "import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
ctypes.CDLL(None).pthread_exit(None)";
    let mut command = Command::new("python3");
    command.args(["-c", script]);
    let mut program = Process::start(command, Stdout::Collect);
    let pid = program.pid();
    eventually("its main thread has ended", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains("State:\tZ") && !status.contains("Threads:\t1\n")
    });
    let refused = agent_command::command(&["attach", &pid.to_string()]).output().expect("it runs");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("its main thread has ended"), "{text}");
    program.signal("KILL");
    program.exit(LONG);
}

/// Of a flight recorder nothing comes before it is asked for.
#[test]
fn a_signal_to_the_command_has_what_is_kept_sent() {
    let steady = Steady::start();
    let (folder, collector) = Collector::in_folder("signalled", &[]);
    let options = ["--keep", "200ms", "--start-on", "signal:USR1", "--complete", "--engine", "native"];
    let mut agent = attached(&options, &collector, Transport::Tcp, steady.process.pid());
    eventually("its modules are told", || !trace::folders(folder.path()).is_empty());
    thread::sleep(Duration::from_millis(700));
    assert_eq!(on_disk(folder.path()), 0);
    agent.signal("USR1");
    eventually("what was kept is sent", || on_disk(folder.path()) > 0);
    agent.signal("INT");
    let exit = agent.exit(LONG);
    assert_eq!((exit.code, exit.signal), (Some(0), None), "{}", exit.stderr);
    collector.stop().success();
    let trace = Trace::only(folder.path());
    let left_out = trace.manifest.limits.iter().find(|limit| limit.reason == "left-out");
    assert!(counts::of_functions(&trace, "tick").calls > 0 && left_out.is_some(), "{}", exit.stderr);
    steady.finish();
}
