//! The Python that can load Frida.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Failure, Options, environment};

/// A Python that can load Frida.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Python {
    pub(crate) command: PathBuf,
    /// Where Frida's package is, if the Python would not look there by itself.
    pub(crate) packages: Option<PathBuf>,
}

/// Finds a Python with Frida.
pub(crate) fn find(options: &Options) -> Result<Python, Failure> {
    present(options).ok_or_else(|| {
        Failure::Python(
            "there is no Python with Frida 17 (`agent setup` installs it; --engine native needs none)".into(),
        )
    })
}

/// Makes the private environment, or makes it anew where it is broken.
pub(crate) fn set_up(quiet: bool) -> Result<(), Failure> {
    let is_whole = |python: &Python| version(&python.command, python.packages.as_deref()).is_ok();
    if let Some(there) = environment::present() {
        if is_whole(&there) {
            if !quiet {
                say!("Frida {} is installed", super::VERSION);
            }
            return Ok(());
        }
        environment::discard()?;
    }
    let python = interpreter().ok_or_else(|| {
        Failure::Python(
            "there is no python3, which Frida needs (on Debian: apt-get install python3 python3-venv)".into(),
        )
    })?;
    environment::make(&python, quiet).map(drop)
}

/// A Python with Frida that is there already. The private environment comes first: it has the version that everything
/// is tested with, and does not have to be asked, which would take as long as starting it.
pub(crate) fn present(options: &Options) -> Option<Python> {
    if let Some(command) = &options.python {
        return Some(Python { command: command.clone(), packages: None });
    }
    environment::present().or_else(|| {
        let command = interpreter()?;
        let version = version(&command, None).ok()?;
        version.starts_with("17.").then_some(Python { command, packages: None })
    })
}

/// The version of Frida that a Python loads, or what it says when it cannot.
pub(crate) fn version(command: &Path, packages: Option<&Path>) -> Result<String, String> {
    // Not from the folder that the command happens to be started in.
    let script = "import sys; sys.path[:] = sys.argv[1:] + [path for path in sys.path if path.startswith('/')]; \
                  import frida; print(frida.__version__)";
    let output = Command::new(command).args(["-c", script]).args(packages).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start {}: {error}", command.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(text(&output.stderr).lines().last().unwrap_or("it ends without a word").to_string())
}

/// The Python of the search path.
pub(crate) fn interpreter() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let names = ["python3", "python"];
    let runs = |command: &PathBuf| {
        let script = "import sys; sys.exit(sys.version_info < (3, 7))";
        let status =
            Command::new(command).args(["-I", "-c", script]).stdin(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let found = |name: &&str| env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    names.iter().filter_map(found).find(runs)
}
