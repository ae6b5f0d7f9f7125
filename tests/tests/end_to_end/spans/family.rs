//! Processes that made one another: sent by the real shipper, recorded, and shown as one family.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use codec::{
    SessionId, SessionNs,
    profile::{Birth, BirthKind, EndReason},
};
use serde_json::Value;
use tests::{
    Agent, Collector, Folder, Settings, Trace,
    agent::CLOCK_ZERO_NS,
    collector::run_on,
    wait::{LONG, eventually},
};

use crate::spans::perfetto::checked;

/// Made-up programs call `function_2` 3 µs after their start for 1 µs, in `function_1` in `function_0`: this is inside.
const AT: u64 = 3_500;

/// How long after its parent a process starts, and when it calls something first.
const LATER: u64 = 10_000;
const FIRST: u64 = 1_000;

/// The thread that calls it.
const TID: u32 = 1_000;

/// A birth in `function_2` of a parent that has so many processes above it.
fn birth(parent: SessionId, how: BirthKind, above: u64) -> Birth {
    Birth { parent, how, tid: TID, at: SessionNs(above * LATER + AT) }
}

/// Starts a process with one thread, and has it make so many events.
#[track_caller]
fn start(
    collector: &Collector,
    seed: u64,
    pid: u32,
    executable: &'static str,
    birth: Option<Birth>,
    events: u64,
) -> Agent {
    let start_ns = birth.map_or(0, |birth| birth.at.0 - AT + LATER);
    let settings = Settings { pid, executable, birth, start_ns, streams: 1, ..Settings::tcp(collector.tcp(), seed) };
    let mut agent = Agent::start(settings).expect("the collector hears it");
    agent.work(events).expect("the collector takes the events");
    agent
}

#[track_caller]
fn finish(mut agent: Agent, reason: EndReason) -> SessionId {
    agent.finish(reason, LONG).expect("the collector acknowledges all of it");
    agent.session()
}

/// A `make` that forked, and whose child became a compiler.
struct Family {
    folder: Folder,
    make: PathBuf,
    child: PathBuf,
    compiler: PathBuf,
}

#[track_caller]
fn family(name: &str) -> Family {
    let (folder, collector) = Collector::in_folder(name, &[]);
    let make = start(&collector, 1, 4_711, "/usr/bin/make", None, 20);
    let child = start(&collector, 2, 4_712, "/usr/bin/make", Some(birth(make.session(), BirthKind::Forked, 0)), 20);
    let replaced = Some(birth(child.session(), BirthKind::Replaced, 1));
    let compiler = start(&collector, 3, 4_712, "/usr/lib/cc1", replaced, 10);
    let child = finish(child, EndReason::Replaced);
    let compiler = finish(compiler, EndReason::Exited(0));
    let make = finish(make, EndReason::Exited(2));
    collector.stop().success();
    let dir = |session| Trace::of(folder.path(), session).folder;
    Family { make: dir(make), child: dir(child), compiler: dir(compiler), folder }
}

fn name(dir: &Path) -> String {
    dir.file_name().expect("it has a name").to_string_lossy().into_owned()
}

#[track_caller]
fn text(command: &str, dir: &Path, arguments: &[&str]) -> String {
    run_on(command, dir, arguments).success().text().to_owned()
}

#[track_caller]
fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn info_shows_who_made_whom() {
    let Family { folder, make, child, compiler } = family("family-info");
    let listing = text("info", folder.path(), &[]);
    let lines: Vec<_> = listing.lines().collect();
    assert_eq!(lines.len(), 3, "{listing}");
    let [made, later] = ["0.000003500", "0.000013500"].map(|at| format!("by thread {TID} at {at} s"));
    let expected = [
        (format!("make (4711)  {}: 20 events, 1 thread", name(&make)), "exited (2)"),
        (format!("  make (4712)  {}: forked {made}, 20 events", name(&child)), "replaced"),
        (format!("    cc1 (4712, after exec)  {}: replaced {later}, 10 events", name(&compiler)), "exited (0)"),
    ];
    for (line, (start, end)) in lines.iter().zip(&expected) {
        assert!(line.starts_with(start) && line.ends_with(end), "{line}\nnot {start}");
    }
    let of_child = text("info", &child, &[]);
    let parent = format!("  parent     make (4711), {}: forked in function_2 {made}\n", name(&make));
    assert!(of_child.contains(&parent), "{of_child}");
    let grandchild = format!("    cc1 (4712, after exec), {}: replaced in function_2 {later}\n", name(&compiler));
    assert!(of_child.contains("  children   1\n") && of_child.contains(&grandchild), "{of_child}");
    let of_make = text("info", &make, &[]);
    assert!(of_make.contains("  children   1\n") && !of_make.contains("  parent "), "{of_make}");

    let objects = objects(&text("info", folder.path(), &["--json"]));
    assert_eq!(objects[1]["birth"]["parent"], objects[0]["session"]);
    assert_eq!((&objects[1]["birth"]["how"], &objects[1]["birth"]["at_ns"]), (&"forked".into(), &AT.into()));
    assert_eq!(objects[1]["parent_directory"], objects[0]["directory"]);
    assert_eq!(objects[1]["children"], serde_json::json!([objects[2]["directory"]]));
    assert!(objects[0]["birth"].is_null() && objects[2]["children"].is_null());
    let manifest = Trace::read(&child).manifest;
    assert_eq!(manifest.birth.map(|birth| birth.at_ns), Some(CLOCK_ZERO_NS + AT), "by the trace's clock");
}

#[test]
fn sessions_are_listed_by_who_made_them_and_chosen() {
    let Family { folder, make, child, compiler } = family("family-sessions");
    let listing = text("sessions", folder.path(), &[]);
    let lines: Vec<_> = listing.lines().collect();
    assert!(lines.len() == 4 && lines[0].starts_with("start (UTC) ") && lines[0].ends_with("  program"), "{listing}");
    for (line, (dir, program)) in lines[1..].iter().zip([
        (&make, "  /usr/bin/make"),
        (&child, "    /usr/bin/make"),
        (&compiler, "      /usr/lib/cc1"),
    ]) {
        assert!(line.contains(&name(dir)) && line.ends_with(program), "{listing}");
    }
    let chosen = |arguments: &[&str]| {
        let objects = objects(&text("sessions", folder.path(), &[&["--json"], arguments].concat()));
        objects.iter().map(|object| object["session"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let all = [&make, &child, &compiler].map(|dir| name(dir));
    assert_eq!(chosen(&[]), all);
    assert_eq!(chosen(&["--program", "cc?"]), all[2..]);
    assert_eq!(chosen(&["--program", "/usr/bin/*", "--limit", "1"]), all[1..2]);
    let mut largest = chosen(&["--sort", "events", "--limit", "2"]);
    largest.sort();
    assert_eq!(largest, all[..2]);
    assert_eq!(chosen(&["--host", "elsewhere"]), [""; 0]);
    assert_eq!(chosen(&["--since", "1970-01-01", "--until", "9999-12-31T23:59:59Z"]), all);
    assert_eq!(chosen(&["--since", "9999-12-31"]), [""; 0]);
    assert_eq!(chosen(&["--until", "1970-01-01"]), [""; 0]);
    assert_eq!(chosen(&["--lossy"]), [""; 0]);

    let objects = objects(&text("sessions", &child, &["--json"]));
    assert_eq!(objects.len(), 2, "with what came from it");
    assert_eq!((&objects[0]["parent"], &objects[0]["state"]), (&all[0].as_str().into(), &"replaced".into()));
    assert_eq!((&objects[1]["events"], &objects[1]["missing"]), (&10.into(), &0.into()));
    let csv = text("sessions", folder.path(), &["--csv"]);
    assert!(csv.lines().count() == 4 && csv.contains(",/usr/lib/cc1,4712,exited (0),true,"), "{csv}");

    fs::write(make.join("manifest.json"), "{").expect("it can be written to");
    let exit = run_on("sessions", folder.path(), &["--lossy"]);
    assert_eq!(exit.code, Some(1));
    assert!(exit.text().contains(&all[0]) && exit.stderr.contains("manifest.json"), "{}{}", exit.text(), exit.stderr);
    for wrong in ["2026-02-30", "yesterday", "5"] {
        let exit = run_on("sessions", folder.path(), &["--since", wrong]);
        assert!(exit.code == Some(2) && exit.stderr.contains("expected so long ago"), "{}", exit.stderr);
    }
}

#[test]
fn a_tree_has_each_process_below_the_call_that_made_it() {
    let Family { folder, make, child, .. } = family("family-tree");
    let nodes = objects(&text("tree", folder.path(), &["--json"]));
    let by_number: BTreeMap<_, _> = nodes.iter().map(|node| (node["node"].as_u64(), node)).collect();
    assert_eq!(by_number.len(), nodes.len(), "each has a number of its own");
    let path = |node: &Value| {
        let mut path = vec![node["function"].as_str().expect("a name").to_owned()];
        let mut above = by_number.get(&node["parent"].as_u64());
        while let Some(node) = above {
            path.push(node["function"].as_str().expect("a name").to_owned());
            above = by_number.get(&node["parent"].as_u64());
        }
        path.reverse();
        path.join("/")
    };
    let processes: Vec<_> = nodes.iter().filter(|node| node["kind"] == "process").map(path).collect();
    let call = "function_0/function_1/function_2";
    assert_eq!(processes, [format!("{call}/make (4712)"), format!("{call}/make (4712)/{call}/cc1 (4712, after exec)")]);
    // What a process took is its own, whatever it made.
    let own = |nodes: &[Value], session: &Path| -> Vec<_> {
        let is_own =
            |node: &&Value| node["kind"] != "process" && node["session"].as_str().is_none_or(|it| it == name(session));
        let numbers =
            |node: &Value| ["function", "count", "total_ns", "self_ns", "percent"].map(|key| node[key].clone());
        nodes.iter().filter(is_own).map(numbers).collect()
    };
    for session in [&make, &child] {
        let alone = objects(&text("tree", session, &["--json", "--alone"]));
        assert!(alone.iter().all(|node| node["kind"] != "process" && node["session"].is_null()));
        assert!(!alone.is_empty());
        assert_eq!(own(&nodes, session), own(&alone, session));
    }
    let shown = text("tree", folder.path(), &[]);
    let line =
        |what: &str| shown.lines().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {shown}"));
    let forked = line("[process] make (4712)");
    assert_eq!(
        forked,
        shown.lines().position(|line| line.ends_with(" function_2")).expect("it is shown") + 1,
        "{shown}"
    );
    assert!(forked < line("[process] cc1 (4712, after exec)"), "{shown}");
    // A call that took too little to be shown is shown for what it made, and one that is too deep is not.
    assert!(text("tree", &make, &["--min-percent", "100"]).contains("[process] cc1"));
    let shallow = text("tree", &make, &["--depth", "1"]);
    assert!(shallow.contains("[process] make (4712)") && shallow.contains("deeper than what is shown"), "{shallow}");
    assert!(!shallow.contains("function_1"), "{shallow}");
}

#[test]
fn one_process_or_one_time_of_a_family_can_be_asked_for() {
    let Family { folder, make, child, compiler } = family("family-process");
    let nodes = |arguments: &[&str]| objects(&text("tree", folder.path(), &[&["--json"], arguments].concat()));
    let is_process = |node: &&Value| node["kind"] == "process";
    assert_eq!(nodes(&["--process", "4711"]).iter().filter(is_process).count(), 2, "with those that came from it");
    assert_eq!(nodes(&["--process", "4711", "--alone"]).iter().filter(is_process).count(), 0);
    let count = |dir: &Path, arguments: &[&str]| text("events", dir, arguments).lines().count();
    assert_eq!([20, 10, 20], [name(&child).as_str(), "cc1", "make (4712)"].map(|it| count(&make, &["--process", it])));
    let exit = run_on("top", folder.path(), &["--process", "4712"]).success();
    let said = format!("session {}, the latest of 2 that are \"4712\"", name(&compiler));
    assert!(exit.stderr.contains(&said), "{}", exit.stderr);
    // All count from one zero: the compiler runs 20 µs after the first began.
    let late = nodes(&["--from", "20us", "--to", "25us", "--min-percent", "0"]);
    let calls = |session: &Path| {
        let is_call = |node: &&Value| node["kind"] == "frame" && node["session"].as_str() == Some(&*name(session));
        late.iter().filter(is_call).count()
    };
    assert!(calls(&compiler) > 0, "{late:?}");
    assert_eq!(late.iter().filter(is_process).count(), 2, "who made whom is told all the same: {late:?}");
    let named = nodes(&["--function", "function_1"]);
    assert!(named.iter().filter(is_process).count() == 2 && named.iter().any(|node| node["function"] == "function_1"));
}

/// One end of an arrow: its phase and id, process, thread and time.
type ArrowEnd = (String, u64, u64, u64);

/// The processes of a Chrome trace by name, and the ends of its arrows from process to process.
fn read_chrome(file: &Path) -> (BTreeMap<String, u64>, Vec<ArrowEnd>) {
    let events: Vec<Value> = serde_json::from_slice(&fs::read(file).expect("it is there")).expect("JSON");
    let number = |event: &Value, key: &str| event[key].as_u64().expect("a number");
    let named = events.iter().filter(|event| event["name"] == "process_name");
    let names = named.map(|event| (event["args"]["name"].as_str().expect("a name").to_owned(), number(event, "pid")));
    let arrows = events.iter().filter(|event| event["cat"] == "process" && event["ph"] != "i");
    let arrows = arrows.map(|event| {
        let end = format!("{} {}", event["ph"].as_str().expect("a phase"), event["id"].as_str().expect("an id"));
        let at_ns = (event["ts"].as_f64().expect("a time") * 1000.0).round() as u64;
        (end, number(event, "pid"), number(event, "tid"), at_ns)
    });
    (names.collect(), arrows.collect())
}

#[test]
fn an_export_has_the_whole_family_on_one_clock() {
    let Family { folder, make, compiler, .. } = family("family-export");
    let export = |dir: &Path, file: &Path, arguments: &[&str]| {
        let file = file.display().to_string();
        run_on("export", dir, &[&["-o", &file], arguments].concat()).success().stderr
    };
    let file = folder.join("family.json");
    let said = export(folder.path(), &file, &["--format", "chrome"]);
    assert!(said.contains("of 3 processes"), "{said}");
    let (names, arrows) = read_chrome(&file);
    let pids = ["make (4711)", "make (4712)", "cc1 (4712, after exec)"].map(|name| names[name]);
    assert_eq!((names.len(), HashSet::from(pids).len()), (3, 3), "each is a process of its own: {names:?}");
    assert_eq!(pids[..2], [4_711, 4_712]);
    let ends: Vec<_> = arrows.iter().map(|(end, pid, tid, at)| (&end[..1], *pid, *tid, *at)).collect();
    let tid = u64::from(TID);
    let leaves = |above: usize| ("s", pids[above], tid, CLOCK_ZERO_NS + above as u64 * LATER + AT);
    let arrives = |above: usize| ("f", pids[above], tid, CLOCK_ZERO_NS + above as u64 * LATER + FIRST);
    assert_eq!(ends, [leaves(0), leaves(1), arrives(1), arrives(2)]);
    let ids: Vec<_> = arrows.iter().map(|(end, ..)| &end[2..]).collect();
    assert_eq!((ids[0], ids[1]), (ids[2], ids[3]), "an arrow has two ends");
    assert_ne!(ids[0], ids[1]);

    export(&make, &file, &["--format", "chrome", "--alone"]);
    let (names, arrows) = read_chrome(&file);
    assert_eq!(
        (names.into_keys().collect::<Vec<_>>(), arrows.len()),
        (vec!["/usr/bin/make /usr/bin/make --synthetic".into()], 0)
    );
    export(&compiler, &file, &["--format", "chrome"]);
    assert_eq!(read_chrome(&file).1.len(), 0, "its parent is not in the file");
    let said = export(&make, &folder.join("folded"), &["--format", "folded"]);
    assert!(said.contains("are left out"), "{said}");

    let file = folder.join("family.perfetto");
    export(&make, &file, &["--format", "perfetto"]);
    let Some(trace) = checked(&file) else { return };
    let processes = trace["processes"].as_array().expect("processes");
    let named: Vec<_> = processes.iter().map(|process| process[1].as_str().expect("a name")).collect();
    assert_eq!(named, ["make (4711)", "make (4712)", "cc1 (4712, after exec)"]);
    let flows: HashSet<_> = trace["flows"].as_array().expect("flows").iter().map(Value::to_string).collect();
    let flow = |name: &str| format!(r#"["worker 0","{name}","worker 0","process start"]"#);
    assert_eq!(flows, ["fork", "exec"].map(flow).into());
}

#[test]
fn a_parent_that_is_not_there_is_named_and_nothing_fails() {
    let Family { folder, make, child, compiler } = family("family-missing");
    let gone = Trace::read(&make).manifest.session.expect("it has an id");
    fs::remove_dir_all(&make).expect("it was there");
    let listing = text("info", folder.path(), &[]);
    assert!(
        listing.lines().next().is_some_and(|line| line.contains(&format!("its parent {gone} is not here"))),
        "{listing}"
    );
    assert_eq!(listing.lines().count(), 2);
    let of_child = text("info", &child, &[]);
    assert!(
        of_child.contains(&format!("  parent     session {gone}, which is not beside this one: forked by")),
        "{of_child}"
    );
    let verified = text("verify", folder.path(), &[]);
    assert!(
        verified.contains(&format!("{}: note: its parent, session {gone}, is not here", child.display())),
        "{verified}"
    );
    assert_eq!(verified.matches(": note: ").count(), 1, "the other's parent is there: {verified}");
    assert!(!text("verify", &compiler, &[]).contains(": note: "));
    let shown = text("tree", folder.path(), &[]);
    assert!(shown.starts_with("make (4712)") && shown.contains("[process] cc1"), "{shown}");
    let file = folder.join("family.json");
    let name = file.display().to_string();
    run_on("export", folder.path(), &["--format", "chrome", "-o", &name]).success();
    assert_eq!(read_chrome(&file).1.len(), 2, "an arrow that came from nowhere is not drawn");
}

#[test]
fn a_birth_whose_call_was_lost_or_whose_thread_is_not_known_says_so() {
    let (folder, collector) = Collector::in_folder("family-lost", &[]);
    let mut make = start(&collector, 1, 4_711, "/usr/bin/make", None, 2);
    // The call that it was made in, and the end of that.
    make.drop_events(0, 3, "ring-full");
    make.work(10).expect("the collector takes the events");
    let parent = make.session();
    let unknown = Birth { tid: 0, ..birth(parent, BirthKind::Spawned, 0) };
    let stranger = Birth { tid: 77, ..birth(parent, BirthKind::Spawned, 0) };
    for (seed, birth) in [(2, birth(parent, BirthKind::Forked, 0)), (3, unknown), (4, stranger)] {
        let child = start(&collector, seed, 4_710 + seed as u32, "/usr/bin/true", Some(birth), 5);
        finish(child, EndReason::Exited(0));
    }
    finish(make, EndReason::Exited(0));
    collector.stop().success();
    let shown = text("tree", folder.path(), &[]);
    let line = |what: &str| {
        shown.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what} is not shown:\n{shown}"))
    };
    let lost = line("true (4712)");
    assert!(lost.contains("missing"), "{lost}");
    assert!(line("true (4713)").contains("by a thread that is not known"), "{shown}");
    assert!(
        line("true (4714)").contains("by thread 77") && line("true (4714)").contains("not in the trace"),
        "{shown}"
    );
    assert_eq!(shown.matches("[process]").count(), 3);
    let make = Trace::of(folder.path(), parent).folder;
    let info = text("info", &make, &[]);
    assert!(info.contains("forked in a call that is missing by thread 1000"), "{info}");
    text("verify", folder.path(), &[]);
}

#[test]
fn a_family_is_one_while_it_is_written() {
    let (folder, collector) = Collector::in_folder("family-live", &[]);
    let mut make = start(&collector, 1, 4_711, "/usr/bin/make", None, 20);
    let mut child = start(&collector, 2, 4_712, "/usr/bin/sh", Some(birth(make.session(), BirthKind::Forked, 0)), 20);
    [&mut make, &mut child].into_iter().for_each(|agent| agent.settle(LONG).expect("it is taken"));
    eventually("the child is below its parent", || {
        let listing = run_on("info", folder.path(), &[]).text().to_owned();
        listing.lines().any(|line| line.starts_with("  sh (4712)") && line.contains("forked by thread 1000"))
    });
    finish(child, EndReason::Exited(0));
    finish(make, EndReason::Exited(0));
    collector.stop().success();
    text("verify", folder.path(), &[]);
}

#[test]
fn a_hundred_processes_and_one_that_names_itself() {
    let (folder, collector) = Collector::in_folder("family-hundred", &[]);
    let root = start(&collector, 1, 1, "/usr/bin/make", None, 10);
    // A tree in which each process made two.
    let mut sessions = vec![root.session()];
    finish(root, EndReason::Exited(0));
    for number in 1..100 {
        let parent = sessions[(number - 1) / 2];
        let above = u64::from((number + 1).ilog2()) - 1;
        let child = start(
            &collector,
            1 + number as u64,
            1 + number as u32,
            "/usr/bin/sh",
            Some(birth(parent, BirthKind::Forked, above)),
            10,
        );
        sessions.push(child.session());
        finish(child, EndReason::Exited(0));
    }
    let settings =
        Settings { birth: Some(birth(SessionId([9; 16]), BirthKind::Spawned, 0)), ..Settings::tcp(collector.tcp(), 1) };
    let odd = Agent::start(Settings { session: SessionId([9; 16]), ..settings }).expect("the collector hears it");
    finish(odd, EndReason::Exited(0));
    collector.stop().success();
    let listing = text("info", folder.path(), &[]);
    assert_eq!(listing.lines().count(), 101);
    let depth = |line: &str| line.len() - line.trim_start().len();
    assert_eq!(listing.lines().map(depth).max(), Some(2 * 6), "seven generations:\n{listing}");
    assert!(listing.lines().last().is_some_and(|line| line.contains("would be itself")), "{listing}");
    let shown = text("tree", &Trace::of(folder.path(), sessions[0]).folder, &[]);
    assert_eq!(shown.matches("[process]").count(), 99);
    assert!(!text("tree", folder.path(), &[]).contains("[process]"), "the latest is alone");
    let file = folder.join("family.json");
    let name = file.display().to_string();
    let make = Trace::of(folder.path(), sessions[0]).folder;
    run_on("export", &make, &["--format", "chrome", "-o", &name]).success();
    let (names, arrows) = read_chrome(&file);
    assert_eq!((names.len(), arrows.len()), (100, 2 * 99));
    text("verify", folder.path(), &[]);
}
