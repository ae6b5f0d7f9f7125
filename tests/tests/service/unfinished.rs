//! A session that is being written, and one whose collector was killed, are shown as far as they are on disk.

use std::{fs, path::Path};

use serde_json::Value;
use tests::{
    Agent, Collector, Folder, Settings,
    collector::run_on,
    trace::{folders, indexed},
};

use crate::{LONG, eventually};

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
    fs::write(&journal, &bytes).expect("room on disk");

    run_on("repair", &session, &[]).success();
    assert_eq!(json("top", &session, &[]), top, "a repair adds nothing to it");
}

fn is_named(function: &str) -> bool {
    function.starts_with("function_")
}
