//! Commands of the workspace, built when a test needs them.

use std::{path::PathBuf, process::Command};

use serde_json::Value;

/// Builds a command in the profile of the tests and returns its path: a test cannot depend on a binary of another
/// package. With the features of the whole workspace, as `cargo test --workspace` has them: others would build every
/// dependency a second time.
#[track_caller]
pub fn build(binary: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--workspace", "--bin", binary, "--message-format=json"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{binary} cannot be built: {errors}");
    named(&output.stdout, binary).unwrap_or_else(|| panic!("cargo did not name the executable of {binary}: {errors}"))
}

/// The executable that cargo's messages name.
fn named(messages: &[u8], binary: &str) -> Option<PathBuf> {
    let messages = messages.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let named = messages.filter(|message| message["target"]["name"] == binary);
    named.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_the_one_of_the_binary() {
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"codec"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"collector"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"collector"},"executable":"/there/collector"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(named(messages, "collector"), Some(PathBuf::from("/there/collector")));
    }
}
