//! A session that is being written, and one whose collector was killed, are shown as far as they are on disk.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Command,
};

use codec::profile::EndReason;
use serde_json::Value;
use tests::{
    Agent, Collector, Folder, Settings,
    collector::{binary, run_on},
    process::{Process, Stdout},
    trace::{folders, indexed},
};

use crate::service::{LONG, eventually};

#[track_caller]
fn json(command: &str, session: &Path, arguments: &[&str]) -> Vec<Value> {
    let exit = run_on(command, session, &[&["--json"], arguments].concat()).success();
    exit.text().lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

#[test]
fn names_threads_modules_and_gaps_are_there_before_the_end() {
    let folder = Folder::new("unfinished");
    let collector = Collector::to_disk(folder.path(), &[]);
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 21)).expect("it is heard");
    agent.work(1_000).expect("it is taken");
    agent.drop_events(0, 7, "ring-full");
    agent.work(1_000).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    let session = folders(folder.path()).remove(0);
    eventually("all is flushed", || indexed(&session, 0) + indexed(&session, 1) == 2_000);

    let check = |about: &str| {
        let top = json("top", &session, &[]);
        assert!(!top.is_empty() && top.iter().all(|row| row["function"].as_str().is_some_and(is_named)), "{about}");
        assert!(top.iter().all(|row| row["module"].is_string()), "{about}: {top:?}");
        let stats = json("stats", &session, &[]).remove(0);
        assert_eq!((&stats["missing"], &stats["unfinished"]), (&7.into(), &true.into()), "{about}");
        assert_eq!(stats["gaps"][0]["cause"], "agent:ring-full", "{about}");
        let events = json("events", &session, &["--thread", "worker 1"]);
        assert_eq!(events.len(), 1_000, "{about}: a thread has its name");
        let info = json("info", &session, &[]).remove(0);
        assert_eq!((&info["threads"][0]["written"], &info["threads"][0]["produced"]), (&1_000.into(), &1_007.into()));
        let said = run_on("tree", &session, &["--function", "function_1"]).success();
        assert!(said.stderr.contains("it is not finished") && said.text().contains("function_1"), "{}", said.stderr);
        top
    };
    check("while it is written");
    collector.kill();
    let before = Folder::contents(&session);
    let top = check("after its collector was killed");
    assert_eq!(Folder::contents(&session), before, "looking changes nothing");

    // A half record at the end is what a collector leaves that is killed while it writes.
    let journal = session.join("journal.heph");
    let bytes = fs::read(&journal).expect("it is there");
    let whole = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let half = [&bytes[..whole], &bytes[..20]].concat();
    fs::write(&journal, half).expect("room on disk");
    assert_eq!(check("with half a record"), top);
    // Damage before the end is passed over, and told.
    let mut damaged = bytes.clone();
    damaged[0] ^= 0xff;
    fs::write(&journal, damaged).expect("room on disk");
    let exit = run_on("top", &session, &["--from", "0", "--thread", "0"]).success();
    let told = "names and gaps may be missing";
    assert!(exit.stderr.contains("journal.heph, at byte") && exit.stderr.contains(told), "{}", exit.stderr);
    fs::write(&journal, &bytes).expect("room on disk");

    run_on("repair", &session, &[]).success();
    assert_eq!(json("top", &session, &[]), top, "a repair adds nothing to it");
}

#[test]
fn a_running_session_is_watched_until_it_ends() {
    let folder = Folder::new("live");
    let collector = Collector::to_disk(folder.path(), &[]);
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 22)).expect("it is heard");
    agent.work(1_000).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    let session = folders(folder.path()).remove(0);
    let flushed = |events: u64| indexed(&session, 0) + indexed(&session, 1) == events;
    eventually("all is flushed", || flushed(1_000));
    let watch = |arguments: &[&str], stdout| {
        let mut command = Command::new(binary());
        command.arg("top").arg(folder.path()).args(["--live", "--every", "100ms", "--last", "60s"]).args(arguments);
        Process::start(command, stdout)
    };
    let mut objects = watch(&["--json"], Stdout::Hold);
    let tables = watch(&["--limit", "3", "--sort", "self"], Stdout::Collect);
    let printed = BufReader::new(objects.take_stdout().expect("a pipe")).lines();
    let mut printed =
        printed.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("every line is JSON"));
    let mut lines = Vec::new();
    let mut look = |events: u64, times: usize| {
        let mut seen = 0;
        while seen < times {
            let line = printed.next().expect("it goes on");
            seen += usize::from(line["function"].is_null() && line["events"] == events);
            lines.push(line);
        }
    };
    look(1_000, 5);
    agent.drop_events(0, 7, "ring-full");
    agent.work(1_000).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    eventually("all is flushed", || flushed(2_000));
    look(2_000, 1);
    agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
    lines.extend(printed);
    let (objects, tables) = (objects.exit(LONG).success(), tables.exit(LONG).success());
    collector.stop().success();

    let looks: Vec<_> = lines.iter().filter(|line| line["function"].is_null()).collect();
    assert!(looks.len() > 5, "{looks:?}");
    assert_eq!(looks[0]["events"], 1_000);
    let last = looks[looks.len() - 1];
    assert_eq!((&last["events"], &last["missing"], &last["ended"]), (&2_000.into(), &7.into(), &"exited".into()));
    let rows: Vec<_> = lines.iter().rev().take_while(|line| line["function"].is_string()).collect();
    assert!(rows.iter().all(|row| row["function"].as_str().is_some_and(is_named)), "{rows:?}");
    let calls: u64 = rows.iter().filter_map(|row| row["calls"].as_u64()).sum();
    assert!((900..=1_100).contains(&calls), "about half of the events: {calls}");
    for exit in [&objects, &tables] {
        assert!(exit.stderr.contains("the session has ended (exited)"), "{}", exit.stderr);
    }
    assert!(
        tables.text().contains("events/s") && tables.text().contains("7 events missing, 7 of them"),
        "{}",
        tables.text()
    );
    let wrong = run_on("top", &session, &["--live", "--from", "1s"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
}

fn is_named(function: &str) -> bool {
    function.starts_with("function_")
}
