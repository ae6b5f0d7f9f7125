//! Processes that come from the program: each is a session of its own, and exact.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use tests::{Run, Trace, Traced, counts};

use crate::tracing::BOTH;

const ENGINES: [&str; 2] = ["frida", "native"];

/// The processes that the program tells of, with how often each has worked.
fn told(traced: &Traced) -> BTreeSet<(u32, u64)> {
    let text = fs::read_to_string(traced.folder.join("work").join("family")).expect("it tells");
    let line = |line: &str| line.split_once(' ').map(|(pid, times)| (pid.parse().ok(), times.parse().ok()));
    text.lines()
        .map(|text| line(text).expect("two numbers"))
        .map(|(pid, times)| (pid.unwrap(), times.unwrap()))
        .collect()
}

fn pid(trace: &Trace) -> u32 {
    trace.manifest.process.as_ref().expect("a process").pid
}

fn worked(trace: &Trace) -> (u32, u64) {
    let count = counts::of_functions(trace, "work");
    assert_eq!(count.calls, count.returns, "{}", trace.folder.display());
    (pid(trace), count.calls)
}

fn run(options: &[&str]) -> Run {
    Run::target("family").variable("SPOOR_FAMILY", "family").with(options)
}

#[test]
fn every_process_is_a_session_and_exact() {
    for (engine, transport) in ENGINES.into_iter().zip(BOTH) {
        let traced = run(&["--engine", engine]).over(transport).trace();
        traced.sound().ended("exited", Some(7));
        let told = told(&traced);
        let all: Vec<_> = traced.all().map(worked).collect();
        let worked: BTreeSet<_> = all.iter().copied().filter(|(_, times)| *times > 0).collect();
        assert_eq!(worked, told, "{engine}: {}", traced.traced.stderr);
        let codes = [(100, 0), (101, 1), (103, 3), (300, 5), (45, 4), (200, 6), (500, 6), (600, 6), (1000, 7)];
        for (trace, (pid, times)) in traced.all().zip(&all) {
            let expected = codes.iter().find(|(worked, _)| worked == times).map(|(_, code)| Some(*code));
            let end = trace.manifest.end.as_ref().expect("it has ended");
            assert!(expected.is_none_or(|code| end.code == code), "{engine}: {pid}, {times}: {end:?}");
        }
        // Of each one, and no more: others are shells, and those that become another program at once.
        assert_eq!(all.iter().filter(|(_, times)| *times > 0).count(), told.len(), "{engine}");
        // What a child calls on the memory of its parent, until it is another program, may be told to be missing.
        let stderr = &traced.traced.stderr;
        assert!(stderr.contains("nothing lost") || stderr.contains(" calls not recorded"), "{engine}: {stderr}");
        assert!(!stderr.contains("not traced"), "{engine}: {stderr}");

        // Everybody's parent is there, and was in a call of that thread when it made it.
        let by_session: BTreeMap<_, _> =
            traced.all().map(|trace| (trace.manifest.session.clone().expect("an id"), trace)).collect();
        let mut ways = BTreeMap::<_, usize>::new();
        for child in &traced.family {
            let birth = child.manifest.birth.as_ref().expect("a parent");
            let parent = by_session[&birth.parent];
            *ways.entry(birth.how.as_str()).or_default() += 1;
            assert_eq!(birth.how == "replaced", pid(parent) == pid(child), "{birth:?}");
            let thread = parent.manifest.threads.iter().find(|thread| thread.os_id == birth.tid.map(u64::from));
            let thread = thread.unwrap_or_else(|| panic!("{engine}: {birth:?} of {:?}", parent.manifest.threads));
            let at_ns = birth.at_ns - parent.manifest.clock_zero_ns.expect("a zero");
            let open = open_call(&parent.threads[&thread.id], at_ns).unwrap_or_default();
            let expected: &[&str] = match birth.how.as_str() {
                "forked" => &["fork", "_Fork"],
                "replaced" => &["execve"],
                _ => &["execve", "posix_spawn", "spawn", "vfork", "become", "clone", "execvpe", "main"],
            };
            assert!(expected.iter().any(|name| open.contains(name)), "{engine}: {birth:?} in {open}");
            assert_eq!(child.manifest.epoch_unix_ns, parent.manifest.epoch_unix_ns);
        }
        assert!(ways["forked"] >= 8 && ways["replaced"] >= 1 && ways["spawned"] >= 2, "{engine}: {ways:?}");
    }
}

/// The innermost call that is open at a time.
fn open_call(events: &[tests::trace::Recorded], at_ns: u64) -> Option<String> {
    let before = events.iter().rev().skip_while(|event| event.time_ns > at_ns);
    let mut closed = 0;
    for event in before {
        match event.kind {
            codec::EventKind::Call if closed == 0 => return Some(event.name.as_deref().unwrap_or("").into()),
            codec::EventKind::Call => closed -= 1,
            codec::EventKind::Return | codec::EventKind::Exception => closed += 1,
        }
    }
    None
}

#[test]
fn what_is_followed_can_be_chosen() {
    let none = run(&["--engine", "native", "--follow", "none"]).trace();
    none.sound();
    assert!(none.family.is_empty());
    let forks = run(&["--engine", "native", "--follow", "fork"]).trace();
    forks.same_behaviour().times_rise();
    assert!(forks.family.iter().all(|child| child.manifest.birth.as_ref().is_some_and(|birth| birth.how == "forked")));
    let told = told(&forks);
    for child in &forks.family {
        let (pid, times) = worked(child);
        assert!(times == 0 || told.contains(&(pid, times)), "{pid} {times} {told:?}");
    }
    assert!(forks.family.len() >= 8, "{}", forks.family.len());
}

#[test]
fn no_more_are_followed_than_may_be() {
    let few = run(&["--engine", "native", "--max-processes", "2"]).trace();
    few.same_behaviour();
    let stderr = &few.traced.stderr;
    assert!(stderr.contains("are not traced") || stderr.contains("is not traced"), "{stderr}");
    assert!(!stderr.contains("nothing lost"), "{stderr}");
    let limits = few.all().flat_map(|trace| &trace.manifest.limits);
    let why: Vec<_> = limits.filter(|limit| limit.reason == "process-not-followed").collect();
    assert!(why.iter().any(|limit| limit.detail.contains("--max-processes")), "{why:?}");
}

/// A thread that starts a program cannot be stopped until it runs, and that waits for the agent.
#[test]
fn nobody_waits_for_a_thread_that_waits_for_its_child() {
    for engine in ENGINES {
        let traced = Run::target("spawn_races").over(BOTH[1]).with(&["--no-detail", "--engine", engine]).trace();
        traced.sound().ended("exited", Some(0));
        assert_eq!(traced.family.len(), 25, "{engine}: {}", traced.traced.stderr);
    }
}
