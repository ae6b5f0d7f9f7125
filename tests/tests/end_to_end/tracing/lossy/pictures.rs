//! What viewers are shown of a trace that lost events.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value as Json;
use tests::{collector::run_on, python::python_with};

/// Something that a viewer draws.
#[derive(Debug)]
struct Slice {
    category: String,
    name: String,
    /// The thread, by what the export calls it.
    thread: String,
    start: u64,
    duration: u64,
    notes: Json,
}

/// A picture of a session.
#[derive(Debug)]
pub(super) struct Picture {
    format: &'static str,
    slices: Vec<Slice>,
}

impl Picture {
    /// What Chrome's and Perfetto's viewers are given of a session. Without a Python that reads Perfetto's format, that is
    /// left out.
    #[track_caller]
    pub(super) fn all_of(session: &Path, folder: &Path) -> Vec<Self> {
        let export = |format: &str| -> PathBuf {
            let file = folder.join(format);
            run_on("export", session, &["--format", format, "-o", file.to_str().expect("text")]).success();
            file
        };
        let chrome = Self { format: "chrome", slices: of_chrome(&export("chrome")) };
        let perfetto = of_perfetto(&export("perfetto")).map(|slices| Self { format: "perfetto", slices });
        [chrome].into_iter().chain(perfetto).collect()
    }

    fn of(&self, category: &str) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |slice| slice.category == category)
    }

    /// Fails the test unless everything in it is so in the picture of the whole trace, or marked, and what is missing is to
    /// be seen: so many events.
    #[track_caller]
    pub(super) fn is_true(&self, case: &str, whole: &Self, left: u64) {
        let case = format!("{case}, {}", self.format);
        let mut truth: HashMap<_, Vec<u64>> = HashMap::new();
        for slice in whole.of("frame") {
            truth.entry((&slice.name, &slice.thread, slice.start)).or_default().push(slice.duration);
        }
        let mut frames = 0;
        for slice in self.of("frame") {
            frames += 1;
            let real = truth.get(&(&slice.name, &slice.thread, slice.start));
            let real = real.unwrap_or_else(|| panic!("{case}: there was no {slice:?}"));
            let is_marked = slice.notes["status"].as_str().is_some_and(|status| status != "matched");
            let is_so = match is_marked {
                // Of what lacks an end no more is shown than there was.
                true => real.iter().any(|duration| slice.duration <= *duration),
                false => real.contains(&slice.duration),
            };
            assert!(is_so, "{case}: {slice:?}, and really {real:?}");
        }
        assert!(frames > 0, "{case}: something is left");
        let missing: u64 = self.of("gap").map(|gap| gap.notes["count"].as_u64().expect("how many")).sum();
        assert_eq!(missing, left, "{case}: all gaps are marked");
        assert_eq!(whole.of("gap").count(), 0, "nothing is missing from the whole");
    }
}

fn of_chrome(file: &Path) -> Vec<Slice> {
    let events: Json = serde_json::from_slice(&fs::read(file).expect("written")).expect("JSON");
    let nanoseconds = |value: &Json| (value.as_f64().unwrap_or(0.0) * 1000.0).round() as u64;
    let events = events.as_array().expect("a list");
    // Other stacks of a thread have a row of their own.
    let rows = events.iter().filter(|event| event["name"] == "thread_name");
    let rows = rows.map(|row| (row["tid"].as_u64(), row["args"]["name"].as_str().unwrap_or_default()));
    let rows: HashMap<_, _> = rows.map(|(row, name)| (row, name.trim_end_matches(" (other stacks)"))).collect();
    let drawn = events.iter().filter(|event| event["ph"] == "X" || event["ph"] == "i");
    let slice = |event: &Json| Slice {
        category: event["cat"].as_str().unwrap_or_default().into(),
        name: event["name"].as_str().unwrap_or_default().into(),
        thread: rows.get(&event["tid"].as_u64()).copied().unwrap_or_default().into(),
        start: nanoseconds(&event["ts"]),
        duration: nanoseconds(&event["dur"]),
        notes: event["args"].clone(),
    };
    drawn.map(slice).collect()
}

/// By a reader that has Perfetto's own schema.
fn of_perfetto(file: &Path) -> Option<Vec<Slice>> {
    let python = python_with(&["perfetto", "protobuf"])?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/check_perfetto.py");
    let output = Command::new(python).arg(script).arg(file).output().expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let slice = |slice: &Json| Slice {
        category: slice["category"].as_str().unwrap_or_default().into(),
        name: slice["name"].as_str().unwrap_or_default().into(),
        // Other stacks of a thread are below it.
        thread: {
            let mut path = slice["track"].as_array().expect("a path").iter().rev();
            path.find(|track| *track != "other stacks").map_or_else(String::new, Json::to_string)
        },
        start: slice["ts"].as_u64().unwrap_or(0),
        duration: slice["dur"].as_u64().unwrap_or(0),
        notes: slice["args"].clone(),
    };
    Some(trace["slices"].as_array().expect("a list").iter().map(slice).collect())
}
