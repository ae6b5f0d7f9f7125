//! A traced program behaves as it does untraced.

use std::{fs::File, process::Command};

use crate::support::{Folder, agent_run, run, run_with, sending};

#[test]
fn the_exit_code_is_passed_on() {
    for code in [0, 1, 7, 126, 255] {
        let ended = run(&mut agent_run(&["sh", "-c", &format!("exit {code}")]));
        assert_eq!(ended.code(), Some(code), "{ended:?}");
    }
}

#[test]
fn death_by_a_signal_is_passed_on() {
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("ABRT", 6), ("PIPE", 13), ("USR1", 10)] {
        let ended = run(&mut agent_run(&["sh", "-c", &format!("kill -{name} $$")]));
        assert_eq!(ended.signal(), Some(number), "{ended:?}");
    }
}

#[test]
fn what_cannot_be_said_changes_nothing() {
    let full = || File::options().write(true).open("/dev/full").expect("Linux has one");
    let status = sending(&["run", "--", "sh", "-c", "exit 7"]).stderr(full()).status().expect("it starts");
    assert_eq!(status.code(), Some(7));
    let status = sending(&["run", "--", "/nowhere/to/be/found"]).stderr(full()).status().expect("it starts");
    assert_eq!(status.code(), Some(127));
}

#[test]
fn input_and_output_are_the_programs_own() {
    static INPUT: [u8; 1 << 20] = [b'x'; 1 << 20];
    let ended = run_with(&mut agent_run(&["cat"]), &INPUT);
    assert_eq!((ended.code(), ended.stdout.len()), (Some(0), INPUT.len()), "{}", ended.stderr);

    let ended = run(&mut agent_run(&["sh", "-c", "echo to stdout; echo to stderr >&2"]));
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("to stdout\n", "to stderr\n"));
}

#[test]
fn arguments_arrive_as_they_are() {
    let ended = run(&mut agent_run(&["printf", "%s|", "a b", "", "--to", "*", "-q"]));
    assert_eq!(ended.stdout, "a b||--to|*|-q|", "{ended:?}");
    let ended = run(&mut agent_run(&["sh", "-c", "echo $0"]));
    assert_eq!(ended.stdout, "sh\n", "its own name is what was typed: {ended:?}");
}

#[test]
fn the_environment_is_as_it_was() {
    let sorted = |text: &str| {
        let mut variables: Vec<String> = text.split('\0').map(String::from).collect();
        variables.sort();
        variables
    };
    for preload in [None, Some("libm.so.6")] {
        let mut traced = agent_run(&["env", "-0"]);
        // What is for the agent is the program's all the same.
        traced.env("SPOOR_TO", "127.0.0.1:1").env("SPOOR_TRANSPORT", "udp");
        let mut plain = Command::new("env");
        plain.arg("-0").envs(traced.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(preload) = preload {
            traced.env("LD_PRELOAD", preload);
            plain.env("LD_PRELOAD", preload);
        }
        assert_eq!(sorted(&run(&mut traced).stdout), sorted(&run(&mut plain).stdout));
    }
}

#[test]
fn scripts_are_run_by_what_they_name() {
    let folder = Folder::new();
    let script = folder.executable("script", "#!/bin/sh\necho script \"$@\"\nexit 4\n");
    let ended = run(&mut agent_run(&[&script, "x"]));
    assert_eq!((ended.code(), ended.stdout.as_str()), (Some(4), "script x\n"), "{ended:?}");
}

#[test]
fn the_folder_is_the_same() {
    let folder = Folder::new();
    let ended = run(agent_run(&["pwd", "-P"]).current_dir(&folder.0));
    let expected = folder.0.canonicalize().expect("a path");
    assert_eq!(ended.stdout.trim_end(), expected.to_str().expect("text"), "{ended:?}");
}

#[test]
fn what_it_says_goes_to_standard_error() {
    let ended = run(&mut sending(&["run", "--", "true"]));
    assert_eq!((ended.code(), ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
}
