//! Python with packages, for tests that read what we write with the programs of others.

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
    process::Command,
};

use rustix::fs::{FlockOperation, flock};

use crate::target::target_folder;

/// A Python that has these packages, in an environment of its own below the target directory. It is made when it is
/// first asked for; whoever asks meanwhile waits.
///
/// Where it cannot be made, the test that asked is over, and says so. With `SPOOR_REQUIRE_PROGRAMS=1` it fails.
pub fn python_with(packages: &[&str]) -> Option<PathBuf> {
    let made = environment(packages);
    made.map_err(|problem| skip(&format!("python3 with {}: {problem}", packages.join(" ")))).ok()
}

/// Says that a test is over because it needs something that is not here. With `SPOOR_REQUIRE_PROGRAMS=1` it fails.
pub fn skip(what: &str) {
    let required = env::var_os("SPOOR_REQUIRE_PROGRAMS").is_some_and(|value| value == "1");
    assert!(!required, "this test needs {what}");
    say_skipped(what);
}

/// The same for what no machine must have. What a test prints with the macros is shown only if it fails; this is to be
/// seen.
pub fn say_skipped(what: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED a test that needs {what}");
}

fn environment(packages: &[&str]) -> Result<PathBuf, String> {
    let mut packages = packages.to_vec();
    packages.sort_unstable();
    let place = target_folder().join("tmp").join(format!("python-{}", packages.join("-")));
    let failed = |error: io::Error| format!("{}: {error}", place.display());
    fs::create_dir_all(&place).map_err(failed)?;
    let lock = File::create(place.join("lock")).map_err(failed)?;
    // Held until the file is closed, at the end of this function.
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    let (venv, ready) = (place.join("venv"), place.join("ready"));
    let python = venv.join("bin/python");
    if ready.exists() && python.exists() {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "2", "--timeout", "30"];
    run(Command::new(&python).args(pip).args(&packages))?;
    fs::write(&ready, "").map_err(failed)?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("python3 cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    Err(said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed without a word").trim().to_owned())
}
