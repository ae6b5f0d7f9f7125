//! `collector view` in a real browser. Without Chromium the test says so and is over; with `SPOOR_REQUIRE_PROGRAMS=1` it fails.

use std::{fs, path::Path, process::Command, time::Duration};

use codec::{
    Arch, ClockKind, EventKind, FunctionId, ModuleId, Os, Position, SessionId, SessionNs, StreamId, SubstreamId,
    heph::{Attributes, Encode, Stamp},
    profile::{
        Clock, End, EndReason, FunctionEvent, FunctionName, Functions, Message, Module, PROFILE_VERSION, ProfileOption,
        Session, StreamPosition, Thread,
    },
};
use serde_json::Value;
use tests::{Folder, Identity, collector};

use crate::spans::viewer::has_browser;

/// What `tests/view.py` looks for.
const HOSTILE: &str = "<img src=x onerror=window.harmed=1>";
pub(crate) const FUNCTIONS: [&str; 5] = ["main", "_ZN4demo4workEi", "needle", HOSTILE, "routine"];
pub(crate) const MODULE: ModuleId = ModuleId(1);

/// Three hours behind the beginning, and no multiple of anything.
const FAR_NS: u64 = 3 * 3_600_000_000_000 + 1_234_567;

/// Packets of a session.
#[derive(Default)]
pub(crate) struct Packets {
    pub(crate) bytes: Vec<u8>,
    next: [u64; 2],
}

impl Packets {
    pub(crate) fn say<'a>(&mut self, option: impl Into<ProfileOption<'a>>) {
        option.into().encode(&mut self.bytes).expect("it fits");
    }

    /// The program has ended.
    pub(crate) fn end(&mut self, at: u64) {
        let position = |(stream, next)| StreamPosition { stream: StreamId(stream), next: Position(next) };
        let streams: Vec<_> = (0..).zip(self.next).map(position).collect();
        let (reason, at, stream_count) = (EndReason::Exited(0), SessionNs(at), 2);
        self.say(End { reason, at, stream_count, streams: streams.as_slice().into() });
    }

    /// The next event of a thread is lost.
    pub(crate) fn lose(&mut self, stream: u32) {
        self.next[stream as usize] += 1;
    }

    pub(crate) fn event(&mut self, stream: u32, kind: EventKind, function: u32, start: u64, end: u64, depth: u32) {
        let next = &mut self.next[stream as usize];
        let (counter, substream) = (Position(*next).counter(), SubstreamId(0));
        let stamp =
            Stamp { stream: StreamId(stream), counter, substream, start: SessionNs(start), end: SessionNs(end) };
        *next += 1;
        let function = Some(FunctionId::new(MODULE, function));
        let (detail, extra) = (None, Attributes::default());
        let event = FunctionEvent { stamp, kind, function, ip: None, depth, detail, extra };
        Message::Function(event).encode(&mut self.bytes).expect("it fits");
    }

    pub(crate) fn call(&mut self, stream: u32, function: u32, start: u64, end: u64, depth: u32) {
        self.event(stream, EventKind::Call, function, start, start, depth);
        self.event(stream, EventKind::Return, function, start, end, depth);
    }
}

/// What is told of a session before its events.
pub(crate) fn described(id: &str) -> Packets {
    let mut packets = Packets::default();
    packets.say(Session {
        id: id.parse::<SessionId>().expect("an id"),
        profile: PROFILE_VERSION,
        arch: Arch::X86_64,
        os: Os::Linux,
        pid: 4711,
        agent_version: "test",
        host: "<b>host</b>",
        executable: "/bin/<i>demo</i>",
        argument_count: 1,
        arguments: ["demo"].as_slice().into(),
    });
    packets.say(Clock { clock: ClockKind::Boottime, zero_ns: 1_000_000 });
    for (stream, name) in [(0, "<script>window.harmed=1</script>"), (1, "worker")] {
        let (start, end, creator) = (SessionNs(0), None, None);
        packets.say(Thread { stream: StreamId(stream), os_id: 4711 + u64::from(stream), start, end, creator, name });
    }
    packets.say(Module {
        id: MODULE,
        base: 0x1000,
        size: 0x1000,
        loaded: SessionNs(0),
        unloaded: None,
        function_count: 5,
        table_hash: 0,
        build_id: &[],
        path: "/bin/<i>demo</i>",
    });
    let functions: Vec<_> =
        (0..).step_by(16).zip(FUNCTIONS).map(|(offset, name)| FunctionName { offset, name }).collect();
    packets.say(Functions { module: MODULE, first_index: 0, functions: functions.as_slice().into() });
    packets
}

/// Hours with many short calls at the beginning and a very short one at the end, on a thread with a hostile name, and events
/// of another that are missing.
fn packets() -> Vec<u8> {
    let mut packets = described("0123456789abcdef0123456789abcdef");
    packets.event(0, EventKind::Call, 0, 1000, 1000, 0);
    for number in 0..3000 {
        let start = 2_000_000_000 + number * 1000;
        packets.call(0, 1, start, start + 400 + number % 7, 1);
    }
    packets.call(0, 3, 5_000_000_000, 6_000_000_000, 1);
    packets.call(0, 2, FAR_NS, FAR_NS + 7, 1);
    packets.call(0, 1, FAR_NS + 20, FAR_NS + 25, 1);
    packets.event(1, EventKind::Call, 4, 3_600_000_000_000, 3_600_000_000_000, 0);
    packets.next[1] += 5;
    packets.event(1, EventKind::Return, 4, 3_600_000_000_000, 7_200_000_000_000, 0);
    packets.event(0, EventKind::Return, 0, 1000, FAR_NS + 1_000_000, 0);
    packets.bytes
}

/// A duration as it is shown.
fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{}.{:03} µs", ns / 1_000, ns % 1_000),
        1_000_000..1_000_000_000 => format!("{}.{:03} ms", ns / 1_000_000, ns / 1_000 % 1_000),
        _ => format!("{}.{:03} s", ns / 1_000_000_000, ns / 1_000_000 % 1_000),
    }
}

/// Writes a session as a Perfetto trace.
pub(crate) fn export(session: &Path, file: &Path, options: &[&str]) {
    let output = file.to_string_lossy();
    let arguments = [&["--format", "perfetto", "--alone", "-o", &output], options].concat();
    collector::run_on("export", session, &arguments).success();
}

/// Names and changes of all functions of the two sessions of a directory, as the page shows them.
fn compared(traces: &Path) -> Vec<(String, String)> {
    let [a, b] = tests::trace::folders(traces).try_into().expect("two");
    let arguments = [a.to_str().expect("a path"), b.to_str().expect("a path"), "--json", "--all"];
    let printed = collector::run(&[&["diff"], &arguments[..]].concat()).success();
    let line = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(row["total_change_ns"], 0, "they are the same");
        (row["function"].as_str().expect("a name").to_owned(), duration(0))
    };
    printed.text().lines().map(line).collect()
}

#[test]
fn the_page_shows_what_the_commands_print() {
    if has_browser() {
        use_page("view", &[]);
    }
}

#[test]
fn the_page_is_the_same_over_tls() {
    if has_browser() {
        let identity = Identity::new();
        let arguments = ["--listen", "0.0.0.0:0", "--name", "127.0.0.1"].map(Into::into);
        use_page("view-tls", &[&arguments[..], &identity.certified("collector")].concat());
    }
}

/// Uses all of the page of a viewer with these arguments.
fn use_page(name: &str, arguments: &[String]) {
    let folder = Folder::new(name);
    let (file, traces) = (folder.join("packets.heph"), folder.join("traces"));
    fs::write(&file, packets()).expect("there is room");
    for _ in 0..2 {
        collector::run_on("ingest", &file, &["--sink", &collector::disk(&traces)]).success();
    }
    let session = tests::trace::folders(&traces).remove(0);
    let top = collector::run_on("top", &session, &["--json"]).success();
    let top: Vec<Value> = top.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (viewer, address) = collector::view(&traces, arguments);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/view.py");
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png"));
    let mut command = Command::new("python3");
    command
        .arg(script)
        .arg(&address)
        .arg(&traces)
        .arg(&picture)
        .arg(viewer.pid().to_string())
        .arg(collector::binary())
        .args(arguments);
    // It ends the viewer, and removes a session.
    let whole = folder.join("whole.printed");
    export(&session, &whole, &[]);
    let diff = compared(&traces);
    let output = command.output();
    let output = output.expect("Python starts");
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stderr), viewer.said());
    let told: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert_eq!((&told["needle"]["start"], &told["needle"]["end"]), (&FAR_NS.into(), &(FAR_NS + 7).into()));
    let shown: Vec<[String; 4]> = told["top"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| [0, 2, 3, 4].map(|cell| row[cell].as_str().expect("text").replace(',', "")))
        .collect();
    let printed: Vec<[String; 4]> = top
        .iter()
        .map(|row| {
            let number = |key: &str| row[key].as_u64().expect("a number");
            let name = row["function"].as_str().expect("a name").to_owned();
            [name, number("count").to_string(), duration(number("total_ns")), duration(number("self_ns"))]
        })
        .collect();
    assert_eq!(shown, printed);
    let same = |a: &Path, b: &Path| fs::read(a).expect("it is there") == fs::read(b).expect("it is there");
    assert!(same(&folder.join("whole.perfetto"), &whole), "what is saved is what the command writes");
    let part = folder.join("part.printed");
    let [from, to] = [0, 1].map(|place| format!("{}ns", told["range"][place].as_u64().expect("a time")));
    export(&session, &part, &["--from", &from, "--to", &to]);
    assert!(same(&folder.join("part.perfetto"), &part), "of the part that is chosen, too");
    let cell = |row: &Value, place: usize| row[place].as_str().expect("text").replace(',', "");
    let shown: Vec<_> =
        told["compared"].as_array().expect("rows").iter().map(|row| (cell(row, 0), cell(row, 6))).collect();
    assert_eq!(shown, diff, "what differs is what the command prints");
    assert_eq!(viewer.exit(Duration::from_secs(10)).code, Some(0), "Ctrl-C ends it well");
}

#[test]
fn a_trace_is_shown_to_this_machine_alone() {
    let folder = Folder::new("view-alone");
    let exit = collector::run_on("view", folder.path(), &["--no-open", "--listen", "0.0.0.0:0"]);
    assert_eq!(exit.code, Some(1), "{}", exit.stderr);
    assert!(exit.stderr.contains("ssh -L"), "it says what to do instead: {}", exit.stderr);
    let nowhere = collector::run_on("view", &folder.join("nowhere"), &["--no-open"]);
    assert!(nowhere.code == Some(1) && nowhere.stderr.contains("is no directory"), "{}", nowhere.stderr);
}
