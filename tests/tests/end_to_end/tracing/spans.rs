//! Spans of programs that were really traced, held against what the programs say that they did.

use std::{collections::BTreeMap, fs};

use tests::{
    Collector, Folder, Process, Run, Target, Traced, Transport, agent_command, collector,
    counts::Count,
    process::Stdout,
    spans::{self, SpanLine, by_id, count_by},
    trace,
    traced::LOSSLESS,
};

/// Every counted function: a frame for each call in the trace, matched for each return, and for whatever left it
/// otherwise not. Whether the calls in the trace are those that the program made is looked at elsewhere.
#[track_caller]
pub(crate) fn agree(traced: &Traced) {
    // What a child of `vfork` was in when it ended is left behind on its parent's stack.
    let has_vfork = traced.program.ends_with("vfork_exec");
    let frames = spans::of(&traced.trace.folder, &["--kind", "frame"]);
    by_id(&frames);
    let mut by_name: BTreeMap<&str, Vec<&SpanLine>> = BTreeMap::new();
    for frame in &frames {
        assert!(!frame.has("no_call"), "nothing is missing, and {} has no call", frame.0);
        assert!(!matches!(frame.word("reason"), "gap" | "evicted"), "nothing is missing: {}", frame.0);
        assert!(frame.word("reason") != "unwind" || has_vfork, "it can be known who left {}", frame.0);
        let name = frame.0["symbol"].as_str().unwrap_or(frame.word("function"));
        by_name.entry(name).or_default().push(frame);
    }
    // Those that are known only by their address are counted as events elsewhere.
    for (name, counted) in traced.counts.iter().filter(|(name, _)| !name.starts_with('+')) {
        let frames = by_name.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let matched = frames.iter().filter(|frame| frame.word("status") == "matched").count() as u64;
        let unwound = ["exception", "unwind", "longjmp", "thread_exit", "canceled"];
        let left = frames.iter().filter(|frame| unwound.contains(&frame.word("reason"))).count() as u64;
        let made = Count { calls: frames.len() as u64, returns: matched, unwound: left };
        // A handler that interrupts the recording is not in the trace; looking it up takes long.
        if made != *counted {
            assert_eq!(made, traced.recorded(name), "{name}: {:?}", count_by(frames.iter().copied(), "reason"));
        }
    }
}

#[test]
fn the_life_of_every_thread_is_a_span() {
    let traced = Run::target("pthreads").trace();
    traced.sound();
    agree(&traced);
    let all = spans::of(&traced.trace.folder, &[]);
    let all_by_id = by_id(&all);
    let threads: Vec<&SpanLine> = all.iter().filter(|span| span.word("kind") == "thread").collect();
    let expected = [("cancelled", 10), ("detached", 20), ("exits", 10), ("named", 2), ("parent", 1), ("returns", 10)];
    assert_eq!(count_by(threads.iter().copied(), "function"), expected.map(|(name, n)| (name.into(), n)).into());
    for thread in &threads {
        let (name, flag) = (thread.word("function"), |flag| thread.has(flag));
        let (status, ending) = match name {
            "cancelled" => ("canceled", "canceled"),
            "exits" => ("matched", "exited"),
            _ => ("matched", "returned"),
        };
        assert_eq!((thread.word("status"), thread.word("ending")), (status, ending), "{}", thread.0);
        assert_eq!((flag("detached"), flag("joined")), (name == "detached", name != "detached"), "{}", thread.0);
        assert!(!flag("uncertain") && !flag("orphan") && flag("cross_thread"), "{}", thread.0);
        assert!(thread.number("latency_ns") > 0 && thread.number("duration_ns") > 0, "{}", thread.0);
        assert_eq!(thread.number("start_ns"), thread.number("created_ns") + thread.number("latency_ns"));
        // The frame of the start routine and the thread know each other.
        let frame = all_by_id[thread.word("twin")];
        assert_eq!((frame.word("kind"), frame.word("function")), ("frame", name));
        assert_eq!(frame.word("twin"), thread.word("id"));
        let origin = all_by_id[thread.word("origin")];
        assert_eq!(origin.number("thread"), thread.number("creator"));
    }
    let results = |name: &str| {
        let mut results: Vec<u64> = threads
            .iter()
            .filter(|thread| thread.word("function") == name)
            .map(|thread| thread.number("result"))
            .collect();
        results.sort_unstable();
        results
    };
    assert_eq!(results("returns"), (1..=10).collect::<Vec<_>>());
    assert_eq!(results("exits"), (1..=10).map(|i| 2 * i).collect::<Vec<_>>());
    // One thread creates another.
    let parent = threads.iter().find(|thread| thread.word("function") == "parent").expect("it is there");
    let children: Vec<_> = threads.iter().filter(|thread| thread.word("parent") == parent.word("id")).collect();
    assert_eq!(children.len(), 1);
    assert_eq!(
        (children[0].word("function"), children[0].number("level")),
        ("named", parent.find("level").unwrap_or(0) + 1)
    );
    assert!(children[0].number("join_latency_ns") > 0);
}

/// Each thread knows what it was created with, however soon its handle is another's.
#[test]
fn threads_that_are_told_to_have_started_are_those_that_were_created() {
    let traced = Run::target("brief_threads").arguments(&["1500"]).trace();
    traced.sound().same_behaviour();
    let threads = spans::of(&traced.trace.folder, &["--kind", "thread"]);
    assert_eq!(threads.len(), 6000);
    let lines = collector::run_on("events", &traced.trace.folder, &["--json", "--function", "pthread_*"]).success();
    let told = lines.text().lines().filter(|line| line.contains("\"attributes\""));
    let (mut created, mut started) = (BTreeMap::new(), Vec::new());
    for event in told.map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")) {
        let key = |name: &str| event["attributes"][name].as_u64().unwrap_or(0);
        let what = (key("argument"), (key("pthread"), key("start_routine")));
        match (event["function"].as_str(), event["phase"].as_str()) {
            (Some("pthread_create"), Some("return")) => drop(created.insert(what.0, what.1)),
            (Some("pthread_started"), _) => started.push(what),
            _ => {}
        }
    }
    assert_eq!((created.len(), started.len()), (6000, 6000), "each was told once");
    let false_ones: Vec<_> = started.iter().filter(|(argument, what)| created.get(argument) != Some(what)).collect();
    assert!(false_ones.is_empty(), "{false_ones:?}");
}

#[test]
fn threads_are_spans_where_their_start_routines_are_not_hooked() {
    let traced = Run::target("bare_threads").trace();
    traced.sound();
    agree(&traced);
    // Two of them are joined later than that.
    let all = spans::of(&traced.trace.folder, &["--span-timeout", "50ms"]);
    let threads: Vec<&SpanLine> = all.iter().filter(|span| span.word("kind") == "thread").collect();
    let expected = [("brief", 13), ("repeats_adds", 25), ("repeats_leaves", 12), ("repeats_waits", 12)];
    assert_eq!(count_by(threads.iter().copied(), "function"), expected.map(|(name, n)| (name.into(), n)).into());
    assert!(
        !all.iter()
            .any(|span| span.word("kind") == "frame" && expected.iter().any(|(n, _)| span.word("function") == *n))
    );
    let mut sum = 0;
    for thread in &threads {
        let (status, ending) = match thread.word("function") {
            "repeats_waits" => ("canceled", "canceled"),
            "repeats_leaves" => ("matched", "exited"),
            _ => ("matched", "returned"),
        };
        assert_eq!((thread.word("status"), thread.word("ending")), (status, ending), "{}", thread.0);
        let is_detached = thread.word("function") == "repeats_adds" && thread.number("argument") > 1 << 63;
        assert_eq!((thread.has("detached"), thread.has("joined")), (is_detached, !is_detached), "{}", thread.0);
        assert!(!thread.has("uncertain") && !thread.has("orphan") && thread.has("cross_thread"), "{}", thread.0);
        assert!(thread.has("placeholder") && thread.word("twin").is_empty(), "{}", thread.0);
        assert!(thread.number("latency_ns") > 0 && thread.number("duration_ns") > 0, "{}", thread.0);
        assert_eq!(thread.number("start_ns"), thread.number("created_ns") + thread.number("latency_ns"));
        assert_ne!(thread.number("thread"), thread.number("creator"), "{}", thread.0);
        // All that the thread does lies within it.
        let on_it =
            all.iter().filter(|span| span.word("kind") == "frame" && span.number("thread") == thread.number("thread"));
        for frame in on_it.filter(|frame| matches!(frame.word("function"), "adds" | "waits" | "leaves")) {
            assert!(frame.number("start_ns") >= thread.number("start_ns"), "{}", frame.0);
            assert!(
                thread.word("ending") == "exited" || frame.number("end_ns") <= thread.number("end_ns"),
                "{}",
                frame.0
            );
        }
        if thread.word("status") == "matched" && !is_detached {
            sum += thread.number("result");
        }
        assert!(is_detached || thread.find("join_latency_ns").is_some(), "{}", thread.0);
    }
    assert_eq!(traced.traced.text().lines().next(), Some(format!("sum {sum}").as_str()));
}

#[test]
fn threads_that_end_at_once_are_told_apart() {
    let traced = Run::target("short_threads").with(&["--no-detail"]).trace();
    let threads = spans::of(&traced.trace.folder, &["--runtime", "pthread"]);
    assert_eq!(threads.len(), 400);
    for thread in &threads {
        assert_eq!((thread.word("status"), thread.word("function")), ("matched", "brief"), "{}", thread.0);
        assert!(!thread.has("uncertain") && !thread.has("orphan"), "{}", thread.0);
        // The program gives each a number, and gets it back with three added.
        assert_eq!(thread.number("result"), thread.find("argument").unwrap_or(0) + 3, "{}", thread.0);
    }
}

#[test]
fn callbacks_are_joined_to_what_took_them() {
    let traced = Run::target("callbacks").trace();
    let rules = ["--callback", "qsort_r:arg3:arg4", "--callback", "twalk:arg1", "--kind", "callback"];
    let callbacks = spans::of(&traced.trace.folder, &rules);
    let counted = count_by(&callbacks, "function");
    // `qsort` gives what it is given to `qsort_r`, so there are others.
    for name in ["compares_with", "visits"] {
        assert_eq!(counted[name] as u64, traced.counts[name].calls, "{name}");
    }
    let of_program = |span: &&SpanLine| matches!(span.word("function"), "compares_with" | "visits");
    for callback in callbacks.iter().filter(of_program) {
        assert_eq!((callback.word("status"), callback.word("ending")), ("matched", "returned"), "{}", callback.0);
        assert!(!callback.word("twin").is_empty() && !callback.word("origin").is_empty(), "{}", callback.0);
    }
}

#[test]
fn callbacks_that_end_in_a_tail_call_are_matched() {
    let traced = Run::target("tail_callbacks").trace();
    let all = spans::of(&traced.trace.folder, &["--callback", "qsort_r:arg3:arg4"]);
    let all_by_id = by_id(&all);
    let callbacks: Vec<&SpanLine> = all.iter().filter(|span| span.word("kind") == "callback").collect();
    let expected = ["compares_down", "compares_up"].map(|name| (name.to_owned(), traced.counts[name].calls as usize));
    assert_eq!(count_by(callbacks.iter().copied(), "function"), expected.into());
    // Each returns when the function does that it ended in.
    let compared: Vec<u64> =
        all.iter().filter(|span| span.word("function") == "compares").map(|frame| frame.number("end_ns")).collect();
    for callback in callbacks {
        assert_eq!((callback.word("status"), callback.word("ending")), ("matched", "returned"), "{}", callback.0);
        assert_eq!(all_by_id[callback.word("twin")].word("reason"), "tail_call");
        assert!(compared.contains(&callback.number("end_ns")), "{}", callback.0);
    }
}

#[test]
fn what_is_made_live_is_what_is_made_from_disk() {
    agent_command::prepare();
    for (transport, name) in
        [(Transport::Tcp, "pthreads"), (Transport::Udp, "contexts"), (Transport::Tcp, "exceptions")]
    {
        let folder = Folder::new("live");
        let collector = Collector::to_disk(&folder.join("traces"), &["--sink", "stdout:spans,on-full=block"]);
        let mut command = agent_command::run_to(collector.address(transport), transport, LOSSLESS);
        command.arg(Target::named(name).program()).current_dir(folder.path());
        agent_command::private(&mut command);
        let traced = Process::start(command, Stdout::Collect).exit(agent_command::PATIENCE);
        assert!(traced.stderr.contains("nothing lost"), "{}", traced.stderr);
        let lines = collector.stop().success().stdout;
        let live: Vec<SpanLine> = SpanLine::read(&lines);
        let session = trace::folders(&folder.join("traces")).remove(0);
        let offline = spans::of(&session, &[]);
        let (live, offline) = (finals(&live), finals(&offline));
        assert!(live.len() > 100, "{} spans", live.len());
        for (id, span) in &live {
            assert_eq!(Some(span), offline.get(id), "{name}");
        }
        assert_eq!(live.len(), offline.len(), "{name}");
        assert!(fs::metadata(session.join("spans.parquet")).is_ok_and(|data| data.len() > 1000));
    }
}

/// The last that is said of each span, without what names the session, and without source lines: they may be told later
/// than a span.
fn finals(spans: &[SpanLine]) -> BTreeMap<String, String> {
    let mut finals = BTreeMap::new();
    for span in spans {
        let mut value = span.0.clone();
        let object = value.as_object_mut().expect("an object");
        object.remove("session");
        object.remove("source");
        finals.insert(span.word("id").to_owned(), value.to_string());
    }
    finals
}
