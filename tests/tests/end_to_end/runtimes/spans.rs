//! The spans of real Dispatch and real Swift, held against what the programs say that they did.

use std::collections::{BTreeMap, BTreeSet};

use tests::{
    Traced,
    spans::{self, SpanLine, by_id, count_by},
};

use crate::runtimes::{did, program, runtime_event::runtime_events, trace};

#[test]
fn every_execution_of_a_block_is_a_span() {
    let Some(program) = program("dispatch-O0") else { return };
    blocks_are_spans(&trace(program, 20, &["--no-detail"]), 20);
}

#[test]
fn blocks_are_spans_where_calls_are_jumps() {
    let Some(program) = program("dispatch-O2") else { return };
    blocks_are_spans(&trace(program, 20, &[]), 20);
}

#[track_caller]
fn blocks_are_spans(traced: &Traced, rounds: u64) {
    let did = did(traced);
    let all = spans::of(&traced.trace.folder, &[]);
    let all_by_id = by_id(&all);
    let blocks: Vec<&SpanLine> = all.iter().filter(|span| span.word("kind") == "block").collect();
    assert_eq!(blocks.len() as u64, did["execute"]);
    assert_eq!(count_by(blocks.iter().copied(), "status"), [("matched".to_owned(), blocks.len())].into());
    let sum = |name: &str| did.iter().filter(|(did, _)| did.contains(name)).map(|(_, times)| times).sum::<u64>();
    let flagged = |flag: &str| blocks.iter().filter(|block| block.has(flag)).count() as u64;
    assert_eq!(flagged("orphan"), 0);
    assert_eq!(flagged("barrier"), sum("barrier"));
    assert_eq!(flagged("after"), sum("after"));
    assert_eq!(flagged("notify"), sum("notify"));
    // One call of `dispatch_apply` runs eight times.
    assert_eq!(flagged("sync"), sum("_sync") + 8 * sum("apply"));
    for block in &blocks {
        let frame = all_by_id[block.word("twin")];
        assert_eq!((frame.word("kind"), frame.word("twin")), ("frame", block.word("id")));
        assert_eq!(frame.word("function"), block.word("function"));
        assert_eq!(block.number("start_ns"), block.number("created_ns") + block.number("latency_ns"), "{}", block.0);
        assert!(!block.word("queue_label").is_empty(), "{}", block.0);
    }
    // In each round, a block waits for another and gives away a third.
    let nested = blocks.iter().filter(|block| {
        let parent = all_by_id.get(block.word("parent"));
        parent.is_some_and(|parent| parent.word("kind") == "block")
    });
    assert_eq!(nested.count() as u64, 2 * rounds);
    let groups: Vec<&SpanLine> = all.iter().filter(|span| span.word("kind") == "group").collect();
    assert!(groups.len() as u64 >= rounds && groups.iter().all(|group| group.word("status") == "matched"));
    // A block that is told when a group is empty is not run before.
    for notified in blocks.iter().filter(|block| block.has("notify")) {
        let (group, start) = (notified.number("group"), notified.number("start_ns"));
        let of_group = groups.iter().filter(|one| one.number("key") == group);
        assert!(
            of_group.clone().count() > 0 && of_group.clone().any(|one| one.number("end_ns") <= start),
            "{}",
            notified.0
        );
    }
}

#[test]
fn what_runs_later_again_or_not_at_all_is_told_apart() {
    let Some(program) = program("sources-O0") else { return };
    sources_are_spans(&trace(program, 10, &["--no-detail"]));
}

#[test]
fn sources_are_spans_where_calls_are_jumps() {
    let Some(program) = program("sources-O2") else { return };
    sources_are_spans(&trace(program, 10, &[]));
}

#[track_caller]
fn sources_are_spans(traced: &Traced) {
    let did = did(traced);
    let all = spans::of(&traced.trace.folder, &[]);
    let all_by_id = by_id(&all);
    let blocks: Vec<&SpanLine> = all.iter().filter(|span| span.word("kind") == "block").collect();
    let canceled = usize::try_from(did["canceled"]).expect("few");
    let statuses = [("canceled", canceled), ("matched", blocks.len() - canceled)];
    assert_eq!(count_by(blocks.iter().copied(), "status"), statuses.map(|(name, n)| (name.to_owned(), n)).into());
    assert!(blocks.iter().all(|block| !block.has("orphan") && block.word("queue_label") == "spoor.sources"));
    // What gave it to Dispatch.
    let mut by_origin: BTreeMap<&str, Vec<&SpanLine>> = BTreeMap::new();
    for block in &blocks {
        by_origin.entry(all_by_id[block.word("origin")].word("function")).or_default().push(block);
    }
    let ran = |origin: &str| by_origin[origin].iter().filter(|block| block.word("status") == "matched").count() as u64;
    for (origin, times) in [
        ("dispatch_source_set_event_handler", did["timer"]),
        ("dispatch_source_set_cancel_handler", did["cancel-handler"]),
        ("dispatch_source_set_event_handler_f", did["data"]),
        ("dispatch_source_set_registration_handler_f", did["registration"]),
        ("dispatch_async", did["repeated"]),
    ] {
        assert_eq!(ran(origin), times, "{origin}");
    }
    let without_context = |block: &&&SpanLine| block.word("function") == "nothing_f";
    assert_eq!(blocks.iter().filter(without_context).count() as u64, did["without-context"]);
    // Each execution has a substream that no other has, also where the block is the same, or is nothing.
    let told = runtime_events(traced, "_dispatch_client_callout*");
    let substreams: Vec<u64> = told.iter().filter(|event| event.is_call()).map(|event| event.substream).collect();
    let different: BTreeSet<u64> = substreams.iter().copied().filter(|substream| *substream != 0).collect();
    assert_eq!((substreams.len(), different.len()), (blocks.len() - canceled, blocks.len() - canceled));
}

#[test]
fn every_task_is_a_span_over_all_its_threads() {
    let Some(program) = program("tasks-O") else { return };
    tasks_are_spans(&trace(program, 10, &["--no-detail"]));
}

#[test]
fn tasks_are_spans_without_optimization() {
    let Some(program) = program("tasks-Onone") else { return };
    tasks_are_spans(&trace(program, 3, &[]));
}

#[track_caller]
fn tasks_are_spans(traced: &Traced) {
    let did = did(traced);
    let all = spans::of(&traced.trace.folder, &["--runtime", "swift"]);
    let all_by_id = by_id(&all);
    let of_kind = |kind: &'static str| all.iter().filter(move |span| span.word("kind") == kind);
    let tasks: Vec<&SpanLine> = of_kind("task").collect();
    let created = 1 + did["task"] + did["async-let"] + did["group-child"] + did["sleep"];
    assert_eq!(tasks.len() as u64, created);
    let statuses = count_by(tasks.iter().copied(), "status");
    // The program ends in its first task, and maybe before the one that has woken its last sleeper completes.
    let parent_of =
        |task: &SpanLine| all_by_id.get(task.word("parent")).filter(|one| one.word("kind") == "task").copied();
    let unfinished: Vec<_> = tasks.iter().filter(|task| task.word("status") == "unmatched").collect();
    let wakers = unfinished.iter().filter(|task| parent_of(task).and_then(parent_of).is_some()).count();
    assert!(wakers <= 1 && unfinished.len() == 1 + wakers, "{unfinished:?}");
    let canceled = usize::try_from(did["cancel"]).expect("few");
    let unmatched = unfinished.len();
    let expected = [("canceled", canceled), ("matched", tasks.len() - canceled - unmatched), ("unmatched", unmatched)];
    assert_eq!(statuses, expected.map(|(name, count)| (name.to_owned(), count)).into(), "{tasks:#?}");
    let endings = count_by(tasks.iter().copied(), "ending");
    assert_eq!(endings["failed"] as u64, did["failed"]);
    assert!(tasks.iter().all(|task| !task.has("orphan") && !task.has("uncertain")));
    let parents = tasks.iter().filter_map(|task| all_by_id.get(task.word("parent")));
    assert_eq!(parents.filter(|parent| parent.word("kind") == "task").count(), tasks.len() - 1);
    // All that a task does is under it: its turns, and when it was suspended.
    let mut suspended: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for suspension in of_kind("suspension") {
        // What the program ends in may be suspended.
        if unfinished.iter().any(|task| task.word("id") == suspension.word("parent"))
            && suspension.find("end_ns").is_none()
        {
            continue;
        }
        assert_ne!(suspension.word("status"), "unmatched", "{}", suspension.0);
        let (count, time) = suspended.entry(suspension.word("parent")).or_default();
        *count += 1;
        *time += suspension.number("duration_ns");
    }
    for task in tasks.iter().filter(|task| task.word("status") == "matched") {
        let (count, time) = suspended.get(task.word("id")).copied().unwrap_or_default();
        let (told, told_time) = (task.find("suspensions").unwrap_or(0), task.find("suspended_ns").unwrap_or(0));
        assert_eq!((told, told_time), (count, time), "{}", task.0);
        assert!(told_time <= task.number("duration_ns"), "{}", task.0);
    }
    // Some tasks yield, one as long as it is not canceled.
    let told = runtime_events(traced, "swift_continuation_init");
    let continuations = of_kind("suspension").filter(|span| span.word("function") == "swift_continuation");
    let by_status = count_by(continuations, "status");
    assert_eq!(by_status.values().sum::<usize>(), told.len(), "{by_status:?}");
    assert!(by_status["matched"] as u64 >= did["continuation"] + did["sleep"] + did["yield"], "{by_status:?}");
    let jobs: Vec<&SpanLine> = of_kind("job").collect();
    assert!(jobs.len() >= tasks.len());
    let of_tasks = jobs.iter().filter(|job| all_by_id.contains_key(job.word("parent")));
    assert!(of_tasks.count() >= tasks.len());
    tasks_have_names(&tasks, did["cancel"] + did["sleep"]);
}

/// Tasks are called after functions of the program, and not after what only leads to them. So many have no name: what was
/// canceled before it ran, and what the runtime itself runs to end a sleep.
#[track_caller]
fn tasks_have_names(tasks: &[&SpanLine], nameless: u64) {
    let names = count_by(tasks.iter().copied(), "function");
    let is_thunk = |task: &&&SpanLine| task.word("symbol").contains("TR") || task.word("function").contains("partial ");
    assert_eq!(tasks.iter().find(is_thunk), None, "{names:#?}");
    let without = tasks.iter().filter(|task| task.has("placeholder")).count() as u64;
    assert!(without <= nameless, "{names:#?}");
}

#[test]
fn waits_and_cancellations_are_what_the_program_says() {
    let Some(program) = program("waits-O") else { return };
    waits_are_spans(&trace(program, 3, &["--no-detail"]));
}

#[test]
fn waits_are_spans_without_optimization() {
    let Some(program) = program("waits-Onone") else { return };
    waits_are_spans(&trace(program, 2, &[]));
}

#[track_caller]
fn waits_are_spans(traced: &Traced) {
    let did = did(traced);
    let all = spans::of(&traced.trace.folder, &["--runtime", "swift"]);
    let all_by_id = by_id(&all);
    let of_kind = |kind: &'static str| all.iter().filter(move |span| span.word("kind") == kind);
    let tasks: Vec<&SpanLine> = of_kind("task").collect();
    // Children are canceled with their parents and groups. What was to wake a sleeper that was canceled never runs.
    let statuses = count_by(tasks.iter().copied(), "status");
    assert_eq!((statuses["canceled"] as u64, statuses["unmatched"] as u64), (did["canceled"], 1 + did["nap"]));
    let suspensions: Vec<&SpanLine> = of_kind("suspension").collect();
    let by_status = |function: &str| {
        count_by(suspensions.iter().copied().filter(|span| span.word("function") == function), "status")
    };
    let continuations = [("canceled", did["nap"]), ("matched", did["yield"] + did["sleep"])];
    let continuations = continuations.map(|(status, count)| (status.to_owned(), count as usize));
    assert_eq!(by_status("swift_continuation"), continuations.into(), "each is resumed or canceled, none is an orphan");
    assert!(by_status("swift_taskGroup_wait_next_throwing").values().sum::<usize>() > 0);
    // Each began in a turn of its task, on the thread of that.
    for suspension in &suspensions {
        // The program may end while its first task, in which it ends, is on its way to another executor.
        let is_end = suspension.word("reason") == "process_exit" && suspension.find("task") == Some(1);
        assert!(suspension.word("status") != "unmatched" || is_end, "{}", suspension.0);
        let (at, task, thread) =
            (suspension.number("start_ns"), suspension.word("parent"), suspension.number("thread"));
        let began = |job: &&SpanLine| {
            let (start, end) = (job.number("start_ns"), job.find("end_ns").unwrap_or(u64::MAX));
            job.word("parent") == task && job.number("thread") == thread && (start..=end).contains(&at)
        };
        assert!(of_kind("job").any(|job| began(&job)), "{}", suspension.0);
    }
    // Whoever waits for the actor does so for most of the 30 ms that another holds it.
    let waited = suspensions.iter().filter(|span| {
        span.word("function") == "swift_task_switch"
            && span.number("key") != 0
            && span.find("duration_ns") > Some(15_000_000)
    });
    // On a busy machine others wait for as long.
    assert!(waited.count() as u64 >= did["actor-wait"]);
    assert!(all_by_id.len() == all.len() && !all.iter().any(|span| span.word("reason") == "orphan"));
    tasks_have_names(&tasks, did["nap"] + did["sleep"]);
}

#[test]
fn a_runtime_that_is_linked_in_is_said_to_be() {
    let Some(program) = program("dispatch-static") else { return };
    let traced = trace(program, 2, &["--no-detail"]);
    assert!(traced.traced.stderr.contains("has Grand Central Dispatch linked into it"), "{}", traced.traced.stderr);
    let limits = &traced.trace.manifest.limits;
    let linked: Vec<_> = limits.iter().filter(|limit| limit.reason == "runtime-linked-in").collect();
    assert!(matches!(linked[..], [limit] if limit.detail == "Grand Central Dispatch"), "{linked:?}");
}
