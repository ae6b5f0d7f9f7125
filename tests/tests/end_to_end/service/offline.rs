//! The commands that work on what was recorded.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use serde_json::Value;
use tests::{
    Agent, Collector, Folder, Settings, SmallDisk, Trace, account,
    collector::{disk, run, run_on},
    trace::{folders, indexed},
};

use crate::service::{LONG, eventually, trace, verified};

/// A recorded session: the folder it is in, its directory, and the agent that made it.
fn recorded(name: &str, events: u64) -> (Folder, PathBuf, Agent) {
    let folder = Folder::new(name);
    let collector = Collector::to_disk(folder.path(), &[]);
    let agent = trace(Settings::tcp(collector.tcp(), 1), events);
    collector.stop().success();
    let session = Trace::only(folder.path()).folder;
    (folder, session, agent)
}

/// The lines that `events --json` prints with these arguments.
#[track_caller]
fn events(session: &Path, arguments: &[&str]) -> Vec<Value> {
    let exit = run_on("events", session, &[&["--json"], arguments].concat()).success();
    let lines = exit.text().lines().map(|line| serde_json::from_str::<Value>(line).expect("every line is JSON"));
    lines.filter(|line| line["type"] == "event").collect()
}

/// Changes one byte of a file.
fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).expect("a file");
    bytes[at] ^= 0x10;
    fs::write(file, bytes).expect("room on disk");
}

#[test]
fn info_tells_what_a_session_was() {
    let (_folder, session, agent) = recorded("info", 1_000);
    let text = run_on("info", &session, &[]).success();
    for expected in ["/usr/bin/synthetic", "machine", "1,000", "worker 1"] {
        assert!(text.text().contains(expected), "{expected} in {}", text.text());
    }
    let info = run_on("info", &session, &["--json"]).success();
    let info: Value = serde_json::from_str(info.text()).expect("one object for one session");
    assert_eq!(info["session"], agent.session().to_string());
    assert_eq!(info["process"]["pid"], 4_711);
    assert_eq!(info["threads"].as_array().map(Vec::len), Some(2));
    assert_eq!(info["threads"][0]["written"], 500);
}

#[test]
fn events_prints_every_event_or_those_asked_for() {
    let (_folder, session, agent) = recorded("events", 2_000);
    let made: Vec<_> = agent.program().all_made().map(|(stream, _, made)| (stream, *made)).collect();
    assert_eq!(events(&session, &[]).len(), 2_000);
    assert_eq!(events(&session, &["--thread", "1"]).len(), 1_000);

    let index = agent.program().made(0)[10].function.index();
    let of_function = made.iter().filter(|(_, made)| made.function.index() == index).count();
    let name = format!("function_{index}");
    let printed = events(&session, &["--function", &name]);
    assert_eq!(printed.len(), of_function);
    assert!(printed.iter().all(|event| event.to_string().contains(&name)));

    // From the first of these times to just before the second.
    let between = made.iter().filter(|(_, made)| (100_000..200_000).contains(&made.time_ns)).count();
    assert_eq!(events(&session, &["--from", "100us", "--to", "200us"]).len(), between);
    let both = events(&session, &["--from", "100000ns", "--to", "0.2ms", "--thread", "worker 0"]);
    assert_eq!(both.len(), between / 2);
}

#[test]
fn verify_names_the_file_that_is_damaged() {
    let (_folder, session, _agent) = recorded("verify", 1_000);
    verified(&session);
    for (thread, file, at) in
        [("thread_0", "index.atf", 100), ("thread_1", "detail.atf", 120), ("thread_1", "index.atf", 28)]
    {
        let path = session.join(thread).join(file);
        flip(&path, at);
        let exit = run_on("verify", &session, &[]);
        assert_eq!(exit.code, Some(1), "{thread}/{file}");
        let said = format!("{}{}", exit.text(), exit.stderr);
        assert!(said.contains(thread) && said.contains(file), "{thread}/{file} is named in {said:?}");
        flip(&path, at);
        verified(&session);
    }
}

/// A timestamp and a register that were changed look like any other: only the checksums tell.
#[test]
fn no_command_takes_changed_values_for_what_was_recorded() {
    let (folder, session, _agent) = recorded("changed", 1_000);
    let output = folder.join("out").display().to_string();
    let export: Vec<Vec<&str>> = ["perfetto", "chrome", "folded", "parquet", "heph"]
        .map(|format| vec!["export", "-o", &output, "--format", format])
        .into();
    let commands = [["events"], ["spans"], ["top"], ["tree"], ["stats"]].map(|command| command.to_vec());
    for (thread, file, at) in [("thread_0", "index.atf", 64 + 32 * 7 + 1), ("thread_1", "detail.atf", 64 + 60)] {
        let path = session.join(thread).join(file);
        flip(&path, at);
        for command in commands.iter().chain(&export) {
            let exit = run_on(command[0], &session, &command[1..]);
            assert_eq!(exit.code, Some(1), "{command:?} of {thread}/{file}: {}", exit.stderr);
            assert!(exit.stderr.contains(thread) && exit.stderr.contains("checksum"), "{command:?}: {}", exit.stderr);
        }
        flip(&path, at);
    }
    commands.iter().chain(&export).for_each(|command| _ = run_on(command[0], &session, &command[1..]).success());
}

#[test]
fn verify_holds_the_manifest_against_the_files() {
    let (_folder, session, _agent) = recorded("accounting", 500);
    let path = session.join("manifest.json");
    let manifest = fs::read_to_string(&path).expect("a manifest");
    let mut wrong: Value = serde_json::from_str(&manifest).expect("JSON");
    wrong["threads"][0]["written"] = 249.into();
    wrong["threads"][0]["produced"] = 249.into();
    fs::write(&path, wrong.to_string()).expect("room on disk");
    assert_eq!(run_on("verify", &session, &[]).code, Some(1), "the index has more events than the manifest says");
    fs::write(&path, "{").expect("room on disk");
    let exit = run_on("verify", &session, &[]);
    assert_eq!(exit.code, Some(1));
    assert!(format!("{}{}", exit.text(), exit.stderr).contains("manifest.json"));
}

/// A session whose collector was killed after it had flushed all of it.
fn killed(name: &str, events: u64) -> (Folder, PathBuf, Agent) {
    let folder = Folder::new(name);
    let collector = Collector::to_disk(folder.path(), &[]);
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 2)).expect("it is heard");
    agent.work(events).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    let session = folders(folder.path()).remove(0);
    let flushed = |stream: u32| indexed(&session, stream) >= agent.program().made(stream).len() as u64;
    eventually("all is flushed", || flushed(0) && flushed(1));
    collector.kill();
    (folder, session, agent)
}

#[test]
fn repair_finishes_what_was_killed_and_changes_nothing_after_that() {
    let (_folder, session, agent) = killed("repair", 1_000);
    assert_eq!(run_on("verify", &session, &[]).code, Some(1), "it has no end");
    run_on("repair", &session, &[]).success();
    verified(&session);
    let trace = Trace::read(&session);
    account::complete(&trace, agent.program());
    assert_eq!(trace.manifest.session, Some(agent.session().to_string()));
    let repaired = Folder::contents(&session);
    run_on("repair", &session, &[]).success();
    assert_eq!(Folder::contents(&session), repaired, "repaired once and for all");
}

#[test]
fn repair_keeps_the_whole_events_of_a_file_that_was_cut() {
    let (_folder, session, agent) = killed("cut", 1_000);
    let path = session.join("thread_0/index.atf");
    let mut index = fs::read(&path).expect("an index");
    index.truncate(64 + 32 * 400 - 5);
    fs::write(&path, &index).expect("room on disk");
    run_on("repair", &session, &[]).success();
    verified(&session);
    let trace = Trace::read(&session);
    assert_eq!(trace.threads[&0].len(), 399);
    for (position, (made, event)) in (0..).zip(agent.program().made(0).iter().zip(&trace.threads[&0])) {
        account::same(0, position, made, event);
    }
}

#[test]
fn repair_does_not_hide_damage() {
    let (_folder, session, _agent) = killed("damage", 500);
    let path = session.join("thread_0/index.atf");
    // The kind of an event in the middle.
    flip(&path, 64 + 32 * 100 + 20);
    let before = fs::read(&path).expect("an index");
    assert_eq!(run_on("repair", &session, &[]).code, Some(1));
    assert_eq!(fs::read(&path).expect("an index"), before);
    assert_eq!(run_on("verify", &session, &[]).code, Some(1));
}

#[test]
fn repair_does_not_call_good_what_verify_refuses() {
    let (_folder, session, _agent) = recorded("finished", 1_000);
    let before = Folder::contents(&session);
    run_on("repair", &session, &[]).success();
    assert_eq!(Folder::contents(&session), before, "there was nothing to repair");
    // A machine that lost its power may lose the end of a file that was finished.
    let path = session.join("thread_0/index.atf");
    let mut index = fs::read(&path).expect("an index");
    index.truncate(index.len() - 64 - 32 * 100 - 5);
    fs::write(&path, &index).expect("room on disk");
    assert_eq!(run_on("verify", &session, &[]).code, Some(1), "it has no end");
    let repaired = run_on("repair", &session, &[]).code;
    let good = run_on("verify", &session, &[]).code == Some(0);
    assert_eq!(repaired == Some(0), good, "repair ends with {repaired:?}, and then the trace is good: {good}");
}

#[test]
fn wrong_usage_is_told_apart_from_failure() {
    let wrong: [&[&str]; 7] = [
        &["--no-such-option"],
        &["no-such-command"],
        &["--listen", "nowhere"],
        &["--listen", "127.0.0.1:0", "--sink", "nonsense:there"],
        &["--listen", "127.0.0.1:0", "--session-timeout", "soon"],
        &["verify"],
        &["ingest"],
    ];
    for arguments in wrong {
        let exit = run(arguments);
        assert_eq!(exit.code, Some(2), "{arguments:?}: {}", exit.stderr);
        assert!(!exit.stderr.is_empty() && exit.stdout.is_empty(), "{arguments:?} is explained on stderr");
    }
    let folder = Folder::new("nowhere");
    let (nowhere, sink) = (folder.join("missing"), disk(&folder.join("out")));
    for command in ["verify", "info", "events", "repair", "ingest"] {
        let arguments: &[&str] = if command == "ingest" { &["--sink", &sink] } else { &[] };
        let exit = run_on(command, &nowhere, arguments);
        assert_eq!(exit.code, Some(1), "{command}: {}", exit.stderr);
        assert!(exit.stderr.contains("missing"), "{command} says what it could not read: {}", exit.stderr);
    }
}

#[test]
fn an_address_that_is_taken_is_a_failure_with_advice() {
    let folder = Folder::new("taken");
    let collector = Collector::to_disk(&folder.join("one"), &[]);
    let address = collector.tcp().to_string();
    let sink = disk(&folder.join("two"));
    let exit = run(&["--listen", &address, "--sink", &sink]);
    assert_eq!(exit.code, Some(1));
    assert!(exit.stderr.contains(&address), "{}", exit.stderr);
    collector.stop().success();
}

#[test]
fn an_export_is_written_whole_or_not_at_all() {
    let (folder, session, _) = recorded("export-whole", 20_000);
    let Some(disk) = SmallDisk::new(16) else { return };
    let export =
        |format: &str, to: &Path| run_on("export", &session, &["--format", format, "-o", &to.display().to_string()]);
    let file = disk.path().join("export");
    fs::write(&file, "before").expect("there is room");
    for format in ["parquet", "perfetto", "chrome", "heph"] {
        let exit = export(format, &file);
        assert!(exit.code == Some(1) && exit.stderr.contains("No space left"), "{format}: {}", exit.stderr);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "before", "{format}");
        assert_eq!(fs::read_dir(disk.path()).expect("it is there").count(), 1, "{format}: nothing is left");
    }
    let [whole, link, pipe] = ["whole", "link", "pipe"].map(|name| folder.join(name));
    symlink(&whole, &link).expect("a link");
    fs::write(&whole, "before").expect("there is room");
    export("folded", &link).success();
    let expected = fs::read_to_string(&whole).expect("it is there");
    assert!(link.is_symlink() && expected.contains(';'), "{expected}");
    // What takes it as it comes stays what it is.
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).expect("it is written to")
    });
    export("folded", &pipe).success();
    assert_eq!(reader.join().expect("it ends"), expected);
    assert!(fs::metadata(&pipe).expect("it is there").file_type().is_fifo());
}
