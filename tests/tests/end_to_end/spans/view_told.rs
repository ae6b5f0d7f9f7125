//! What the viewer's server answers is what commands print.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

use codec::{
    EventKind, FunctionId, LevelKind, SessionNs, StreamId,
    profile::{Counted, CountedCalls, LevelChange, Levels},
};
use serde_json::Value;
use tests::{
    Folder, collector,
    process::Process,
    random::Random,
    wait::{LONG, answer},
};

use crate::spans::view::{FUNCTIONS, MODULE, described, export};

/// A viewer, and what it is asked with.
struct Viewer {
    process: Process,
    host: String,
    head: String,
}

impl Viewer {
    fn start(folder: &Path) -> Self {
        let (process, address) = collector::view::<&str>(folder, &[]);
        let (host, token) = address["http://".len()..].split_once("/#token=").expect("a token");
        let port = host.rsplit(':').next().expect("a port");
        let head = format!("host: {host}\r\ncookie: spoor-{port}={token}\r\n\r\n");
        Self { process, host: host.into(), head }
    }

    /// Asks, and reads no more than the status. Answers end with the connection.
    fn ask(&self, path: &str) -> (u16, String, TcpStream) {
        let mut stream = TcpStream::connect(&self.host).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        stream.write_all(format!("GET {path} HTTP/1.0\r\n{}", self.head).as_bytes()).expect("it is heard");
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), head, stream)
    }

    /// Everything, unless something is being made, or too many ask.
    fn ready(&self, path: &str) -> Option<Vec<u8>> {
        let (status, _, mut stream) = self.ask(path);
        let mut body = Vec::new();
        stream.read_to_end(&mut body).expect("all of it");
        assert!(status == 200 || status == 503, "{path}: {status} {}", String::from_utf8_lossy(&body));
        (status == 200).then_some(body)
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        answer(path, || self.ready(path))
    }

    /// Asks again while something is being made.
    fn json(&self, path: &str) -> Value {
        answer(path, || {
            let value: Value = serde_json::from_slice(&self.ready(path)?).expect("JSON");
            value["estimating"].is_null().then_some(value)
        })
    }
}

/// A session in which `needle` was followed in bursts, `<img…` only counted, `routine` off for a while, and some calls of `work`
/// were too brief. Calls take so many nanoseconds more.
fn turned_down(id: &str, more: u64) -> Vec<u8> {
    let mut packets = described(id);
    let id = |index| FunctionId::new(MODULE, index);
    let change = |index, at, level| LevelChange { function: id(index), at: SessionNs(at), level };
    let changes = [
        change(2, 30_000, LevelKind::Counted),
        change(2, 60_000, LevelKind::Full),
        change(2, 90_000, LevelKind::Counted),
        change(3, 0, LevelKind::Counted),
        change(4, 50_000, LevelKind::Off),
        change(4, 80_000, LevelKind::Full),
        // This one was turned down when all was over.
        change(0, 1_000_000, LevelKind::Counted),
    ];
    packets.say(Levels { changes: changes.as_slice().into() });
    packets.event(0, EventKind::Call, 0, 1_000, 1_000, 0);
    for number in 0..80_u64 {
        let start = 2_000 + number * 1_200;
        packets.event(0, EventKind::Call, 1, start, start, 1);
        if start < 30_000 || (60_000..90_000).contains(&start) {
            packets.call(0, 2, start + 100, start + 200 + number % 7 * 9 + more, 2);
        }
        packets.event(0, EventKind::Return, 1, start, start + 700 + number % 11 * 13 + more / 2, 1);
    }
    packets.event(0, EventKind::Return, 0, 1_000, 200_000, 0);
    for start in [10_000, 20_000, 85_000] {
        packets.call(1, 4, start, start + 3_000 + more, 0);
    }
    let calls = |index, count, brief| CountedCalls { function: id(index), count, brief, brief_ns: brief * 70 };
    let of_main = [calls(2, 4_321 + more, 0), calls(3, 77, 0), calls(1, 0, 5)];
    packets.say(Counted { stream: StreamId(0), calls: of_main.as_slice().into() });
    packets.say(Counted { stream: StreamId(1), calls: [calls(2, 9, 0), calls(4, 6, 0)].as_slice().into() });
    packets.end(200_000);
    packets.bytes
}

fn sessions(folder: &Folder) -> Vec<PathBuf> {
    let traces = folder.join("traces");
    for (id, more) in [("0123456789abcdef0123456789abcdef", 0), ("1123456789abcdef0123456789abcdef", 260)] {
        let file = folder.join(id);
        fs::write(&file, turned_down(id, more)).expect("there is room");
        collector::run_on("ingest", &file, &["--sink", &collector::disk(&traces)]).success();
    }
    tests::trace::folders(&traces)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn name_of(session: &Path) -> &str {
    session.file_name().and_then(|name| name.to_str()).expect("a name")
}

#[test]
fn functions_that_were_turned_down_have_all_their_calls() {
    const SAME: [&str; 15] = [
        "function",
        "symbol",
        "module",
        "source",
        "count",
        "counted",
        "brief",
        "brief_ns",
        "total_ns",
        "self_ns",
        "max_ns",
        "untimed",
        "unsure_ns",
        "was_off",
        "self_has_turned_down",
    ];
    let folder = Folder::new("view-told");
    let session = sessions(&folder).remove(0);
    let viewer = Viewer::start(&folder.join("traces"));
    let ways: [(&str, &[&str]); 5] = [
        ("", &[]),
        ("&sort=count", &["--sort", "count"]),
        ("&sort=self", &["--sort", "self"]),
        ("&sort=max", &["--sort", "max"]),
        ("&from=25000&to=70000", &["--from", "25000ns", "--to", "70000ns"]),
    ];
    for (asked, options) in ways {
        let shown = viewer.json(&format!("/api/s/{}/top?limit=1000{asked}", name_of(&session)));
        let shown = shown["rows"].as_array().expect("rows");
        let printed = lines(collector::run_on("top", &session, &[&["--json"], options].concat()).success().text());
        assert_eq!((shown.len(), printed.len()), (5, 5), "{asked}: {shown:?} {printed:?}");
        for (shown, printed) in shown.iter().zip(&printed) {
            for key in SAME {
                assert_eq!(shown[key], printed[key], "{asked}: {key} of {shown} {printed}");
            }
            let in_part = shown["down"] == true;
            for key in ["estimated_total_ns", "estimated_total_error_ns"].into_iter().filter(|_| in_part) {
                assert_eq!(shown[key], printed[key], "{asked}: {key} of {shown} {printed}");
            }
            let all = ["count", "counted", "brief"].iter().filter_map(|key| printed[*key].as_u64()).sum::<u64>();
            assert_eq!(shown["calls"], all);
        }
        let bound =
            |name: &str| shown.iter().find(|row| row["function"] == name).expect("it is there")["bound"].clone();
        let is_part = asked.contains("from");
        let said = [FUNCTIONS[2], FUNCTIONS[3], FUNCTIONS[4], "main"].map(bound);
        assert_eq!(said, if is_part { ["≤", "≤", "~", ""] } else { ["", "", "≥", ""] }, "{asked}");
        let is_down = |row: &&Value| row["down"] == true;
        assert_eq!(shown.iter().filter(is_down).count(), 4, "all calls of `main` were followed: {shown:?}");
    }
}

/// A session of two threads that call at random. Of so many events one is lost.
fn lossy(id: &str, random: &mut Random, loss: u64) -> Vec<u8> {
    let mut packets = described(id);
    let mut now = 1_000;
    let mut stacks: [Vec<(u32, u64)>; 2] = Default::default();
    for _ in 0..6_000 {
        now += 1 + random.below(30);
        let stream = random.below(2) as u32;
        let stack = &mut stacks[stream as usize];
        let is_lost = random.below(loss) == 0;
        if is_lost {
            packets.lose(stream);
        }
        if stack.len() < 2 || stack.len() < 8 && random.below(2) == 0 {
            let (function, depth) = (random.below(5) as u32, stack.len() as u32);
            stack.push((function, now));
            if !is_lost {
                packets.event(stream, EventKind::Call, function, now, now, depth);
            }
        } else if let Some((function, start)) = stack.pop().filter(|_| !is_lost) {
            packets.event(stream, EventKind::Return, function, start, now, stack.len() as u32);
        }
    }
    packets.end(now);
    packets.bytes
}

#[test]
fn parts_of_the_time_are_what_the_command_prints_where_events_are_missing() {
    const SAME: [&str; 7] = ["function", "count", "total_ns", "self_ns", "max_ns", "untimed", "unsure_ns"];
    let folder = Folder::new("view-lossy");
    let traces = folder.join("traces");
    let mut random = Random::new(5);
    for (number, loss) in [(0, 20), (1, 300), (2, 2_000)] {
        let id = format!("{number}123456789abcdef0123456789abcdef");
        fs::write(folder.join(&id), lossy(&id, &mut random, loss)).expect("there is room");
        collector::run_on("ingest", &folder.join(&id), &["--sink", &collector::disk(&traces)]).success();
    }
    let viewer = Viewer::start(&traces);
    for session in tests::trace::folders(&traces) {
        for _ in 0..12 {
            let from = random.below(90_000);
            let to = from + 1 + random.below(90_000);
            let asked = format!("/api/s/{}/top?limit=1000&from={from}&to={to}", name_of(&session));
            let shown = viewer.json(&asked);
            let shown = shown["rows"].as_array().expect("rows");
            let (from, to) = (format!("{from}ns"), format!("{to}ns"));
            let printed = collector::run_on("top", &session, &["--json", "--from", &from, "--to", &to]).success();
            let printed = lines(printed.text());
            assert_eq!(shown.len(), printed.len(), "{asked}");
            for (shown, printed) in shown.iter().zip(&printed) {
                for key in SAME {
                    assert_eq!(shown[key], printed[key], "{asked}: {key} of {shown} {printed}");
                }
            }
        }
    }
}

#[test]
fn differences_are_those_that_the_command_prints() {
    let folder = Folder::new("view-diff");
    let sessions = sessions(&folder);
    let [a, b] = [&sessions[0], &sessions[1]];
    let viewer = Viewer::start(&folder.join("traces"));
    let paths = [a.to_str().expect("a path"), b.to_str().expect("a path")];
    for sort in ["total", "self", "calls"] {
        for (all, option) in [("", None), ("&all=1", Some("--all"))] {
            let asked = format!("/api/diff?a={}&b={}&sort={sort}{all}", name_of(a), name_of(b));
            let told = viewer.json(&asked);
            let mut arguments = vec!["diff", paths[0], paths[1], "--json", "--sort", sort];
            arguments.extend(option);
            let printed = collector::run(&arguments).success();
            assert_eq!(told["rows"].as_array().expect("rows"), &lines(printed.text()), "{asked}");
            assert!(!printed.text().is_empty() && told["of"] == 5, "{told}");
            let warnings = told["warnings"].to_string();
            assert!(
                warnings.contains("A: ") && warnings.contains("B: ") && warnings.contains("turned down"),
                "{warnings}"
            );
        }
    }
    assert_eq!(viewer.ask(&format!("/api/diff?a={}&b={}&sort=max", name_of(a), name_of(b))).0, 400);
}

#[test]
fn what_is_saved_is_what_export_writes() {
    let folder = Folder::new("view-save");
    let session = sessions(&folder).remove(0);
    let viewer = Viewer::start(&folder.join("traces"));
    let path = format!("/api/s/{}/perfetto", name_of(&session));
    let ways: [(&str, &[&str]); 7] = [
        ("", &[]),
        ("?from=25000&to=70000&function=*e*", &["--from", "25000ns", "--to", "70000ns", "--function", "*e*"]),
        ("?from=25000&to=70000", &["--from", "25000ns", "--to", "70000ns"]),
        ("?thread=worker", &["--thread", "worker"]),
        ("?module=*demo*", &["--module", "*demo*"]),
        ("?min_duration=750&depth=2", &["--min-duration", "750ns", "--depth", "2"]),
        ("?from=1000000", &["--from", "1ms"]),
    ];
    let mut sizes = Vec::new();
    for (asked, options) in ways {
        let file = folder.join("printed");
        export(&session, &file, options);
        let printed = fs::read(&file).expect("it is there");
        let saved = viewer.bytes(&format!("{path}{asked}"));
        let place = saved.iter().zip(&printed).position(|(a, b)| a != b);
        assert!(saved == printed, "{asked}: {} and {} bytes differ at {place:?}", saved.len(), printed.len());
        sizes.push(printed.len());
    }
    assert!(sizes[1] < sizes[0] && sizes[2] < sizes[0] && sizes[3] < sizes[0], "a part is less than all: {sizes:?}");
    let (_, head, _) = viewer.ask(&path);
    assert!(head.contains("content-disposition: attachment; filename=") && head.contains(".perfetto-trace"), "{head}");
    for (asked, status) in [("?thread=nobody", 400), ("?from=9&to=9", 400), ("?depth=x", 400)] {
        assert_eq!(viewer.ask(&format!("{path}{asked}")).0, status, "{asked}");
    }
}

#[test]
fn what_nobody_reads_any_more_is_not_written_and_waits_in_little_room() {
    const CALLS: u64 = 400_000;
    let folder = Folder::new("view-large");
    let mut packets = described("0123456789abcdef0123456789abcdef");
    (0..CALLS).for_each(|number| packets.call(0, 1, number * 100, number * 100 + 40, 0));
    let (file, traces) = (folder.join("packets.heph"), folder.join("traces"));
    fs::write(&file, packets.bytes).expect("there is room");
    collector::run_on("ingest", &file, &["--sink", &collector::disk(&traces)]).success();
    let session = tests::trace::folders(&traces).remove(0);
    let mut viewer = Viewer::start(&traces);
    let path = format!("/api/s/{}/perfetto", name_of(&session));
    let waiting: Vec<_> = (0..4).map(|_| viewer.ask(&path)).collect();
    assert!(waiting.iter().all(|(status, ..)| *status == 200), "four are written at a time");
    assert_eq!(viewer.ask(&path).0, 503, "and not five");
    drop(waiting);
    let whole = answer("others are written when those are not read any more", || viewer.ready(&path));
    assert!(whole.len() > 10 << 20, "it is more than may wait on its way: {} bytes", whole.len());
    let most = viewer.process.peak_bytes();
    assert!(most < 100 << 20, "{most} bytes of memory");
    viewer.process.signal("INT");
    assert_eq!(viewer.process.exit(Duration::from_secs(10)).code, Some(0));
}
