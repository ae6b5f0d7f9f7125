//! What is measured and what it is measured on, built when it is needed.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// The variable that names a folder of commands that are built already, such as `target/release`: whole-program optimisation
/// takes long.
const COMMANDS: &str = "SPOOR_BENCH_COMMANDS";

/// A command of the workspace, built for measuring unless it is built already. Returns where it is.
pub fn command(package: &str, name: &str) -> PathBuf {
    command_with(package, name, &[])
}

/// The same with these features.
pub fn command_with(package: &str, name: &str, features: &[&str]) -> PathBuf {
    if let Some(folder) = env::var_os(COMMANDS) {
        return own_file("..").join(folder).join(name);
    }
    let mut cargo = Command::new(env!("CARGO"));
    // What the cargo outside says of this package looks like a change to the build scripts of others.
    let said = |name: &str| name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars().filter(|(name, _)| said(name)) {
        cargo.env_remove(name);
    }
    let output = cargo
        .args(["build", "-p", package, "--bin", name, "--profile=bench", "--message-format=json-render-diagnostics"])
        .args(features.iter().flat_map(|feature| ["--features", feature]))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{name} can be built");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut paths = lines
        .filter(|line| line["target"]["name"] == name)
        .filter_map(|line| line["executable"].as_str().map(PathBuf::from));
    paths.next_back().expect("cargo says where it is")
}

/// Compiles a C program, or with `-shared` a library, from a file in the repository. Returns where it is.
pub fn compiled(source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(source);
    let folder = target_folder().join("measured");
    fs::create_dir_all(&folder).expect("the target folder can be written to");
    let output = folder.join(source.file_stem().expect("a file"));
    let mut gcc = Command::new(env::var_os("CC").unwrap_or_else(|| "gcc".into()));
    gcc.args(["-D_GNU_SOURCE", "-pthread"]).args(flags).arg("-o").arg(&output).arg(source);
    let status = gcc.status().unwrap_or_else(|error| panic!("cannot run {gcc:?}: {error} (apt-get install gcc)"));
    assert!(status.success(), "{gcc:?}");
    output
}

/// A file of this package.
pub fn own_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Cargo's target folder: what runs now is in it.
pub fn target_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let running = env::current_exe().expect("it has a file");
        // Cargo marks its target folder for those who make backups.
        let folder = running.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
        folder.unwrap_or_else(|| panic!("{} is in no target folder", running.display())).to_path_buf()
    })
}

/// A program of the system, if it is installed. What only stands in for a program, a script in a folder that comes
/// first in the search path, is passed over where the real one is in its usual place.
pub fn installed(name: &str) -> Option<PathBuf> {
    let usual = Path::new("/usr/bin").join(name);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut others = env::split_paths(&path).map(|folder| folder.join(name));
    if usual.exists() { Some(usual) } else { others.find(|path| path.exists()) }
}

/// What a program says its version is: the first line.
pub fn version(program: impl AsRef<OsStr>) -> String {
    let output = Command::new(program).arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.lines().next().unwrap_or_default().trim().to_string()
}
