//! The commands that make spans again from what was recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use codec::{
    Arch, ClockKind, ClockNs, Counter, EventKind, FunctionId, ModuleId, Os, Position, SessionId, SessionNs, StreamId,
    SubstreamId,
    atf::{IndexEvent, Origin, ThreadWriter},
    heph::{Attribute, Attributes, Encode, Event, Stamp, Value},
    profile::{
        Clock, Detail, Dropped, Drops, End, EndReason, Epoch, FunctionEvent, FunctionName, Functions, Key, Limit,
        Limits, Module, PROFILE_VERSION, ProfileOption, Queue, Registers, RuntimeEvent, Session, StreamPosition,
        Thread,
    },
    text::printable,
};
use serde_json::Value as Json;
use tests::{
    Collector, Folder, Trace,
    collector::{binary, disk, run_on, verified},
    python::python_with,
    trace::{folders, indexed},
    wait::answer,
};

/// A function whose name would break lines, columns and terminals.
const EVIL: &str = "evil, \"quoted\"\n\u{1b}[2J\u{202e}x";
const NAMES: [&str; 5] = ["main", "work", EVIL, "fib", "worker"];
const BASE: u64 = 0x40_0000;
const ZERO_NS: u64 = 7_000_000_000;

/// Packets of a made-up program, one after the other.
#[derive(Default)]
pub(crate) struct Packets {
    pub(crate) bytes: Vec<u8>,
    next: BTreeMap<u32, u64>,
}

impl Packets {
    fn option<'a>(&mut self, option: impl Into<ProfileOption<'a>>) {
        option.into().encode(&mut self.bytes).expect("it fits");
    }

    fn stamp(&mut self, stream: u32, start: u64, end: u64) -> Stamp {
        let next = self.next.entry(stream).or_default();
        let counter = Counter(u32::try_from(*next).expect("few"));
        *next += 1;
        let (start, end) = (SessionNs(start), SessionNs(end));
        Stamp { stream: StreamId(stream), counter, substream: SubstreamId(0), start, end }
    }

    fn function(&mut self, stream: u32, kind: EventKind, index: u32, depth: u32, start: u64, end: u64) {
        let stamp = self.stamp(stream, start, end);
        let function = Some(FunctionId::new(ModuleId(1), index));
        let words: [u64; Registers::WORDS] = std::array::from_fn(|at| at as u64);
        let detail = (index == 1).then(|| Detail::new(&words, &[]));
        let event = FunctionEvent { stamp, kind, function, ip: None, depth, detail, extra: Attributes::default() };
        event.encode(&mut self.bytes).expect("it fits");
    }

    /// A function from its call to its return, and what is done in between.
    pub(crate) fn frame(
        &mut self,
        (stream, index, depth): (u32, u32, u32),
        from: u64,
        to: u64,
        inside: impl FnOnce(&mut Self),
    ) {
        self.function(stream, EventKind::Call, index, depth, from, from);
        inside(self);
        self.function(stream, EventKind::Return, index, depth, from, to);
    }

    fn runtime(&mut self, stream: u32, function: &str, phase: EventKind, at: (u64, u64), keys: &[(Key, u64)]) {
        let stamp = self.stamp(stream, at.0, at.1);
        let keys: Vec<_> =
            keys.iter().map(|(key, value)| Attribute { name: key.name(), value: Value::U64(*value) }).collect();
        let keys = keys.as_slice().into();
        RuntimeEvent { stamp, function, phase, keys }.encode(&mut self.bytes).expect("it fits");
    }

    /// The program: `main` works twice, computes `fib` by recursion, does something evil, and starts a thread.
    pub(crate) fn program(until: u64) -> Vec<u8> {
        let mut to = Self::default();
        to.describe();
        to.function(0, EventKind::Call, 0, 0, 0, 0);
        to.frame((0, 1, 1), 1_000, 3_000, |_| {});
        to.frame((0, 1, 1), 4_000, 5_000, |_| {});
        to.frame((0, 3, 1), 5_000, 9_000, |to| to.frame((0, 3, 2), 6_000, 8_000, |_| {}));
        to.frame((0, 2, 1), 9_100, 9_200, |_| {});
        let start_routine = BASE + 0x400;
        let start = [(Key::StartRoutine, start_routine), (Key::Argument, 99)];
        to.runtime(0, "pthread_create", EventKind::Call, (9_300, 9_300), &start);
        let made = [(Key::StartRoutine, start_routine), (Key::Result, 0), (Key::Pthread, 0x7f00)];
        to.runtime(0, "pthread_create", EventKind::Return, (9_300, 9_400), &made);
        let runs = [(Key::Pthread, 0x7f00), (Key::StartRoutine, start_routine), (Key::Argument, 99)];
        let ends = [(Key::Pthread, 0x7f00), (Key::ExitValue, 3)];
        to.frame((1, 4, 0), 9_600, 19_600, |to| {
            to.runtime(1, "pthread_start_routine", EventKind::Call, (9_600, 9_600), &runs);
            to.frame((1, 1, 1), 10_000, 12_000, |_| {});
            to.runtime(1, "pthread_start_routine", EventKind::Return, (9_600, 19_600), &ends);
        });
        // Five events that the agent dropped.
        let first = Position(to.next[&0]);
        let drops = [Dropped { stream: StreamId(0), first, count: 5, reason: "ring-full" }];
        to.option(Drops { drops: (&drops).into() });
        *to.next.entry(0).or_default() += 5;
        let stamp = to.stamp(0, 30_000, 40_000);
        let attributes = [Attribute { name: "path", value: Value::Str("/a") }];
        Event { stamp, description: "reading", attributes: (&attributes).into() }.encode(&mut to.bytes).expect("fits");
        to.function(0, EventKind::Return, 0, 0, 0, until);
        to.end(until);
        to.bytes
    }

    /// The program has ended.
    pub(crate) fn end(&mut self, at: u64) {
        let streams: Vec<_> = self
            .next
            .iter()
            .map(|(id, next)| StreamPosition { stream: StreamId(*id), next: Position(*next) })
            .collect();
        let (reason, at, stream_count) =
            (EndReason::Exited(0), SessionNs(at), u32::try_from(self.next.len()).expect("few"));
        self.option(End { reason, at, stream_count, streams: streams.as_slice().into() });
    }

    /// A program that calls functions of these names, each once.
    pub(crate) fn with_names(names: &[&str]) -> Vec<u8> {
        let mut to = Self::default();
        to.describe();
        let functions: Vec<_> =
            (0..).zip(names).map(|(index, name)| FunctionName { offset: 0x100 * index, name }).collect();
        to.option(Functions { module: ModuleId(1), first_index: 0, functions: functions.as_slice().into() });
        for index in 0..u32::try_from(names.len()).expect("few") {
            let at = 1_000 * u64::from(index);
            to.frame((0, index, 0), at, at + 500, |_| {});
        }
        to.end(100_000);
        to.bytes
    }

    pub(crate) fn describe(&mut self) {
        let arguments = ["prog", "--fast"];
        self.option(Session {
            id: SessionId([7; 16]),
            profile: PROFILE_VERSION,
            arch: Arch::X86_64,
            os: Os::Linux,
            pid: 4711,
            agent_version: "1",
            host: "machine",
            executable: "/usr/bin/prog",
            argument_count: 2,
            arguments: (&arguments).into(),
        });
        self.option(Clock { clock: ClockKind::Boottime, zero_ns: ZERO_NS });
        self.option(Epoch { unix_ns: 1_700_000_000_000_000_000 });
        for (stream, end, name) in [(0, None, "main"), (1, Some(SessionNs(19_800)), "worker")] {
            let (os_id, start, creator) = (100 + u64::from(stream), SessionNs(0), None);
            self.option(Thread { stream: StreamId(stream), os_id, start, end, creator, name });
        }
        self.option(Module {
            id: ModuleId(1),
            base: BASE,
            size: 0x1000,
            loaded: SessionNs(0),
            unloaded: None,
            function_count: 5,
            table_hash: 5,
            build_id: &[1, 2, 3],
            path: "/usr/bin/prog, really",
        });
        let functions: Vec<_> =
            (0..).zip(NAMES).map(|(index, name)| FunctionName { offset: 0x100 * index, name }).collect();
        self.option(Functions { module: ModuleId(1), first_index: 0, functions: functions.as_slice().into() });
        self.option(Queue { id: 4, label: "com.example.queue" });
        let limits = [Limit { module: ModuleId(1), count: 2, reason: "missing-symbol", detail: "two" }];
        self.option(Limits { limits: (&limits).into() });
    }
}

/// A folder with the session that these packets make.
#[track_caller]
pub(crate) fn ingested(name: &str, packets: &[u8]) -> (Folder, PathBuf) {
    let folder = Folder::new(name);
    let file = folder.join("in.heph");
    fs::write(&file, packets).expect("room on disk");
    let traces = folder.join("traces");
    run_on("ingest", &file, &["--sink", &disk(&traces)]).success();
    let session = Trace::only(&traces).folder;
    (folder, session)
}

#[track_caller]
fn json(command: &str, session: &Path, arguments: &[&str]) -> Vec<Json> {
    let exit = run_on(command, session, &[&["--json"], arguments].concat()).success();
    exit.text().lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

/// Each span as function and duration.
fn listed(spans: &[Json]) -> Vec<(&str, Option<u64>)> {
    spans.iter().map(|span| (span["function"].as_str().expect("a name"), span["duration_ns"].as_u64())).collect()
}

#[test]
fn spans_are_listed_filtered_and_sorted() {
    let (_folder, session) = ingested("offline-spans", &Packets::program(50_000));
    let frames = json("spans", &session, &["--kind", "frame"]);
    assert_eq!(
        listed(&json("spans", &session, &["--kind", "frame", "--thread", "main", "--sort", "start"])),
        [
            ("main", Some(50_000)),
            ("work", Some(2_000)),
            ("work", Some(1_000)),
            ("fib", Some(4_000)),
            ("fib", Some(2_000)),
            (EVIL, Some(100)),
        ]
    );
    assert_eq!(frames.len(), 8);
    assert!(frames.iter().all(|span| span["type"] == "span" && span["runtime"] == "native"));
    let longest = json("spans", &session, &["--kind", "frame", "--sort", "duration", "--limit", "3"]);
    assert_eq!(listed(&longest), [("main", Some(50_000)), ("worker", Some(10_000)), ("fib", Some(4_000))]);
    let by_name = json("spans", &session, &["--kind", "frame", "--sort", "function"]);
    let names: Vec<_> = listed(&by_name).iter().map(|(name, _)| *name).collect();
    assert!(names.is_sorted(), "{names:?}");

    let count = |arguments: &[&str]| json("spans", &session, arguments).len();
    assert_eq!(count(&["--function", "wor*"]) - count(&["--function", "wor*", "--kind", "thread"]), 4);
    assert_eq!(count(&["--kind", "frame", "--min-duration", "4us"]), 3);
    assert_eq!(count(&["--kind", "frame", "--to", "4us", "--thread", "0"]), 2, "main, and work once");
    assert_eq!(count(&["--kind", "frame", "--from", "9100ns", "--thread", "0"]), 2, "main, and the evil one");
    assert_eq!(count(&["--limit", "2"]), 2);
    assert_eq!(count(&["--limit", "0"]), 0);
    assert_eq!(count(&["--status", "open"]), 0);
    let gaps = json("spans", &session, &["--kind", "gap"]);
    assert_eq!((gaps.len(), gaps[0]["key"].as_u64(), gaps[0]["cause"].as_str()), (1, Some(5), Some("agent:ring-full")));
    let events = json("spans", &session, &["--runtime", "heph"]);
    assert_eq!(listed(&events), [("reading", Some(10_000))]);
    let threads = json("spans", &session, &["--kind", "thread"]);
    assert_eq!(threads.len(), 1, "{threads:?}");
    assert_eq!((threads[0]["thread"].as_u64(), threads[0]["latency_ns"].is_u64()), (Some(1), true), "{threads:?}");

    let text = run_on("spans", &session, &[]).success();
    assert!(text.text().lines().next().is_some_and(|head| head.ends_with("function")), "{}", text.text());
    assert!(!text.text().chars().any(|c| c.is_control() && c != '\n'), "no terminal is harmed");
    assert!(!text.text().contains('\u{202e}'), "and no line turned around");
}

/// Every command counts from the session's zero, whenever the first event was, and takes times that are counted so.
#[test]
fn all_times_count_from_the_zero_of_the_session() {
    let mut packets = Packets::default();
    packets.describe();
    packets.frame((0, 0, 0), 2_000_000_000, 3_000_000_000, |_| {});
    let streams = [StreamPosition { stream: StreamId(0), next: Position(2) }];
    let (reason, at) = (EndReason::Exited(0), SessionNs(4_000_000_000));
    packets.option(End { reason, at, stream_count: 1, streams: (&streams).into() });
    let folder = Folder::new("offline-zero");
    let file = folder.join("in.heph");
    fs::write(&file, packets.bytes).expect("room on disk");
    let traces = folder.join("traces");
    let live = run_on("ingest", &file, &["--sink", &disk(&traces), "--sink", "stdout:events"]).success();
    let session = Trace::only(&traces).folder;

    let text = |command: &str, arguments: &[&str]| run_on(command, &session, arguments).success().text().to_string();
    assert!(
        text("events", &[]).starts_with("     2.000000000     0  → main\n     3.000000000 "),
        "{}",
        text("events", &[])
    );
    assert!(text("spans", &[]).contains("\n     2.000000000 "), "{}", text("spans", &[]));
    assert!(text("info", &[]).contains(" 1.0 s, from 2.000000000 to 3.000000000 s\n"), "{}", text("info", &[]));
    assert!(text("info", &[]).contains(" 7.000000000 s by boottime\n"), "{}", text("info", &[]));
    let times = |lines: &[Json], name: &str| lines.iter().map(|line| line[name].as_u64()).collect::<Vec<_>>();
    let (start, end) = (Some(2_000_000_000), Some(3_000_000_000));
    assert_eq!(times(&json("events", &session, &[]), "start_ns"), [start, start]);
    assert_eq!(times(&json("events", &session, &[]), "end_ns"), [start, end]);
    assert_eq!(times(&json("spans", &session, &[]), "start_ns"), [start]);
    let info = json("info", &session, &[]);
    assert_eq!((times(&info, "time_start_ns"), times(&info, "time_end_ns")), (vec![start], vec![end]));
    assert_eq!(
        (&info[0]["threads"][1]["end_ns"], &info[0]["end"]["at_ns"]),
        (&19_800.into(), &4_000_000_000_u64.into())
    );
    let last: Json = serde_json::from_str(live.text().lines().next_back().expect("lines")).expect("JSON");
    assert_eq!((&last["type"], &last["at_ns"]), (&"end".into(), &4_000_000_000_u64.into()));

    let count = |command: &str, from: &str, to: &str| json(command, &session, &["--from", from, "--to", to]).len();
    assert_eq!(count("events", "2s", "3.000000001s"), 2);
    assert_eq!(count("events", "2000000001ns", "4s"), 1);
    assert_eq!(count("spans", "2500ms", "2.6s"), 1);
    assert_eq!((count("events", "0s", "2s"), count("spans", "0s", "2s"), count("spans", "3.1s", "9s")), (0, 0, 0));
}

/// What is printed live and what is printed of the files is the same, line by line.
#[test]
fn events_have_one_form_live_and_from_disk() {
    let folder = Folder::new("offline-events");
    let file = folder.join("in.heph");
    fs::write(&file, Packets::program(50_000)).expect("room on disk");
    let traces = folder.join("traces");
    let live = run_on("ingest", &file, &["--sink", &disk(&traces), "--sink", "stdout:events"]).success();
    let session = Trace::only(&traces).folder;
    let is_told = |line: &&str| !line.contains(r#""type":"session""#) && !line.contains(r#""type":"end""#);
    let mut live: Vec<_> = live.text().lines().filter(is_told).map(str::to_owned).collect();
    let mut read: Vec<_> =
        run_on("events", &session, &["--json"]).success().text().lines().map(str::to_owned).collect();
    live.sort();
    read.sort();
    assert_eq!(read, live);
    let lines: Vec<Json> = read.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds: BTreeSet<_> = lines.iter().filter_map(|line| line["kind"].as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["call", "event", "return", "runtime"]));
    assert!(lines.iter().any(|line| line["type"] == "gap" && line["count"] == 5), "{lines:?}");
}

/// The rows of comma-separated values, as the standard has them.
fn rows(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted => {
                assert_eq!(characters.next(), Some('\n'));
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            c => field.push(c),
        }
    }
    assert!(field.is_empty() && row.is_empty() && !quoted, "the last line has its end");
    rows
}

#[test]
fn csv_holds_what_json_holds() {
    let (_folder, session) = ingested("offline-csv", &Packets::program(50_000));
    let csv = run_on("spans", &session, &["--csv"]).success();
    let rows = rows(csv.text());
    let spans = json("spans", &session, &[]);
    let (head, rows) = rows.split_first().expect("a line of names");
    assert_eq!(rows.len(), spans.len());
    assert_eq!(head.len(), 39);
    for (row, span) in rows.iter().zip(&spans) {
        assert_eq!(row.len(), head.len());
        for (name, value) in head.iter().zip(row) {
            let expected = match (name.as_str(), &span[name]) {
                // What is the same as another, or zero, is left out of the JSON.
                ("symbol" | "threads" | "flags" | "depth" | "level" | "suspensions", _) => continue,
                (_, Json::Null) => String::new(),
                (_, Json::String(text)) => printable(text),
                (_, value) => value.to_string(),
            };
            assert_eq!(*value, expected, "{name} of {span}");
        }
    }
    assert!(rows.iter().any(|row| row.contains(&printable(EVIL))), "what would break a line is whole");
    for form in ["--csv", "--json"] {
        for command in ["spans", "top"] {
            let text = run_on(command, &session, &[form]).success();
            let hidden = |c: char| (c.is_control() && !"\r\n".contains(c)) || c == '\u{202e}';
            assert!(!text.text().contains(hidden), "{command} {form} shows what nobody sees");
        }
    }
}

#[test]
fn top_adds_up_what_functions_took() {
    let (_folder, session) = ingested("offline-top", &Packets::program(50_000));
    let rows = json("top", &session, &[]);
    let row = |name: &str| rows.iter().find(|row| row["function"] == name).expect("it is there");
    let values =
        |name: &str| ["count", "total_ns", "self_ns", "max_ns"].map(|value| row(name)[value].as_u64().expect(value));
    assert_eq!(values("work"), [3, 5_000, 5_000, 2_000]);
    assert_eq!(values("fib"), [2, 4_000, 4_000, 4_000], "the inner one is in the outer one");
    assert_eq!(values("main"), [1, 50_000, 0, 50_000]);
    let unsure = |name: &str| row(name)["unsure_ns"].as_u64();
    assert_eq!((unsure("main"), unsure("work")), (Some(50_000 - 7_100), Some(0)), "events are missing in it");
    assert_eq!(values("worker"), [1, 10_000, 8_000, 10_000]);
    assert_eq!(rows[0]["function"], "main");
    assert_eq!(json("top", &session, &["--thread", "1"]).len(), 2);
    let by_count = json("top", &session, &["--sort", "count", "--limit", "1"]);
    assert_eq!((by_count.len(), by_count[0]["function"].as_str()), (1, Some("work")));
    let p50 = row("work")["p50_ns"].as_u64().expect("a number");
    assert!((2_000..=2_032).contains(&p50), "{p50}");
    let csv = run_on("top", &session, &["--csv", "--function", "evil*"]).success();
    let rows = self::rows(csv.text());
    assert_eq!((rows.len(), rows[1][0].as_str(), rows[1][4].as_str()), (2, printable(EVIL).as_str(), "100"));
}

#[test]
fn tree_shows_who_called_and_who_created() {
    let (_folder, session) = ingested("offline-tree", &Packets::program(50_000));
    let nodes = json("tree", &session, &["--thread", "0", "--min-percent", "0"]);
    let found: Vec<_> =
        nodes.iter().map(|node| (node["level"].as_u64(), node["function"].as_str(), node["count"].as_u64())).collect();
    let level = |level: u64, name: &'static str, count: u64| (Some(level), Some(name), Some(count));
    assert_eq!(
        found.iter().filter(|node| node.1 != Some("reading")).copied().collect::<Vec<_>>(),
        [
            level(0, "main", 1),
            level(1, "(missing)", 0),
            level(1, "fib", 1),
            level(2, "fib", 1),
            level(1, "work", 2),
            level(1, EVIL, 1)
        ]
    );
    assert_eq!(json("tree", &session, &["--thread", "0", "--depth", "1"])[0]["parent"], Json::Null);
    assert_eq!(json("tree", &session, &["--thread", "1", "--min-percent", "50"]).len(), 1);

    let story = json("tree", &session, &["--min-percent", "0"]);
    let thread = story.iter().find(|node| node["kind"] == "thread").expect("the thread is there");
    assert_eq!(thread["function"], "worker", "{story:?}");
    let below: Vec<_> = story.iter().filter(|node| node["parent"] == thread["node"]).collect();
    assert_eq!(below.len(), 1, "{story:?}");
    assert_eq!(below[0]["function"], "work", "the code of the thread is the thread");
    let text = run_on("tree", &session, &[]).success();
    assert!(text.text().contains("[thread] worker"), "{}", text.text());
    for command in ["top", "tree"] {
        let text = run_on(command, &session, &[]).success();
        let told = text.text().lines().next().unwrap_or_default();
        assert!(told.contains("events are missing (agent:ring-full 5), on 1 of 2 threads"), "{told}");
        assert!(told.contains("--complete"), "{told}");
    }
    assert_eq!(run_on("tree", &session, &["--task", "5"]).code, Some(1));
}

#[test]
fn stats_tell_how_spans_fit_together() {
    let (_folder, session) = ingested("offline-stats", &Packets::program(50_000));
    let stats = json("stats", &session, &[]).remove(0);
    let native = &stats["runtimes"]["native"];
    assert_eq!((native["spans"].as_u64(), native["with_parent"].as_u64()), (Some(8), Some(6)), "{stats}");
    assert_eq!(native["duration_ns"]["max"], 50_000);
    assert_eq!(stats["runtimes"]["pthread"]["latency_ns"]["count"], 1);
    assert_eq!(stats["gaps"][0]["count"], 5);
    let text = run_on("stats", &session, &[]).success();
    for expected in ["native: 8 spans", "pthread: 1 span", "5 events in 1 gap: agent:ring-full"] {
        assert!(text.text().contains(expected), "{expected} in {}", text.text());
    }
}

#[test]
fn heph_that_was_exported_makes_the_same_trace_again() {
    let (folder, session) = ingested("offline-heph", &Packets::program(50_000));
    let runs = exported_again(&folder, &session, "runs");
    let plain = exported_again(&folder, &session, "plain");
    assert!(runs < plain, "{runs} bytes as runs, {plain} plain");
}

/// Exports a session in this form, checks that ingesting it makes the same trace, and returns how many bytes it has.
fn exported_again(folder: &Folder, session: &Path, wire: &str) -> usize {
    let file = folder.join(&format!("{wire}.heph"));
    let export = ["--format", "heph", "--wire", wire, "-o"];
    let exit = run_on("export", session, &[&export[..], &[&file.display().to_string()]].concat()).success();
    assert!(exit.stderr.contains("events"), "{}", exit.stderr);
    let again = folder.join(&format!("again-{wire}"));
    run_on("ingest", &file, &["--sink", &disk(&again)]).success();
    let copy = Trace::only(&again).folder;
    verified(&copy);
    let (first, second) = (Folder::contents(session), Folder::contents(&copy));
    assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    for (path, bytes) in first.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "atf")) {
        assert!(*bytes == second[path], "{} is the same", path.display());
    }
    let manifest = |files: &BTreeMap<PathBuf, Vec<u8>>| -> Json {
        let mut json: Json = serde_json::from_slice(&files[Path::new("manifest.json")]).expect("JSON");
        // It was read at another time, and the table has the session's name, which tells that time.
        let fields = json.as_object_mut().expect("an object");
        ["seen_unix_ns", "checksum"].iter().for_each(|field| _ = fields.remove(*field));
        _ = fields["table"].as_object_mut().expect("an object").remove("checksum");
        json
    };
    assert_eq!(manifest(&first), manifest(&second));
    let exported = run_on("export", session, &[&export[..], &["-"]].concat()).success();
    assert_eq!(exported.stdout, fs::read(&file).expect("it is there"));
    exported.stdout.len()
}

#[test]
fn the_table_is_the_same_live_after_and_exported() {
    let (folder, session) = ingested("offline-table", &Packets::program(20_000));
    let live = folder.join("live");
    run_on("ingest", &folder.join("in.heph"), &["--sink", &(disk(&live) + ",spans=live")]).success();
    let live = Trace::only(&live).folder.join("spans.parquet");
    let file = folder.join("exported.parquet");
    let exit = run_on("export", &session, &["--format", "parquet", "-o", &file.display().to_string()]).success();
    assert!(exit.stderr.contains(" spans, "), "{}", exit.stderr);
    let Some(python) = python_with(&["pyarrow"]) else { return };
    let script = "import sys, pyarrow.parquet as p; \
        a, b, c = (p.read_table(name).sort_by('id') for name in sys.argv[1:]); \
        assert a.num_rows > 5 and a.equals(b) and a.equals(c), (a.num_rows, b.num_rows, c.num_rows)";
    let files = [session.join("spans.parquet"), file, live];
    let compared = Command::new(python).args(["-c", script]).args(files).output();
    let compared = compared.expect("Python starts");
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stderr));
}

#[test]
fn spans_are_exported_for_viewers() {
    let (folder, session) = ingested("offline-export", &Packets::program(50_000));
    for (format, expected) in [("folded", "main;fib;fib 2000"), ("chrome", "\"fib\""), ("perfetto", "worker")] {
        let file = folder.join(format);
        let exit = run_on("export", &session, &["--format", format, "-o", &file.display().to_string()]).success();
        assert!(exit.stderr.contains("spans"), "{}", exit.stderr);
        let bytes = fs::read(&file).expect("it is there");
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let nowhere = folder.join("no/such/folder").display().to_string();
    let exit = run_on("export", &session, &["--format", "folded", "-o", &nowhere]);
    assert!(exit.code == Some(1) && exit.stderr.contains("no/such/folder"), "{}", exit.stderr);
}

/// What makes spans, and how it is called.
const COMMANDS: [&[&str]; 6] =
    [&["spans"], &["spans", "--sort", "start"], &["top"], &["tree"], &["stats"], &["tree", "--thread", "0"]];

#[test]
fn a_trace_without_events_has_no_spans() {
    let folder = Folder::new("offline-empty");
    let manifest = r#"{"threads": [], "time_start_ns": 0, "time_end_ns": 0, "end": {"how": "exited"}}"#;
    fs::write(folder.join("manifest.json"), manifest).expect("room on disk");
    for command in COMMANDS.iter().filter(|command| !command.contains(&"--thread")) {
        run_on(command[0], folder.path(), &command[1..]).success();
    }
    assert_eq!(json("spans", folder.path(), &[]).len(), 0);
    for format in ["perfetto", "chrome", "folded", "parquet", "heph"] {
        run_on("export", folder.path(), &["--format", format, "-o", "-"]).success();
    }
    let missing = folder.join("missing");
    for command in ["spans", "top", "tree", "stats"] {
        let exit = run_on(command, &missing, &[]);
        assert!(exit.code == Some(1) && exit.stderr.contains("missing"), "{command}: {}", exit.stderr);
    }
    let elsewhere = ["export", "--format", "chrome", "-o", "-", "--wire", "runs"];
    for wrong in
        [&["spans", "--kind", "fram"][..], &["spans", "--callback", "f"], &["export", "--format", "heph"], &elsewhere]
    {
        assert_eq!(run_on(wrong[0], folder.path(), &wrong[1..]).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn what_is_still_open_in_a_trace_without_end_is_told_once() {
    let (folder, collector) = Collector::in_folder("offline-unfinished", &[]);
    let mut to = Packets::default();
    to.describe();
    to.function(0, EventKind::Call, 0, 0, 0, 0);
    to.frame((0, 1, 1), 1_000, 3_000, |_| {});
    // Longer than a span may take before it is told to be open.
    to.frame((0, 1, 1), 4_000, 60_000_000_000, |_| {});
    let mut connection = std::net::TcpStream::connect(collector.tcp()).expect("a connection");
    connection.write_all(&to.bytes).expect("it is taken");
    let session =
        answer("the events are written", || folders(folder.path()).pop().filter(|session| indexed(session, 0) >= 5));
    let spans = json("spans", &session, &["--sort", "start"]);
    let found: Vec<_> = spans.iter().map(|span| span["status"].as_str().expect("one")).collect();
    assert_eq!(found, ["open", "matched", "matched"], "{spans:?}");
    for command in COMMANDS {
        run_on(command[0], &session, &command[1..]).success();
    }
    collector.kill();
    assert_eq!(json("spans", &session, &["--sort", "start"]).len(), 3);
}

#[test]
fn damage_is_named_after_what_could_be_read() {
    let (_folder, session) = ingested("offline-damage", &Packets::program(50_000));
    let path = session.join("thread_1/index.atf");
    let mut index = fs::read(&path).expect("an index");
    // The kind of the fourth event.
    index[64 + 32 * 3 + 20] = 9;
    fs::write(&path, index).expect("room on disk");
    for command in COMMANDS {
        let exit = run_on(command[0], &session, &command[1..]);
        assert_eq!(exit.code, Some(1), "{command:?}");
        assert!(exit.stderr.contains("thread_1/index.atf: at byte 180"), "{command:?}: {}", exit.stderr);
    }
    let exit = run_on("spans", &session, &[]);
    assert!(exit.text().contains("fib"), "what could be read is printed: {}", exit.text());
}

/// Damages a finished trace.
type Damage = fn(&Path);

/// Leaves so many bytes of a file, or so many less than it has.
fn shorten(path: &Path, to: i64) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("it is there");
    let length = i64::try_from(file.metadata().expect("it is there").len()).expect("it is short");
    file.set_len(u64::try_from(if to < 0 { length + to } else { to }).expect("that is less")).expect("it is a file");
}

#[test]
fn a_finished_trace_that_lacks_something_is_never_read_without_a_word() {
    const INDEX: &str = "thread_1/index.atf";
    const DETAIL: &str = "thread_1/detail.atf";
    let damages: [(&str, Damage); 11] = [
        ("nothing", |_| {}),
        ("an index without its footer", |dir| shorten(&dir.join(INDEX), -64)),
        ("an index without footer and events", |dir| shorten(&dir.join(INDEX), -64 - 32 * 5)),
        ("an index cut inside an event", |dir| shorten(&dir.join(INDEX), -64 - 32 * 5 - 7)),
        ("an index of its header", |dir| shorten(&dir.join(INDEX), 64)),
        ("an empty index", |dir| shorten(&dir.join(INDEX), 0)),
        ("no directory of a thread", |dir| fs::remove_dir_all(dir.join("thread_1")).expect("it is there")),
        ("details without their footer", |dir| shorten(&dir.join(DETAIL), -64)),
        ("details that are empty", |dir| shorten(&dir.join(DETAIL), 0)),
        ("no details", |dir| fs::remove_file(dir.join(DETAIL)).expect("they are there")),
        ("another name", |dir| {
            let manifest = fs::read_to_string(dir.join("manifest.json")).expect("it is there");
            fs::write(dir.join("manifest.json"), manifest.replace("fib", "fob")).expect("room on disk");
        }),
    ];
    const OTHERS: [&[&str]; 6] = [
        &["events"],
        &["info"],
        &["verify"],
        &["export", "--format", "heph", "-o", "-"],
        &["export", "--format", "chrome", "-o", "-"],
        &["export", "--format", "parquet", "-o", "-"],
    ];
    for (what, damage) in damages {
        let (_folder, session) = ingested("offline-lacking", &Packets::program(50_000));
        damage(&session);
        for command in COMMANDS.iter().copied().chain(OTHERS) {
            let exit = run_on(command[0], &session, &command[1..]);
            assert_eq!(exit.code, Some(i32::from(what != "nothing")), "{what}, {command:?}: {}", exit.stderr);
            assert!(what == "nothing" || !exit.stderr.is_empty(), "{what}, {command:?}: no word");
        }
    }
}

/// A session of two threads with so many events each, in nested calls.
fn large(folder: &Path, events: u64) {
    fs::create_dir_all(folder).expect("room on disk");
    for id in 0..2_u32 {
        let origin = Origin { arch: Arch::X86_64, os: Os::Linux, clock: ClockKind::Boottime, thread: id };
        let mut writer = ThreadWriter::new(origin);
        let dir = folder.join(format!("thread_{id}"));
        fs::create_dir_all(&dir).expect("room on disk");
        let mut index = fs::File::create(dir.join("index.atf")).expect("room on disk");
        for number in 0..events {
            // Up four, down four.
            let (step, depth) = (number % 8, u32::try_from((number % 8).min(7 - number % 8)).expect("small"));
            let kind = if step < 4 { EventKind::Call } else { EventKind::Return };
            let timestamp = ClockNs(1_000 + number * 10 + u64::from(id));
            let function = FunctionId::new(ModuleId(1), depth);
            let event = IndexEvent { timestamp, function, thread: id, kind, depth, detail: None };
            writer.append(&event, &[]).expect("there is room");
            if number % 65_536 == 0 {
                writer.flush_to(&mut index, &mut std::io::sink()).expect("room on disk");
            }
        }
        let (mut sealed, _) = writer.seal();
        sealed.write_to(&mut index).expect("room on disk");
    }
    let end = 1_001 + events * 10;
    let manifest = format!(
        r#"{{"threads": [{{"id": 0, "has_detail": false}}, {{"id": 1, "has_detail": false}}], "time_start_ns": 1000,
        "time_end_ns": {end}, "end": {{"how": "exited", "code": 0}}}}"#
    );
    fs::write(folder.join("manifest.json"), manifest).expect("room on disk");
}

/// Runs a command that may have so much address space.
fn limited(kib: u32, session: &Path, arguments: &str) -> String {
    let (command, rest) = arguments.split_once(' ').unwrap_or((arguments, ""));
    let script = format!("ulimit -v {kib}; exec \"$0\" {command} \"$1\" {rest}");
    let output = Command::new("sh").arg("-c").arg(&script).arg(binary()).arg(session).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_trace_that_is_larger_than_the_memory_is_read_all_the_same() {
    const EVENTS: u64 = 1 << 20;
    let folder = Folder::new("offline-large");
    let session = folder.join("session");
    large(&session, EVENTS);
    let bytes: u64 =
        (0..2).map(|id| fs::metadata(session.join(format!("thread_{id}/index.atf"))).expect("it is there").len()).sum();
    // The program itself takes some, and what is read must not fit beside it.
    let kib = 48 << 10;
    assert!(bytes > u64::from(kib) * 1024, "{bytes}");
    let top = limited(kib, &session, "top --json");
    let calls: u64 = top
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("JSON")["count"].as_u64().expect("a number"))
        .sum();
    assert_eq!(calls, EVENTS, "each call is one span");
    let longest = limited(kib, &session, "spans --sort duration --limit 3 --json");
    assert_eq!(longest.lines().count(), 3);
    let stats = limited(kib, &session, "stats --json");
    assert!(stats.contains(&format!("\"spans\":{EVENTS}")), "{stats}");
    assert!(limited(kib, &session, "tree --min-percent 1").lines().count() >= 8);
    let events = limited(kib, &session, "events --to 51us");
    assert_eq!(events.lines().count(), 10_000);
}
