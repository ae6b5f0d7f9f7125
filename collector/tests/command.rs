//! What the command says of itself.

use std::{
    io,
    process::{Command, Output},
};

fn collector(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_collector"));
    command.args(arguments);
    command
}

/// What it prints.
fn text(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = collector(arguments).output().expect("it starts");
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("it is text")
}

#[test]
fn help_man_page_and_completions_print() {
    let help = text(&["--help"]);
    assert!(help.contains("--listen") && help.contains("--sink"));
    for command in ["spans", "top", "tree", "stats", "export"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} in {help}");
        text(&[command, "--help"]);
    }
    assert!(text(&["--version"]).contains(env!("CARGO_PKG_VERSION")));
    let man = text(&["man"]);
    assert!(man.starts_with('.') && man.contains("listen"), "it is a man page");
    assert!(man.contains("COLLECTOR EXPORT"));
    for shell in ["bash", "zsh", "fish"] {
        let completions = text(&["completions", shell]);
        assert!(completions.contains("--listen") || completions.contains("-l listen"), "{shell}");
    }
}

/// Whoever reads what is wrong may be gone.
#[test]
fn an_error_that_nobody_reads_has_the_same_code() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let status = collector(&["verify", "/nowhere"]).stderr(writer).status().expect("it starts");
    assert_eq!(status.code(), Some(1));
}
