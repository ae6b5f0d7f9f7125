//! The private environment: a Python and Frida's package, in a folder of this command's own, made by `agent setup`.

use std::{
    env,
    fs::{self, File},
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::fs::FlockOperation;

use super::{
    Failure, VERSION,
    python::{Python, version},
};

/// Written last. It holds the command to start, and says that everything is there.
const MARKER: &str = "complete";
/// When something failed and no more than this is free, that is why.
const FULL_BELOW: u64 = 16 << 20;
/// Where pip puts the package when there is no `venv`.
const PACKAGES: &str = "packages";

/// Where it is, or would be.
pub(crate) fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("spoor").join(format!("frida-{VERSION}")))
}

/// The environment, if it is complete.
pub(crate) fn present() -> Option<Python> {
    read(&folder()?)
}

/// Makes the environment. Of several who want to at the same time, one does.
pub(super) fn make(interpreter: &Path, quiet: bool) -> Result<Python, Failure> {
    let folder = folder()
        .ok_or_else(|| Failure::Python("there is no place to install Frida (set HOME or XDG_DATA_HOME)".into()))?;
    let failed = |error| cannot(&folder, &format!("{error} (set XDG_DATA_HOME to a folder that can be written to)"));
    let _lock = lock(&folder, quiet).map_err(failed)?;
    if let Some(python) = read(&folder) {
        return Ok(python);
    }
    remove(&folder).map_err(failed)?;
    fs::create_dir_all(&folder).map_err(failed)?;

    let progress = Progress::start(&format!("getting Frida {VERSION} into {}", folder.display()), quiet);
    let made = fill(&folder, interpreter).and_then(|python| {
        version(&python.command, python.packages.as_deref()).map_err(|text| cannot(&folder, &text))?;
        let command = python.command.as_os_str().as_encoded_bytes();
        fs::write(folder.join(MARKER), command).map_err(failed)?;
        Ok(python)
    });
    match &made {
        Ok(_) => progress.end("done"),
        Err(_) => {
            progress.end("failed");
            // It would be made again anyway.
            let _ = remove(&folder);
        }
    }
    made
}

/// Forgets an environment that turned out to be broken.
pub(super) fn discard() -> Result<(), Failure> {
    let Some(folder) = folder() else { return Ok(()) };
    let _lock = lock(&folder, true).map_err(|error| cannot(&folder, &error.to_string()))?;
    remove(&folder).map_err(|error| cannot(&folder, &error.to_string()))
}

fn read(folder: &Path) -> Option<Python> {
    let command = PathBuf::from(fs::read_to_string(folder.join(MARKER)).ok()?);
    let packages = Some(folder.join(PACKAGES)).filter(|packages| packages.is_dir());
    let whole = command.is_file() && (packages.is_some() || command.starts_with(folder));
    whole.then_some(Python { command, packages })
}

/// Beside the environment, since the environment itself may be removed.
fn lock(folder: &Path, quiet: bool) -> io::Result<File> {
    fs::create_dir_all(folder.parent().unwrap_or(folder))?;
    let mut name = folder.as_os_str().to_owned();
    name.push(".lock");
    let file = File::options().append(true).create(true).open(name)?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if !quiet {
            say!("waiting for another agent that is getting Frida");
        }
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    }
    Ok(file)
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Frida and what it needs, each as one of the files that were looked at: pip takes no other.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// What a Python has to install packages with. Debian's has neither by itself.
pub(crate) fn way(interpreter: &Path) -> Option<&'static str> {
    let has = |script| run(Command::new(interpreter).args(["-I", "-c", script])).is_ok_and(|out| out.status.success());
    // Without the second, `venv` is there but fails.
    if has("import venv, ensurepip") {
        return Some("venv");
    }
    has("import pip").then_some("pip")
}

fn fill(folder: &Path, interpreter: &Path) -> Result<Python, Failure> {
    let pip = ["-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"];
    let pinned = ["--only-binary=:all:", "--require-hashes", "--requirement"];
    let Some(way) = way(interpreter) else {
        return Err(Failure::Python(format!(
            "{} has neither venv nor pip, and Frida is installed with one of them (on Debian: apt-get install python3-venv)",
            interpreter.display()
        )));
    };
    if way == "venv" {
        must(folder, Command::new(interpreter).args(["-I", "-m", "venv"]).arg(folder))?;
        let (command, list) = (folder.join("bin/python"), requirements(folder)?);
        must(folder, Command::new(&command).args(pip).args(pinned).arg(list))?;
        return Ok(Python { command, packages: None });
    }
    let (packages, list) = (folder.join(PACKAGES), requirements(folder)?);
    must(folder, Command::new(interpreter).args(pip).arg("--target").arg(&packages).args(pinned).arg(list))?;
    // Not the name in the search path, which may mean another Python tomorrow.
    let asked = run(Command::new(interpreter).args(["-I", "-c", "import sys; print(sys.executable, end='')"]));
    let command = asked.ok().filter(|out| out.status.success()).map(|out| String::from_utf8_lossy(&out.stdout).into());
    let command = command.map_or_else(|| interpreter.to_path_buf(), |text: String| PathBuf::from(text));
    Ok(Python { command, packages: Some(packages) })
}

/// Writes down what is installed, for pip.
fn requirements(folder: &Path) -> Result<PathBuf, Failure> {
    let file = folder.join("requirements.txt");
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&file, REQUIREMENTS));
    written.map_err(|error| cannot(folder, &error.to_string()))?;
    Ok(file)
}

fn run(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).output()
}

fn must(folder: &Path, command: &mut Command) -> Result<(), Failure> {
    let output = run(command).map_err(|error| cannot(folder, &error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr, output.stdout].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).join("\n");
    // What makes the environment does not say so, and pip has tidied up since.
    let is_full = rustix::fs::statvfs(folder).is_ok_and(|disk| disk.f_bavail * disk.f_frsize < FULL_BELOW);
    if is_full || said.contains("No space left on device") {
        return Err(cannot(folder, "the disk is full (it takes 200 MiB; XDG_DATA_HOME chooses another place)"));
    }
    // pip ends with what went wrong, marked as such.
    let last = || said.lines().rfind(|line| !line.trim().is_empty());
    let error = said.lines().rfind(|line| line.starts_with("ERROR:")).or_else(last);
    let why = error.map_or_else(|| output.status.to_string(), |line| line.trim_start_matches("ERROR:").trim().into());
    let remedy = "is the network reachable? a Python that has Frida can be named with --frida-python";
    Err(cannot(folder, &format!("{why} ({remedy})")))
}

fn cannot(folder: &Path, why: &str) -> Failure {
    Failure::Python(format!("cannot install Frida into {}: {why}", folder.display()))
}

/// Something that takes its time. On a terminal one line lives, elsewhere there is one at the start and one at the end.
struct Progress {
    what: String,
    begun: Instant,
    quiet: bool,
    live: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    fn start(what: &str, quiet: bool) -> Self {
        let begun = Instant::now();
        let live = (!quiet && io::stderr().is_terminal()).then(|| {
            let (sender, ended) = mpsc::channel();
            let what = what.to_string();
            (sender, thread::spawn(move || spin(&what, begun, &ended)))
        });
        if live.is_none() && !quiet {
            say!("{what}");
        }
        Self { what: what.into(), begun, quiet, live }
    }

    fn end(self, how: &str) {
        if let Some((sender, thread)) = self.live {
            drop(sender);
            // It only writes to the terminal.
            let _ = thread.join();
            eprint!("\r\x1b[K");
        }
        if !self.quiet {
            say!("{}: {how} in {:.1} s", self.what, self.begun.elapsed().as_secs_f64());
        }
    }
}

fn spin(what: &str, begun: Instant, ended: &mpsc::Receiver<()>) {
    for step in ['|', '/', '-', '\\'].iter().cycle() {
        eprint!("\r\x1b[K{step} {what} {:.0} s", begun.elapsed().as_secs_f64());
        let _ = io::stderr().flush();
        if ended.recv_timeout(Duration::from_millis(200)) == Err(mpsc::RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pinned_is_what_everything_is_tested_with() {
        assert!(REQUIREMENTS.starts_with(&format!("frida=={VERSION} ")));
    }
}
