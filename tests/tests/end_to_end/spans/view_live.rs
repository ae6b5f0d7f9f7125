//! A program that is being recorded, in a real browser. Without Chromium the test says so and is over; with
//! `SPOOR_REQUIRE_PROGRAMS=1` it fails.

use std::process::Command;

use serde_json::Value;
use tests::{Collector, Target, Transport, agent_command};

use crate::spans::viewer::has_browser;

#[test]
fn a_page_follows_a_program_that_is_recorded() {
    if !has_browser() {
        return;
    }
    let (_folder, collector) = Collector::in_folder("view-live", &["--ui", "127.0.0.1:0"]);
    let line = collector.wait_for("viewer http://");
    let address = line["viewer ".len()..].trim();
    let command = |target: &str, more: &[&str]| {
        let options = [&["--engine", "native", "--no-detail"], more].concat();
        let mut command = agent_command::run_to(collector.address(Transport::Tcp), Transport::Tcp, &options);
        command.arg(Target::named(target).program());
        command
    };
    let (follow, threads) = (
        command("stdin_echo", &["--only", "main", "--only", "echoes"]),
        command("pthreads", &["--only", "module:pthreads"]),
    );
    let mut script = Command::new("python3");
    script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/live.py")).arg(address);
    script.arg(follow.get_program()).args(follow.get_args());
    script.arg("----").arg(threads.get_program()).args(threads.get_args());
    for (key, value) in follow.get_envs() {
        value.map(|value| script.env(key, value));
    }
    let output = script.output().expect("Python starts");
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stderr), collector.said());
    let told: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    println!("seconds behind: {}", told["behind"]);
    assert_eq!(told["shown"], 600, "every call is shown in the end");
    collector.stop().success();
}
