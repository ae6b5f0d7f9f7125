//! Names that only the tools of Swift understand.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use tests::{Folder, collector};

use crate::spans::offline::{Packets, ingested};

/// What is not understood here, and what is.
const SYMBOLS: [&str; 2] = ["$s4main3fooyyxlFSi_Tg5", "$s4main4napsSiyYaF"];

/// Puts a tool that is this script into a folder of its own.
fn tool(folder: &Folder, name: &str, script: &str) -> String {
    let path = folder.join(&format!("{name}-bin"));
    fs::create_dir_all(&path).expect("made");
    let tool = path.join(name);
    fs::write(&tool, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o700)).expect("it is ours");
    format!("{}:/usr/bin:/bin", path.display())
}

#[track_caller]
fn printed(command: &str, session: &Path, options: &[&str], path: &str) -> String {
    let output = Command::new(collector::binary()).arg(command).arg(session).args(options).env("PATH", path).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_tool_is_asked_once_for_what_is_not_understood_here() {
    let (folder, session) = ingested("swift-names", &Packets::with_names(&SYMBOLS));
    let asked = folder.join("asked");
    let script = |checks: &str| {
        format!(
            "{checks} tee -a {} | sed 's/^{}$/specialized Main.main()/'",
            asked.display(),
            r"\$s4main3fooyyxlFSi_Tg5"
        )
    };
    for (name, checks) in [("swift-demangle", ""), ("swift", "[ \"$1\" = demangle ] || exit 1;")] {
        let path = tool(&folder, name, &script(checks));
        for (command, options) in [("top", &[][..]), ("tree", &[]), ("spans", &[]), ("events", &[])] {
            let _ = fs::remove_file(&asked);
            let text = printed(command, &session, options, &path);
            assert!(
                text.contains("specialized Main.main()") && text.contains("main.naps()"),
                "{name}, {command}: {text}"
            );
            let asked = fs::read_to_string(&asked).expect("it was asked");
            assert_eq!(asked, format!("{}\n", SYMBOLS[0]), "{command}");
        }
        let file = folder.join("folded");
        printed("export", &session, &["--format", "folded", "-o", file.to_str().expect("text")], &path);
        assert!(fs::read_to_string(file).expect("written").contains("specialized Main.main()"), "{name}");
    }
    // Where there is none, it is as it is.
    let text = printed("top", &session, &[], "/nowhere");
    assert!(text.contains(SYMBOLS[0]) && text.contains("main.naps()"), "{text}");
}
