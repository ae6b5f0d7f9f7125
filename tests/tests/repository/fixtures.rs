//! The golden files are what their script writes.

use std::process::Command;

use crate::root;

#[test]
fn the_golden_files_are_what_make_py_writes() {
    let script = root().join("fixtures/make.py");
    let output = Command::new("python3").arg(script).arg("--check").output();
    let output = output.expect("python3, which fixtures/make.py needs: apt-get install python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
