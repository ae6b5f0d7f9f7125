//! Symbols of Swift that only its own tools understand, read by those where they are there.
//!
//! Only commands that somebody runs on a trace ask them. A running collector starts no programs for what it receives.

use std::{
    collections::HashMap,
    ffi::OsStr,
    io::{self, Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use sinks::demangle;

/// What symbols stand for.
pub(super) type Readings = HashMap<Box<str>, Box<str>>;

/// The tool, and what may have it.
const TOOLS: [(&str, &[&str]); 2] = [("swift-demangle", &[]), ("swift", &["demangle"])];

/// How long it may take for all symbols of a trace.
const PATIENCE: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(2);

/// The most that is asked, and that is believed of one symbol.
const MOST_SYMBOLS: usize = 1 << 18;
const MOST_NAME_BYTES: usize = 4096;

/// What those of the symbols stand for that Swift made and that are not understood here.
pub(super) fn read<'a>(symbols: impl Iterator<Item = &'a str>) -> Readings {
    let mut unread: Vec<&str> = symbols.filter(|symbol| is_swift(symbol) && demangle(symbol).is_none()).collect();
    unread.sort_unstable();
    unread.dedup();
    unread.truncate(MOST_SYMBOLS);
    if unread.is_empty() {
        return Readings::new();
    }
    let asked = TOOLS.iter().find_map(|(tool, arguments)| ask(tool.as_ref(), arguments, &unread, PATIENCE));
    asked.unwrap_or_default()
}

/// Whether it is a symbol of Swift that can stand on a line of its own.
fn is_swift(symbol: &str) -> bool {
    let starts = ["$s", "$S", "_$s", "_$S"].iter().any(|start| symbol.starts_with(start));
    starts && symbol.len() <= MOST_NAME_BYTES && symbol.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Asks a tool for all of them at once. Nothing, where there is no such tool; what it fails at is left as it is.
fn ask(tool: &OsStr, arguments: &[&str], symbols: &[&str], patience: Duration) -> Option<Readings> {
    let mut command = Command::new(tool);
    command.args(arguments).args(["--compact", "--simplified"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let text = match child {
        Ok(child) => talk(child, symbols.join("\n") + "\n", patience).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(_) => String::new(),
    };
    let names: Vec<&str> = text.lines().collect();
    if names.len() != symbols.len() {
        return Some(Readings::new());
    }
    let is_name =
        |(symbol, name): &(&&str, &str)| **symbol != *name && !name.is_empty() && name.len() <= MOST_NAME_BYTES;
    let read = symbols.iter().zip(names).filter(is_name);
    Some(read.map(|(symbol, name)| ((*symbol).into(), name.into())).collect())
}

/// Gives a program its input, and returns what it says, if it ends well and in time. It is gone then.
fn talk(mut child: Child, input: String, patience: Duration) -> Option<String> {
    let deadline = Instant::now() + patience;
    let (mut stdin, mut stdout) = (child.stdin.take()?, child.stdout.take()?);
    let (to, said) = mpsc::channel();
    // Both end with the program, at the latest.
    let wrote = thread::Builder::new().spawn(move || stdin.write_all(input.as_bytes()));
    let read = thread::Builder::new().spawn(move || {
        let mut text = String::new();
        let _ = to.send(stdout.read_to_string(&mut text).is_ok().then_some(text));
    });
    let text = said.recv_timeout(patience).ok().flatten().filter(|_| wrote.is_ok() && read.is_ok());
    while text.is_some() && Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return text.filter(|_| status.success()),
            Ok(None) => thread::sleep(GLANCE),
            Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, fs, os::unix::fs::PermissionsExt, path::PathBuf};

    use super::*;

    /// A tool that is this script.
    fn tool(name: &str, script: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("spoor-{name}-{}", std::process::id()));
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it is ours");
        path
    }

    #[track_caller]
    fn asked(name: &str, script: &str, symbols: &[&str]) -> Readings {
        let path: OsString = tool(name, script).into();
        let read = ask(&path, &[], symbols, Duration::from_millis(500)).expect("it is there");
        fs::remove_file(path).expect("it is there");
        read
    }

    #[test]
    fn a_tool_reads_what_it_can() {
        let read = asked("reads", r"sed 's/^\$sone$/one()/'", &["$sone", "$stwo"]);
        assert_eq!(read, Readings::from([("$sone".into(), "one()".into())]));
        let many: Vec<String> = (0..50_000).map(|number| format!("$s{number:060}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(asked("many", r"sed 's/^\$s/f/'", &many).len(), many.len(), "more than a pipe holds");
    }

    #[test]
    fn a_tool_that_fails_costs_names_and_no_time() {
        for (name, script) in [
            ("fails", r"sed 's/^\$s/f/'; exit 1"),
            ("ends", "exit 0"),
            ("babbles", "cat; echo more"),
            ("hangs", "exec sleep 60"),
            ("is-deaf", "echo one; echo two; exec sleep 60 >/dev/null"),
        ] {
            let begun = Instant::now();
            assert_eq!(asked(name, script, &["$sone", "$stwo"]), Readings::new(), "{name}");
            assert!(begun.elapsed() < Duration::from_secs(10), "{name}");
        }
        assert_eq!(ask("/no/such/tool".as_ref(), &[], &["$sone"], PATIENCE), None);
    }

    #[test]
    fn only_what_is_not_understood_here_is_asked_for() {
        assert!(is_swift("$s4main4MainVAAyyYaFZTf4d_n") && !is_swift("main") && !is_swift("$s\nx") && !is_swift("$sé"));
        assert_eq!(read(["main", "$s4main4napsSiyYaF"].into_iter()), Readings::new());
    }
}
