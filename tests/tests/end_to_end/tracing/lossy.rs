//! What is derived from a trace that lost events: each number is right, within its error, or marked.
//!
//! A real program is traced whole into a file of packets, one for each event. Packets are then left out, singly and in
//! bursts, and the rest is made into a session as if it had come like that.

mod pictures;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value as Json;
use tests::{
    Collector, Folder, Process, Random, Target, Transport, agent_command,
    collector::{self, run_on},
    process::Stdout,
    trace::folders,
    traced::LOSSLESS,
};

use self::pictures::Picture;
use crate::tracing::LONG;

/// What packets of events begin with.
const EVENT: [u8; 4] = [0xC1, 0xFC, 0x1F, 0xB7];

/// Traces a program into a file of packets.
#[track_caller]
fn traced(folder: &Folder) -> Vec<u8> {
    agent_command::prepare();
    let file = folder.join("whole.heph");
    let collector =
        Collector::start(&["--listen", "127.0.0.1:0", "--sink", &format!("heph:{}", file.display())], Stdout::Collect);
    let options = [LOSSLESS, &["--no-detail", "--wire", "plain"]].concat();
    let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, &options);
    command.arg(Target::named("plain").program()).arg("300");
    agent_command::private(&mut command);
    let exit = Process::start(command, Stdout::Collect).exit(LONG);
    assert!(exit.stderr.contains("nothing lost"), "{}", exit.stderr);
    collector.stop().success();
    fs::read(file).expect("it was written")
}

/// The packets without so many hundredths of the events, left out in bursts of this length; and how many those are.
fn without(packets: &[u8], percent: u64, burst: u64, random: &mut Random) -> (Vec<u8>, u64) {
    let (mut rest, mut kept, mut left, mut skip) = (packets, Vec::new(), 0, 0);
    // So often that bursts make up their share.
    let begins = 1.0 / (1.0 + burst as f64 * (100 - percent) as f64 / percent as f64);
    while let [a, b, c, d, e, f, g, h, ..] = *rest {
        let (packet, behind) = rest.split_at(u32::from_be_bytes([e, f, g, h]) as usize);
        rest = behind;
        if [a, b, c, d] == EVENT {
            if skip == 0 && random.chance(begins) {
                skip = burst;
            }
            if skip > 0 {
                skip -= 1;
                left += 1;
                continue;
            }
        }
        kept.extend_from_slice(packet);
    }
    (kept, left)
}

/// What the commands say of a session.
struct Derived {
    /// By name and module, which may stand for several functions.
    top: HashMap<String, Vec<Json>>,
    /// Each path of functions: how often and how long.
    tree: BTreeMap<Vec<String>, (u64, u64)>,
    folded: BTreeMap<String, u64>,
    spans: Vec<Json>,
    stats: Json,
    told: String,
    pictures: Vec<Picture>,
}

impl Derived {
    #[track_caller]
    fn of(folder: &Path, packets: &[u8]) -> Self {
        fs::create_dir_all(folder).expect("made");
        let file = folder.join("packets.heph");
        fs::write(&file, packets).expect("written");
        let sink = format!("{},spans=no", collector::disk(&folder.join("session")));
        run_on("ingest", &file, &["--sink", &sink]).success();
        let session: PathBuf = folders(&folder.join("session")).remove(0);
        let lines = |command: &str, options: &[&str]| -> Vec<Json> {
            let exit = run_on(command, &session, options).success();
            exit.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
        };
        let name = |json: &Json| json["function"].as_str().expect("a name").to_owned();
        let top = lines("top", &["--json", "--limit", "1000000"]);
        let mut tree = BTreeMap::new();
        let mut paths: HashMap<u64, Vec<String>> = HashMap::new();
        for node in lines("tree", &["--json", "--min-percent", "0"]) {
            let mut path = node["parent"].as_u64().map_or_else(Vec::new, |parent| paths[&parent].clone());
            path.push(name(&node));
            let (count, total): &mut (u64, u64) = tree.entry(path.clone()).or_default();
            *count += node["count"].as_u64().expect("a number");
            *total += node["total_ns"].as_u64().expect("a number");
            paths.insert(node["node"].as_u64().expect("a number"), path);
        }
        let folded = folder.join("folded");
        run_on("export", &session, &["--format", "folded", "-o", folded.to_str().expect("text")]).success();
        let folded = fs::read_to_string(folded).expect("written");
        let stack =
            |line: &str| line.rsplit_once(' ').map(|(stack, value)| (stack.to_owned(), value.parse().unwrap_or(0)));
        Self {
            top: by_name(top),
            tree,
            folded: folded.lines().filter_map(stack).collect(),
            spans: lines("spans", &["--json", "--kind", "frame"]),
            stats: lines("stats", &["--json"]).remove(0),
            pictures: Picture::all_of(&session, folder),
            told: run_on("top", &session, &[]).success().text().lines().next().unwrap_or_default().to_owned(),
        }
    }
}

fn by_name(rows: Vec<Json>) -> HashMap<String, Vec<Json>> {
    let mut named = HashMap::<_, Vec<_>>::new();
    for row in rows {
        named.entry(row["function"].to_string() + row["module"].as_str().unwrap_or("")).or_default().push(row);
    }
    named
}

#[test]
fn numbers_of_a_trace_that_lost_events_are_right_or_marked() {
    let folder = Folder::new("lossy");
    let packets = traced(&folder);
    let whole = Derived::of(&folder.join("whole"), &packets);
    assert!(!whole.told.contains("missing"), "{}", whole.told);
    let key = |span: &Json| (span["function"].to_string(), span["thread"].to_string(), span["start_ns"].to_string());
    let truth: HashMap<_, _> = whole.spans.iter().map(|span| (key(span), span)).collect();
    let mut random = Random::new(14);
    for (percent, burst) in [(10, 1), (50, 1), (90, 1), (10, 300), (50, 300), (90, 300)] {
        let (rest, left) = without(&packets, percent, burst, &mut random);
        let lossy = Derived::of(&folder.join(&format!("{percent}-{burst}")), &rest);
        let case = format!("{percent} % in bursts of {burst}");
        assert!(left > 0 && lossy.told.contains("are missing"), "{case}: {}", lossy.told);
        assert_eq!(lossy.stats["missing"].as_u64(), Some(left), "{case}");
        // What is lost in bursts says nothing of what is left.
        let share = (burst == 1).then_some(1.0 - percent as f64 / 100.0);
        top_is_true(&case, &lossy, &whole, share);
        tree_is_true(&case, &lossy, &whole);
        for (lossy, whole) in lossy.pictures.iter().zip(&whole.pictures) {
            lossy.is_true(&case, whole, left);
        }
        // Times of stacks are of calls that were made like that, or of nobody knows which.
        for (stack, value) in lossy.folded.iter().filter(|(stack, _)| !stack.contains("(missing)")) {
            let known: u64 =
                whole.folded.iter().filter(|(other, _)| other.starts_with(stack)).map(|(_, value)| value).sum();
            assert!(*value <= known, "{case}: {stack} took {value}, and really {known}");
        }
        // A call of which both ends are there was just like that.
        for span in lossy.spans.iter().filter(|span| span["status"] == "matched") {
            let real = truth.get(&key(span)).unwrap_or_else(|| panic!("{case}: there was no {span}"));
            assert_eq!(
                (&real["duration_ns"], &real["depth"]),
                (&span["duration_ns"], &span["depth"]),
                "{case}: {span}"
            );
        }
    }
}

#[track_caller]
fn top_is_true(case: &str, lossy: &Derived, whole: &Derived, share: Option<f64>) {
    for (name, rows) in &lossy.top {
        let real = whole.top.get(name).unwrap_or_else(|| panic!("{case}: nobody called {name}"));
        // Which is which cannot be told where several have one name.
        let ([row], [real]) = (&rows[..], &real[..]) else { continue };
        let number = |row: &Json, field: &str| row[field].as_u64().expect("a number");
        for field in ["count", "total_ns", "max_ns"] {
            assert!(number(row, field) <= number(real, field), "{case}: {field} of {row} and really {real}");
        }
        let (there, really) = (number(row, "count") as f64, number(real, "count") as f64);
        let estimate = number(row, "estimated_count") as f64;
        assert!(estimate >= there, "{case}: {row}");
        // Six standard deviations of as many calls as there were, of which this share is there.
        let error = share.map(|share| 6.0 * (really * (1.0 - share) / share).sqrt() + 1.0);
        assert!(error.is_none_or(|error| (estimate - really).abs() <= error), "{case}: {row} and really {real}");
    }
}

#[track_caller]
fn tree_is_true(case: &str, lossy: &Derived, whole: &Derived) {
    let is_missing = |name: &String| name.starts_with("(missing)");
    let mut below: HashMap<&[String], u64> = HashMap::new();
    for (path, (_, total)) in &lossy.tree {
        if let Some((_, above)) = path.split_last() {
            *below.entry(above).or_default() += total;
        }
    }
    let paths: HashSet<&Vec<String>> = whole.tree.keys().collect();
    for (path, (count, total)) in lossy.tree.iter().filter(|(path, _)| !path.iter().any(is_missing)) {
        assert!(paths.contains(path), "{case}: nobody was called like {path:?}");
        let (known, took) = whole.tree[path];
        assert!(*count <= known && *total <= took, "{case}: {path:?} {count} {total}, and really {known} {took}");
        let called = below.get(path.as_slice()).copied().unwrap_or(0);
        assert!(called <= *total, "{case}: what {path:?} called took {called} of its {total}");
    }
}
