//! Builds the library that goes into the target, so that it can travel inside the command.
//!
//! A command cannot depend on a `cdylib`, so a second cargo builds it, in a folder of its own: the one that runs this
//! holds the lock of the usual one. All profiles and features of the launcher share that folder, since the library is
//! the same for all of them: it is built once. Set `SPOOR_AGENT_LIBRARY` to a file to put that in instead.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, exit},
};

/// What of the environment would make another library than the workspace says.
const UNSET: [&str; 9] = [
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "SPOOR_AGENT_LIBRARY",
];

fn main() {
    let workspace = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../..");
    for input in ["agent/src", "agent/Cargo.toml", "codec/src", "codec/Cargo.toml", "Cargo.toml", "Cargo.lock"] {
        println!("cargo:rerun-if-changed={}", workspace.join(input).display());
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=SPOOR_AGENT_LIBRARY");

    let out = PathBuf::from(variable("OUT_DIR"));
    let library = match env::var_os("SPOOR_AGENT_LIBRARY").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => build(&workspace, &shared(&out)),
    };
    let bytes = fs::read(&library).unwrap_or_else(|error| fail(&format!("{}: {error}", library.display())));
    let copy = out.join("libagent.so");
    fs::write(&copy, &bytes).unwrap_or_else(|error| fail(&format!("{}: {error}", copy.display())));
    println!("cargo:rustc-env=SPOOR_LIBRARY_FILE={}", copy.display());
    println!("cargo:rustc-env=SPOOR_LIBRARY_HASH={:016x}", fnv(&bytes));
}

/// The folder for the library: beside those of the profiles, of which `OUT_DIR` is `PROFILE/build/PACKAGE/out`. Those of
/// another target have a folder of their own around them.
fn shared(out: &Path) -> PathBuf {
    let target = variable("TARGET");
    let mut folders = out.ancestors().skip(4).skip_while(|folder| folder.ends_with(&target));
    folders.next().unwrap_or_else(|| fail(&format!("{}: too short a path", out.display()))).join("agent-library")
}

fn build(workspace: &Path, folder: &Path) -> PathBuf {
    // Not the command's target, which may be another C library's: this one uses none, and is the same for all.
    let target = variable("HOST");
    let mut cargo = Command::new(variable("CARGO"));
    // The cargo outside has fetched all that this one needs, and locked it.
    cargo.args([
        "rustc",
        "--package=agent",
        "--lib",
        "--crate-type=cdylib",
        "--no-default-features",
        "--profile=agent-library",
    ]);
    cargo.args(["--locked", "--offline", "--quiet", "--target", &target, "--target-dir"]).arg(folder);
    // It is put into programs that have no C library, or another one.
    cargo.args(["--", "-Clink-arg=-nostdlib", "-Clink-arg=-nostartfiles"]);
    cargo.current_dir(workspace);
    for name in UNSET {
        cargo.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PROFILE_")) {
            cargo.env_remove(name);
        }
    }
    match cargo.status() {
        Ok(status) if status.success() => folder.join(target).join("agent-library").join("libagent.so"),
        Ok(status) => fail(&format!("cargo ended with {status}: {cargo:?}")),
        Err(error) => fail(&format!("cargo could not be started: {error}")),
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| fail(&format!("cargo did not set {name}")))
}

fn fail(why: &str) -> ! {
    eprintln!("the agent library could not be built: {why}");
    exit(1);
}

/// FNV-1a: it only has to tell one version of the library from another.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
