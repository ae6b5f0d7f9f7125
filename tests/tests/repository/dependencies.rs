//! Dependencies run one way.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

use crate::root;

/// Each crate and the crates of the workspace that it may use. Packages for tests and benchmarks may use all.
const ALLOWED: [(&str, &[&str]); 13] = [
    ("codec", &[]),
    ("agent", &["codec"]),
    ("steering", &["codec"]),
    ("tunnel", &["agent", "codec"]),
    ("launcher", &["agent", "codec", "steering", "tunnel"]),
    ("collector-core", &["codec"]),
    ("storage", &[]),
    ("sinks", &["codec", "collector-core", "storage"]),
    ("answers", &["codec", "collector-core", "sinks", "storage"]),
    ("fleet", &["codec", "collector-core", "sinks"]),
    ("sql", &["answers", "codec", "sinks", "storage"]),
    ("view", &["answers", "codec", "collector-core", "sinks", "storage"]),
    ("collector", &["answers", "codec", "collector-core", "fleet", "sinks", "sql", "steering", "storage", "view"]),
];

#[test]
fn crates_depend_only_on_what_they_may() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_string();
    let names: BTreeSet<_> = packages.iter().map(name).collect();
    let allowed: BTreeMap<_, _> = ALLOWED.into_iter().collect();
    let known: BTreeSet<_> = allowed.keys().copied().chain(["tests", "benches"]).map(String::from).collect();
    assert_eq!(names, known, "every crate has its place");
    for package in packages {
        let Some(allowed) = allowed.get(name(package).as_str()) else { continue };
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        for dependency in dependencies.iter().map(name).filter(|dependency| names.contains(dependency)) {
            assert!(allowed.contains(&dependency.as_str()), "{} must not use {dependency}", name(package));
        }
    }
}
