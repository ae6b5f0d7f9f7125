//! A newcomer finds things where the README says.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::{root, text};

/// What may lie at the top. Names with a dot in front are for tools.
const TOP: [&str; 17] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "agent",
    "benches",
    "codec",
    "collector",
    "docs",
    "fixtures",
    "packaging",
    "sinks",
    "steering",
    "storage",
    "tests",
];

/// The files that git knows, or every file where there is no git.
pub(crate) fn files() -> Vec<String> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output();
    if let Ok(output) = output
        && output.status.success()
    {
        let listed = String::from_utf8(output.stdout).expect("UTF-8");
        return listed.lines().map(String::from).filter(|file| root().join(file).exists()).collect();
    }
    let mut files = Vec::new();
    walk(&root(), &mut files);
    files
}

fn walk(folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let built = path.file_name().is_some_and(|name| name == "target" || name == ".git");
        match path.is_dir() {
            true if !built => walk(&path, files),
            true => {}
            false => files.push(path.strip_prefix(root()).expect("below the top").to_string_lossy().into_owned()),
        }
    }
}

#[test]
fn the_top_has_only_what_belongs_there() {
    let top = files().into_iter().filter_map(|file| file.split('/').next().map(String::from));
    let top: BTreeSet<_> = top.filter(|name| !name.starts_with('.')).collect();
    assert_eq!(top, TOP.map(String::from).into_iter().collect());
}

#[test]
fn source_files_stay_small() {
    for file in files().into_iter().filter(|file| file.ends_with(".rs")) {
        let tests = file.starts_with("tests/") || file.contains("/tests/") || file.ends_with("/tests.rs");
        let lines = text(&file).lines().count();
        assert!(tests || lines <= 500, "{file} has {lines} lines: split it by noun");
    }
}

#[test]
fn no_test_is_ignored() {
    for file in files().into_iter().filter(|file| file.ends_with(".rs")) {
        let mark = ["#[", "ignore"].concat();
        assert!(!text(&file).contains(&mark), "{file} has a test that never runs");
    }
}
