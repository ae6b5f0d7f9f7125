//! Checking the machine.

use std::net::TcpListener;

use crate::support::{agent, run};

#[test]
fn a_machine_that_can_trace_is_well() {
    let collector = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = collector.local_addr().expect("an address").to_string();
    let ended = run(&mut agent(&["doctor", "--to", &address]));
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    for check in ["system", "memory", "Frida", "library", "start", "ptrace", "code", "native", "injection", "collector"]
    {
        let line = ended.stdout.lines().find(|line| line.split_whitespace().nth(1) == Some(check));
        assert!(line.is_some_and(|line| line.starts_with("ok ") || line.starts_with("note ")), "{check}: {ended:?}");
    }
}

#[test]
fn what_is_wrong_is_told_with_the_remedy() {
    let collector = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = collector.local_addr().expect("an address").to_string();
    drop(collector);
    let ended = run(&mut agent(&["doctor", "--to", &address]));
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    let line = ended.stdout.lines().find(|line| line.contains("collector")).expect("a line");
    assert!(line.starts_with("FAILED") && line.contains("is a collector running there?"), "{line}");
}

#[test]
fn without_frida_it_says_what_is_used_instead() {
    let mut command = agent(&["doctor"]);
    command.env("XDG_DATA_HOME", "/no/such/folder").env("PATH", "/no/such/folder");
    let ended = run(&mut command);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let line = ended.stdout.lines().find(|line| line.split_whitespace().nth(1) == Some("Frida")).expect("a line");
    assert!(line.starts_with("note") && line.contains("`agent setup` installs it"), "{line}");
}

#[test]
fn only_frida_needs_a_file() {
    let nowhere = |args: &[&str]| {
        let mut command = agent(args);
        command.env("XDG_CACHE_HOME", "/proc/nowhere").env("TMPDIR", "/proc/nowhere");
        command
    };
    let ended = run(&mut nowhere(&["doctor"]));
    let line = ended.stdout.lines().find(|line| line.contains("library")).expect("a line");
    assert!(line.starts_with("FAILED") && line.contains("--engine native"), "{line}");
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    for (args, frida) in [(&["doctor"][..], "/no/such/folder"), (&["doctor", "--engine", "native"], "")] {
        let mut command = nowhere(args);
        if !frida.is_empty() {
            command.env("XDG_DATA_HOME", frida).env("PATH", frida);
        }
        let ended = run(&mut command);
        assert_eq!(ended.code(), Some(0), "{ended:?}");
        assert!(ended.stdout.lines().any(|line| line.starts_with("ok      native")), "{ended:?}");
    }
}
