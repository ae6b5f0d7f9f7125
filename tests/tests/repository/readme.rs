//! The commands in the README do what it says they do.

use std::process::Command;

use tests::process::as_outside;

use crate::{root, text, tree::files};

/// A command of the README and what it says that prints.
struct Shown {
    command: String,
    output: String,
}

fn shown() -> Vec<Shown> {
    let readme = text("README.md");
    let mut shown: Vec<Shown> = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, line) => match (line.strip_prefix("$ "), shown.last_mut()) {
                (Some(command), _) => shown.push(Shown { command: command.into(), output: String::new() }),
                (None, Some(last)) => last.output += &format!("{line}\n"),
                (None, None) => panic!("the README shows output before a command"),
            },
            _ => {}
        }
    }
    shown
}

/// The command that runs all tests. It is not run here, since this is one of them.
const TEST_COMMAND: &str = "cargo test --workspace";

#[test]
fn commands_print_what_the_readme_shows() {
    let commands: Vec<_> = shown().into_iter().filter(|shown| shown.command != TEST_COMMAND).collect();
    assert!(commands.len() >= 2, "the README has commands to try");
    for Shown { command, output } in commands {
        let mut shell = Command::new("sh");
        as_outside(&mut shell);
        let ran = shell.arg("-c").arg(&command).current_dir(root()).output().expect("sh runs");
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{command}: {errors}");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), output, "{command}");
    }
}

#[test]
fn ci_runs_the_test_command_of_the_readme() {
    assert!(shown().iter().any(|shown| shown.command == TEST_COMMAND), "the README says how to test");
    let steps = text(".ci/run");
    assert!(steps.lines().any(|line| line == format!("step {TEST_COMMAND}")), ".ci/run runs it");
}

#[test]
fn links_lead_to_files() {
    for document in files().into_iter().filter(|file| file.ends_with(".md")) {
        let text = text(&document);
        let folder = root().join(&document).parent().expect("a folder").to_path_buf();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let local = !link.contains("://");
            assert!(!local || folder.join(link).exists(), "{document} links to {link}");
        }
    }
}
