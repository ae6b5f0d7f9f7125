//! Small programs in C.

use std::process::Command;

use crate::support::Folder;

/// Compiles a program.
pub(crate) fn compile(folder: &Folder, name: &str, source: &str, flags: &[&str]) -> String {
    let (input, output) = (folder.path(&format!("{name}.c")), folder.path(name));
    std::fs::write(&input, source).expect("written");
    let compiled = Command::new("cc").args(["-O1", "-o", &output, &input]).args(flags).output();
    let compiled = compiled.expect("cc, a C compiler, which the tests need: apt-get install gcc libc6-dev");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    output
}

/// A program that nothing is loaded into, and that needs no C library to be linked.
pub(crate) fn compile_static(folder: &Folder) -> String {
    let source = "void _start(void) { for (;;) __asm__ volatile (\"syscall\" :: \"a\"(60), \"D\"(0)); }\n";
    compile(folder, "static", source, &["-static", "-nostdlib"])
}
