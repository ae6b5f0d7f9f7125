//! What is printed on a terminal fits it, and has colours unless nobody wants them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tests::{Folder, collector, trace::folders};

/// A small session below a folder.
#[track_caller]
fn recorded(folder: &Path) -> PathBuf {
    let packets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/traces/session.heph");
    collector::run_on("ingest", &packets, &["--sink", &collector::disk(folder)]).success();
    folders(folder).remove(0)
}

/// Runs a command on a terminal of so many columns, and returns the lines that it shows.
#[track_caller]
fn shown(columns: u16, colours: bool, arguments: &[&str]) -> Vec<String> {
    const SCRIPT: &str = "import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 40, int(sys.argv[1]), 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
while True:
    try:
        data = os.read(fd, 65536)
    except OSError:
        break
    if not data:
        break
    os.write(1, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT, &columns.to_string()]).arg(collector::binary()).args(arguments);
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    if !colours {
        command.env("NO_COLOR", "1");
    }
    let output = command.output().expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

#[test]
fn lines_fit_the_terminal() {
    let folder = Folder::new("screen");
    let session = recorded(folder.path());
    let session = session.to_str().expect("text");
    for (columns, commands) in
        [(80, &["top", "tree", "spans", "events"][..]), (120, &["top", "tree", "spans", "events"])]
    {
        for command in commands {
            let lines = shown(columns, false, &[command, session]);
            assert!(lines.len() > 1, "{command}");
            for line in &lines {
                assert!(!line.contains('\u{1b}'), "{command}: no colours: {line:?}");
                // What is missing is told in words, before the table.
                let is_sentence = line.contains("events are missing");
                assert!(is_sentence || line.chars().count() <= columns.into(), "{command}: {line:?}");
            }
        }
    }
    let top = shown(80, true, &["top", session]).join("\n");
    assert!(top.contains("\u{1b}[1m"), "{top:?}");
    // A file gets all of it, and plain.
    let file = collector::run_on("top", Path::new(session), &[]).success();
    assert!(file.text().contains("p99") && !file.text().contains('\u{1b}'), "{}", file.text());
}

/// The least important columns go first, and those that a table is sorted by stay.
#[test]
fn names_have_room_on_a_narrow_terminal() {
    let folder = Folder::new("narrow");
    let session = recorded(folder.path());
    let session = session.to_str().expect("text");
    let head = |arguments: &[&str]| {
        let lines = shown(40, false, arguments);
        let head = lines.iter().find(|line| line.contains("function")).cloned().unwrap_or_default();
        let at = head.find("function").unwrap_or(40);
        assert!(at + 16 <= 40, "{arguments:?}: {head:?}");
        assert!(lines.iter().any(|line| line.contains("foo()")), "{arguments:?}: {lines:?}");
        head
    };
    assert!(head(&["top", session]).contains("total"));
    assert!(head(&["top", session, "--sort", "p99"]).contains("p99"));
    let lines = shown(40, false, &["tree", session]);
    let foo = lines.iter().find(|line| line.contains("foo()")).expect("it has room");
    assert!(foo.contains(" %") && !foo.contains("self") && foo.chars().count() <= 40, "{foo:?}");
    let wide = shown(80, false, &["tree", session]);
    assert!(wide.iter().any(|line| line.contains("self") && line.contains("foo()")), "{wide:?}");
}

#[test]
fn the_latest_session_of_a_folder_is_taken() {
    let folder = Folder::new("latest");
    let first = recorded(folder.path());
    let below = first.parent().expect("it is below something");
    let later = below.join("29991231-235959-1");
    fs::rename(recorded(&folder.join("again")), &later).expect("moved");
    let exit = collector::run_on("top", below, &[]).success();
    assert!(exit.stderr.contains("session 29991231-235959-1, the latest of 2"), "{}", exit.stderr);
    assert_eq!(exit.stdout, collector::run_on("top", &later, &[]).success().stdout);
}
