//! Grand Central Dispatch: every submission is told, every execution, and which is whose.

use std::collections::{BTreeMap, BTreeSet};

use tests::{Folder, Traced};

use crate::runtimes::{
    did, program,
    runtime_event::{RuntimeEvent, calls, runtime_events},
    stripped, trace,
};

const CALLOUT: &str = "_dispatch_client_callout";
const CALLOUT_OF_APPLY: &str = "_dispatch_client_callout2";

/// How often `dispatch_apply` calls a block in the program.
const ITERATIONS: usize = 8;

#[test]
fn every_submission_is_told_and_every_execution_of_it() {
    let Some(program) = program("dispatch-O0") else { return };
    all_is_told(&trace(program, 40, &[]));
}

#[test]
fn it_is_the_same_where_calls_are_jumps() {
    let Some(program) = program("dispatch-O2") else { return };
    all_is_told(&trace(program, 40, &["--no-detail"]));
}

#[test]
fn it_needs_no_private_symbols() {
    let folder = Folder::new("stripped");
    let Some(program) = stripped("dispatch-O2", &folder) else { return };
    all_is_told(&trace(program, 20, &["--no-detail"]));
}

#[track_caller]
fn all_is_told(traced: &Traced) {
    let (did, told) = (did(traced), runtime_events(traced, "*dispatch_*"));
    let calls = calls(&told);
    let mut did_others = did.clone();
    let executed = did_others.remove("execute").expect("it says how much was executed");
    assert!(did_others.len() >= 18, "{did_others:?}");
    for (name, times) in &did_others {
        assert_eq!(calls.get(name.as_str()), Some(times), "{name}");
    }
    assert_eq!(calls[CALLOUT] + calls[CALLOUT_OF_APPLY], executed);
    executions_end(&told);
    executions_belong_to_submissions(&told);
    queues_have_labels(traced, &told);
}

fn is_execution(event: &RuntimeEvent) -> bool {
    event.function == CALLOUT || event.function == CALLOUT_OF_APPLY
}

/// What starts on a thread ends on it, the last first, and the thread is busy with it meanwhile: with nothing that was
/// ever run before.
#[track_caller]
fn executions_end(told: &[RuntimeEvent]) {
    let mut running: BTreeMap<u64, Vec<&RuntimeEvent>> = BTreeMap::new();
    let mut substreams = BTreeSet::new();
    for event in told.iter().filter(|event| is_execution(event)) {
        let running = running.entry(event.stream).or_default();
        if event.is_call() {
            assert!(event.substream != 0 && substreams.insert(event.substream), "{event:?}");
            running.push(event);
        } else {
            assert_eq!(event.phase, "return");
            let start = running.pop().expect("it has started");
            let of = |event: &RuntimeEvent| (event.start, event.substream, event.keys.clone());
            assert_eq!(of(event), of(start));
        }
    }
    assert!(running.values().all(Vec::is_empty), "{running:?}");
}

/// By block and function: as many executions as submissions, none before its submission.
#[track_caller]
fn executions_belong_to_submissions(told: &[RuntimeEvent]) {
    let mut submitted: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    let mut executed: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    for event in told.iter().filter(|event| event.is_call() && event.keys.contains_key("block")) {
        let key = (event.key("block"), event.key("invoke"));
        if is_execution(event) {
            executed.entry(key).or_default().push(event.start);
        } else {
            let times = if event.function.starts_with("dispatch_apply") { ITERATIONS } else { 1 };
            submitted.entry(key).or_default().extend(vec![event.start; times]);
        }
    }
    assert_eq!(submitted.keys().collect::<Vec<_>>(), executed.keys().collect::<Vec<_>>());
    for (key, submitted) in &mut submitted {
        let executed = executed.get_mut(key).expect("the same keys");
        submitted.sort_unstable();
        executed.sort_unstable();
        assert_eq!(submitted.len(), executed.len(), "{key:?}");
        assert!(submitted.iter().zip(executed).all(|(submitted, executed)| submitted < executed), "{key:?}");
    }
}

#[track_caller]
fn queues_have_labels(traced: &Traced, told: &[RuntimeEvent]) {
    let labels: BTreeMap<u64, &str> =
        traced.trace.manifest.queues.iter().map(|queue| (queue.id, queue.label.as_str())).collect();
    let mut used: Vec<_> = told.iter().filter_map(|event| labels.get(event.keys.get("queue")?).copied()).collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used, ["com.apple.root.default-qos", "spoor.concurrent", "spoor.serial"]);
    let unnamed = told.iter().find(|event| event.keys.get("queue").is_some_and(|queue| !labels.contains_key(queue)));
    assert_eq!(unnamed, None, "every queue has a label");
}
