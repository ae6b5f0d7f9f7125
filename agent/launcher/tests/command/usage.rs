//! Wrong usage, and what is made from the flags.

use crate::support::{agent, run};

#[test]
fn wrong_usage_is_told_and_exits_with_2() {
    for (args, said) in [
        (&["run"][..], "<PROGRAM>"),
        (&["run", "--stack-bytes", "13", "true"], "expected a multiple of 8 from 0 to 512"),
        (&["run", "--stack-bytes", "520", "true"], "expected a multiple of 8 from 0 to 512"),
        (&["run", "--ring-bytes", "3M", "true"], "expected a power of two"),
        (&["run", "--to", "somewhere", "true"], "expected a host and a port"),
        (&["run", "--to", "::1:7000", "true"], "expected an IPv6 address in brackets"),
        (&["run", "--to", "no-such-host.invalid:7000", "true"], "cannot find the address of no-such-host.invalid"),
        (&["run", "--transport", "pigeon", "true"], "invalid value 'pigeon'"),
        (&["run", "--quiet", "--verbose", "true"], "cannot be used with"),
        (&["attach", "0"], "invalid value '0'"),
        (&["attach", "x"], "invalid value 'x'"),
        (&["frobnicate"], "unrecognized subcommand"),
    ] {
        let ended = run(&mut agent(args));
        assert_eq!(ended.code(), Some(2), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(said), "{args:?}: {ended:?}");
    }
}

#[test]
fn help_completions_and_the_manual_are_there() {
    let help = run(&mut agent(&["--help"]));
    assert!(help.code() == Some(0) && help.stdout.contains("agent attach"), "{help:?}");
    let completions = run(&mut agent(&["completions", "bash"]));
    assert!(completions.code() == Some(0) && completions.stdout.contains("--stack-bytes"), "{completions:?}");
    let manual = run(&mut agent(&["man"]));
    assert!(manual.code() == Some(0) && manual.stdout.contains("AGENT ATTACH"), "{manual:?}");
    assert!(!manual.stdout.contains("AGENT IDLE"), "what is only for the command itself is not told");
}
