//! Threads in the trace: their names, who created them, when they began and ended, and what pthread functions were told.

use std::collections::{BTreeMap, BTreeSet};

use codec::{EventKind, atf::ThreadEntry, quantity::count};
use tests::{Collector, Folder, Process, Run, Target, Trace, Traced, agent_command, collector::disk, process::Stdout};

use crate::tracing::{BOTH, LONG};

/// The threads that called a function.
fn calling(traced: &Traced, name: &str) -> BTreeSet<u32> {
    let calls = |events: &Vec<tests::trace::Recorded>| {
        events.iter().any(|event| event.kind == EventKind::Call && event.name.as_deref() == Some(name))
    };
    traced.trace.threads.iter().filter(|(_, events)| calls(events)).map(|(thread, _)| *thread).collect()
}

fn only(set: &BTreeSet<u32>) -> u32 {
    assert_eq!(set.len(), 1);
    *set.first().expect("one")
}

/// The threads of the manifest, all but the first of which have been created by another and have ended.
fn threads(traced: &Traced, count: usize) -> BTreeMap<u32, &ThreadEntry> {
    let threads: BTreeMap<_, _> = traced.trace.manifest.threads.iter().map(|thread| (thread.id, thread)).collect();
    assert_eq!(threads.len(), count, "Frida's own threads are not among them");
    let main = only(&calling(traced, "main"));
    for (id, thread) in &threads {
        let (start, end) = (thread.start_ns.expect("it started"), thread.end_ns.expect("it ended"));
        assert!(start <= end, "thread {id}");
        assert!(thread.os_id.is_some(), "thread {id}");
        match *id == main {
            true => assert_eq!(thread.creator, None),
            false => assert!(thread.creator.is_some_and(|creator| threads.contains_key(&creator)), "thread {id}"),
        }
    }
    let ids: BTreeSet<_> = threads.values().map(|thread| (thread.os_id, thread.start_ns)).collect();
    assert_eq!(ids.len(), count, "no two are the same");
    threads
}

#[test]
fn names_and_creators_are_known() {
    let traced = Run::target("pthreads").trace();
    // Ten of each of five kinds, the first one, a parent with a child, and one with a name.
    let threads = threads(&traced, 54);
    let main = only(&calling(&traced, "main"));
    assert_eq!(threads[&main].name.as_deref(), Some("pthreads"));
    let parent = only(&calling(&traced, "parent"));
    assert_eq!(threads[&parent].creator, Some(main));
    let named: BTreeMap<_, _> =
        calling(&traced, "named").into_iter().map(|id| (threads[&id].name.as_deref(), threads[&id].creator)).collect();
    let expected = [(Some("a name"), Some(main)), (Some("grandchild"), Some(parent))];
    assert_eq!(named, expected.into_iter().collect());
}

#[test]
fn names_of_rust_threads_are_known() {
    let traced = Run::target("rust_panics").trace();
    let threads = threads(&traced, 9);
    let names: BTreeSet<_> =
        calling(&traced, "in_thread").into_iter().filter_map(|id| threads[&id].name.clone()).collect();
    assert_eq!(names, (0..8).map(|number| format!("worker {number}")).collect());
}

/// What a process maps is told below a thread that lives.
#[test]
fn threads_that_start_when_the_main_thread_has_ended_are_recorded_whole() {
    for engine in ["frida", "native"] {
        let traced = Run::target("orphans").with(&["--no-detail", "--engine", engine]).trace();
        let work = |event: &&tests::trace::Recorded| event.name.as_deref() == Some("work");
        let of_each = traced.trace.threads.values().map(|events| events.iter().filter(work).count());
        let of_each: Vec<_> = of_each.filter(|events| *events > 0).collect();
        assert_eq!(of_each, [2000; 3], "{engine}: a call and a return of each");
    }
}

#[test]
fn every_short_thread_is_one_of_its_own() {
    let traced = Run::target("short_threads").with(&["--no-detail"]).trace();
    let threads = threads(&traced, 401);
    let main = only(&calling(&traced, "main"));
    assert!(threads.values().all(|thread| thread.id == main || thread.creator == Some(main)));
    for thread in calling(&traced, "brief") {
        let calls = traced.trace.threads[&thread].iter().filter(|event| event.name.as_deref() == Some("touch"));
        assert_eq!(calls.count(), 6, "three calls and three returns of thread {thread}");
    }
}

/// More threads than the collector takes: both sides count the same to the event.
#[test]
fn more_threads_than_the_collector_takes_are_counted_by_both_sides() {
    agent_command::prepare();
    for transport in BOTH {
        let folder = Folder::new("many-threads");
        let sink = format!("{},spans=no", disk(folder.path()));
        let arguments = ["--listen", "127.0.0.1:0", "--sink", &sink, "--max-streams", "300"];
        let collector = Collector::start(&arguments, Stdout::Collect);
        let options = ["--no-detail", "--budget", "none"];
        let mut command = agent_command::run_to(collector.address(transport), transport, &options);
        // 200 and 1,000 of them.
        command.arg(Target::named("short_threads").program()).arg("40").env("SPOOR_COUNTS", folder.join("counts"));
        let agent = Process::start(command, Stdout::Collect).exit(LONG);
        let said = agent.stderr.lines().last().unwrap_or_default();
        assert!(said.contains("events of 1201 threads") && !said.contains("not confirmed"), "{said}");
        let collector = collector.stop();
        let line = collector.stderr.lines().find(|line| line.contains("events produced")).unwrap_or_default();
        let trace = Trace::only(folder.path());
        let gaps: u64 = trace.manifest.gaps.iter().map(|gap| gap.count).sum();
        let limit = trace.manifest.limits.iter().find(|limit| limit.reason == "collector:streams");
        let refused = limit.expect("it says that there were too many").count;
        assert_eq!(trace.threads.values().filter(|events| !events.is_empty()).count(), 300, "{line}");
        let sent = trace.len() as u64 + refused;
        assert!(said.contains(&format!("agent: {sent} events of")), "{said}\n{line}");
        assert!(said.contains(&format!("{refused} lost by the collector (collector:streams {refused})")), "{said}");
        assert!(line.contains(&format!("(collector:streams {})", count(refused))) || gaps > 0, "{said}\n{line}");
        tests::collector::verified(&trace.folder);
    }
}

/// Start routines are recognised after hundreds that never ran, or ran unseen.
#[test]
fn threads_that_do_not_start_are_forgotten() {
    let traced = Run::target("starts").with(&["--no-detail", "--exclude", "unseen"]).trace();
    traced.sound().exact_counts();
    let events = traced.trace.threads.values().flatten();
    let started = events.filter(|event| event.kind == EventKind::Call && event.function.module().0 == 0);
    let started = started.filter(|event| event.name.as_deref() == Some("pthread_start_routine"));
    assert_eq!(started.count(), 40);
}

/// A thread without a ring is one, however much it calls.
#[test]
fn threads_that_find_no_ring_are_counted_once() {
    // So large that there are only few.
    let options = ["--no-detail", "--ring-bytes", "1GiB"];
    let traced = Run::target("starts").arguments(&["200"]).lossy(&options).trace();
    traced.same_behaviour().times_rise().ended_as_it_did();
    let limit = traced.trace.manifest.limits.iter().find(|limit| limit.reason == "no-ring");
    let without = limit.expect("it says that there were too many").count;
    assert_eq!(traced.trace.manifest.threads.len() as u64 + without, 1 + 300 + 200);
    let recorded = traced.recorded("start");
    // None has one where all others are slow to end.
    assert!(recorded.calls < 100 && recorded.calls == recorded.returns, "{recorded:?}");
    assert_eq!(traced.recorded("touch").calls, 100 * recorded.calls);
}

/// The number that an event has under a key.
fn key(attributes: &str, name: &str) -> Option<u64> {
    let (_, rest) = attributes.split_once(&format!("\"{name}\": U64("))?;
    rest.split_once(')')?.0.parse().ok()
}

#[test]
fn pthread_functions_tell_their_keys() {
    let traced = Run::target("pthreads").trace();
    let manifest = &traced.trace.manifest;
    let address = |name: &str| {
        let function = manifest.functions.iter().find(|entry| entry.name == name && entry.id >> 32 != 0);
        let function = function.unwrap_or_else(|| panic!("{name} is known"));
        let module = manifest.modules.iter().find(|module| u64::from(module.id) == function.id >> 32);
        module.expect("its module is known").base + function.offset
    };
    let of = |name: &str, kind: EventKind| -> Vec<(u32, &str)> {
        let all = traced.trace.threads.iter().flat_map(|(id, events)| events.iter().map(move |event| (*id, event)));
        all.filter(|(_, event)| event.function.module().0 == 0 && event.kind == kind)
            .filter(|(_, event)| event.name.as_deref() == Some(name))
            .filter_map(|(id, event)| Some((id, event.attributes.as_deref()?)))
            .collect()
    };
    let routines = |events: &[(u32, &str)]| {
        let mut routines: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, attributes) in events {
            *routines.entry(key(attributes, "start_routine").expect("the routine is told")).or_default() += 1;
        }
        routines
    };
    let expected: BTreeMap<_, _> =
        [("returns", 10), ("exits", 10), ("cancelled", 10), ("detached", 20), ("parent", 1), ("named", 2)]
            .into_iter()
            .map(|(name, count)| (address(name), count))
            .collect();
    let created = of("pthread_create", EventKind::Return);
    assert_eq!(routines(&created), expected, "created");
    let started = of("pthread_start_routine", EventKind::Call);
    assert_eq!(routines(&started), expected, "started");

    // Every thread that was created is the one that started, by its handle and its creator. Handles are used again.
    let handles = |events: &[(u32, &str)]| {
        let mut handles: Vec<_> = events.iter().map(|(_, keys)| key(keys, "pthread").expect("a handle")).collect();
        handles.sort_unstable();
        handles
    };
    assert_eq!(handles(&created), handles(&started));
    let asked = of("pthread_create", EventKind::Call);
    let detached: u64 = asked.iter().filter_map(|(_, keys)| key(keys, "detached")).sum();
    assert_eq!(detached, 10, "those that were created detached");

    assert_eq!(of("pthread_start_routine", EventKind::Return).len(), 10 + 20 + 1 + 2, "those that returned");
    assert_eq!(of("pthread_exit", EventKind::Call).len(), 10);
    assert_eq!(of("pthread_cancel", EventKind::Call).len(), 10);
    assert_eq!(of("pthread_detach", EventKind::Call).len(), 10);
    let joined = of("pthread_join", EventKind::Return);
    assert_eq!(joined.len(), 10 + 10 + 10 + 1 + 2);
    let values: u64 = joined.iter().filter_map(|(_, keys)| key(keys, "exit_value")).filter(|value| *value <= 20).sum();
    // What was returned, what was passed to `pthread_exit`, and what `parent` returned.
    assert_eq!(values, 55 + 110 + 1);
}
