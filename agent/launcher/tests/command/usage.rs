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
fn the_environment_says_what_the_command_line_does_not() {
    let pin = format!("sha256:{}", "ab".repeat(32));
    let said = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = agent(&[&["run", "--engine", "native"], args, &["--", "true"]].concat());
        let ended = run(command.envs(variables.iter().copied()));
        (ended.code(), ended.stderr)
    };
    // Nobody listens there, which tells what was asked for.
    let (to, unused) = (("SPOOR_TO", "127.0.0.1:1"), ("SPOOR_TLS_CA", "/no/such/file"));
    for (variables, args, expected) in [
        (&[to, ("SPOOR_TRANSPORT", "tcp")][..], &[][..], "nobody listens at 127.0.0.1:1 for TCP"),
        (&[to], &["--to", "127.0.0.1:2", "--transport", "tcp"], "nobody listens at 127.0.0.1:2 for TCP"),
        (&[to, ("SPOOR_TRANSPORT", "udp")], &["--transport=tcp"], "nobody listens at 127.0.0.1:1 for TCP"),
        (&[to, ("SPOOR_TLS_PIN", &pin)], &["--transport", "tcp"], "nobody listens at 127.0.0.1:1 for TLS"),
        (&[to, unused], &["--transport", "tcp", "--tls-pin", &pin], "nobody listens at 127.0.0.1:1 for TLS"),
        (&[to, unused], &["--transport", "tcp"], "/no/such/file"),
        (&[to, ("SPOOR_TOKEN_FILE", "/no/token")], &["--transport", "tcp", "--tls-pin", &pin], "/no/token"),
    ] {
        let (_, stderr) = said(variables, args);
        assert!(stderr.contains(expected), "{variables:?} {args:?}: {stderr}");
    }
    for (variables, expected) in [
        (&[("SPOOR_TO", "somewhere")][..], "tip: the value is that of the environment variable SPOOR_TO"),
        (&[("SPOOR_TRANSPORT", "pigeon")], "tip: the value is that of the environment variable SPOOR_TRANSPORT"),
        (&[("SPOOR_TLS_PIN", "sha1:00")], "tip: the value is that of the environment variable SPOOR_TLS_PIN"),
        (&[("SPOOR_TLS_PIN", &pin), unused], "SPOOR_TLS_PIN and SPOOR_TLS_CA cannot both be set"),
    ] {
        let (code, stderr) = said(variables, &[]);
        assert!(code == Some(2) && stderr.contains(expected), "{variables:?}: {stderr}");
    }
    let (code, stderr) = said(&[("SPOOR_TO", "somewhere")], &["--to", "elsewhere"]);
    assert!(code == Some(2) && stderr.contains("'elsewhere'") && !stderr.contains("SPOOR_TO"), "{stderr}");
    let (code, stderr) = said(&[], &["--tls-pin", &pin, "--tls-ca", "/no/such/file"]);
    assert!(code == Some(2) && stderr.contains("--tls-pin cannot be used with --tls-ca"), "{stderr}");
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
