//! Swift concurrency: the life of every task.

use std::collections::{BTreeMap, BTreeSet};

use tests::{Folder, Traced};

use crate::runtimes::{
    did, program,
    runtime_event::{RuntimeEvent, calls, runtime_events},
    stripped, trace,
};

/// Functions of the runtime that suspend a task jump to what comes next. If such jumps were taken for calls, depths would
/// be in the thousands.
const DEEPEST: u32 = 100;

#[test]
fn the_life_of_every_task_is_told() {
    let Some(program) = program("tasks-O") else { return };
    all_is_told(&trace(program, 20, &["--no-detail"]));
}

#[test]
fn it_is_the_same_without_optimization() {
    let Some(program) = program("tasks-Onone") else { return };
    all_is_told(&trace(program, 4, &[]));
}

#[test]
fn it_needs_no_private_symbols() {
    let folder = Folder::new("stripped");
    let Some(program) = stripped("tasks-O", &folder) else { return };
    all_is_told(&trace(program, 10, &["--no-detail"]));
}

/// What a task ends with is private to the runtime, which rules leave out.
#[test]
fn it_is_the_same_with_rules() {
    for name in ["tasks-O", "tasks-Onone"] {
        let Some(program) = program(name) else { return };
        all_is_told(&trace(program, 4, &["--no-detail", "--only", name]));
    }
}

#[track_caller]
fn all_is_told(traced: &Traced) {
    let (did, told) = (did(traced), runtime_events(traced, "swift_*"));
    let calls = calls(&told);
    let called = |name: &str| calls.get(name).copied().unwrap_or(0);
    tasks_live(&told, &did);
    tasks_run_as_often_as_they_are_enqueued(&told);
    runs_end(traced, &told);
    continuations_are_resumed(&told, did["continuation"] + did["sleep"]);
    assert_eq!(called("swift_continuation_throwingResumeWithError"), did["continuation-failed"]);
    assert_eq!(called("swift_task_cancel"), did["cancel"]);
    assert_eq!(called("swift_asyncLet_begin"), did["async-let"]);
    assert_eq!(called("swift_taskGroup_initialize") + called("swift_taskGroup_initializeWithFlags"), did["group"]);
    assert_eq!(called("swift_taskGroup_attachChild"), did["group-child"]);
    let deepest = traced.trace.threads.values().flatten().map(|event| event.depth).max();
    assert!(deepest < Some(DEEPEST), "{deepest:?} deep");
    // What the agent asks the runtime is nobody's call.
    let limits = &traced.trace.manifest.limits;
    assert!(!limits.iter().any(|limit| limit.reason == "interrupted"), "{limits:?}");
}

fn of<'a>(told: &'a [RuntimeEvent], function: &str) -> impl Iterator<Item = &'a RuntimeEvent> {
    told.iter().filter(move |event| event.is_call() && event.function == function)
}

/// Each is created once, by another, and completes once; the program ends in the first. It may end as well before the
/// task that has ended its last sleep completes: that one wakes the sleeper first.
#[track_caller]
fn tasks_live(told: &[RuntimeEvent], did: &BTreeMap<String, u64>) {
    let created: Vec<_> = of(told, "swift_task_create").collect();
    // To sleep, a task creates another.
    let expected = 1 + did["task"] + did["async-let"] + did["group-child"] + did["sleep"];
    assert_eq!(created.len() as u64, expected);
    let ids: BTreeSet<_> = created.iter().map(|event| event.key("task")).collect();
    assert_eq!(ids.len(), created.len(), "no id is used twice");
    let first = created.iter().find(|event| !event.keys.contains_key("parent")).expect("one is there").key("task");
    let parents: Vec<_> = created.iter().filter_map(|event| event.keys.get("parent")).collect();
    assert_eq!(parents.len(), created.len() - 1, "all but the first have a parent");
    assert!(parents.iter().all(|parent| ids.contains(parent)));
    let completed: Vec<_> = of(told, "swift_task_future_complete").collect();
    let mut open = ids;
    for event in &completed {
        assert!(open.remove(&event.key("task")), "{event:?}");
    }
    let last_sleep = created.iter().rev().find(|event| event.keys.get("parent").is_some_and(|parent| *parent != first));
    open.remove(&last_sleep.expect("it sleeps").key("task"));
    assert_eq!(open, [first].into(), "what the program ends in");
    let failed = completed.iter().filter(|event| event.keys.contains_key("error")).count();
    assert_eq!(failed as u64, did["failed"]);
}

#[track_caller]
fn tasks_run_as_often_as_they_are_enqueued(told: &[RuntimeEvent]) {
    let mut open: BTreeMap<u64, i64> = BTreeMap::new();
    for event in told.iter().filter(|event| event.is_call()) {
        let Some(task) = event.keys.get("task") else { continue };
        let open = open.entry(*task).or_default();
        if event.function.starts_with("swift_task_enqueue") {
            *open += 1;
        } else if event.function == "swift_job_run" {
            *open -= 1;
        }
    }
    // What the program starts with is run without having been given to anybody.
    let uneven: Vec<_> = open.values().filter(|count| **count != 0).collect();
    assert_eq!(uneven, [&-1], "{open:?}");
}

/// What starts on a thread ends on it, the last first, and the thread is busy with the task meanwhile.
#[track_caller]
fn runs_end(traced: &Traced, told: &[RuntimeEvent]) {
    let mut running: BTreeMap<u64, Vec<&RuntimeEvent>> = BTreeMap::new();
    let mut ended = 0;
    for event in told.iter().filter(|event| event.function == "swift_job_run") {
        if let Some(task) = event.keys.get("task") {
            assert_eq!(event.substream, *task, "{event:?}");
        }
        let running = running.entry(event.stream).or_default();
        if event.is_call() {
            running.push(event);
        } else {
            let start = running.pop().expect("it has started");
            let key = |event: &RuntimeEvent| (event.start, event.key("job"), event.keys.get("task").copied());
            assert_eq!(key(event), key(start));
            ended += 1;
        }
    }
    assert!(ended > 50, "{ended} runs have ended");
    // When the program ended, a thread was in one run, or in one that an actor has started in another.
    let open: Vec<_> = running.values().map(Vec::len).collect();
    assert!(open.iter().all(|open| *open <= 2) && open.len() <= traced.trace.threads.len(), "{running:?}");
}

/// Each resumption is that of a suspension before it. There are others: who yields is resumed by nobody.
#[track_caller]
fn continuations_are_resumed(told: &[RuntimeEvent], expected: u64) {
    let mut suspended: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let mut resumed = 0;
    for event in told.iter().filter(|event| event.is_call() && event.keys.contains_key("continuation")) {
        let key = (event.key("task"), event.key("continuation"));
        if event.function == "swift_continuation_init" {
            *suspended.entry(key).or_default() += 1;
        } else if event.function.ends_with("esume") || event.function.ends_with("esumeWithError") {
            let waiting = suspended.get_mut(&key).unwrap_or_else(|| panic!("{event:?} was suspended"));
            *waiting = waiting.checked_sub(1).expect("once for each time");
            resumed += 1;
        }
    }
    assert_eq!(resumed, expected);
}
