//! The `agent` command, to be measured.

use std::{
    ffi::OsStr,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::{
    built::{self, target_folder},
    load::Carries,
    ran::Ran,
};

/// The command, built for measuring.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built::command("launcher", "agent"))
}

/// The options for what every event carries.
pub fn options(carries: Carries) -> &'static [&'static str] {
    match carries {
        Carries::Index => &["--no-detail"],
        Carries::Detail => &["--stack-bytes", "128"],
    }
}

/// `agent run` up to the program's name and arguments, which come next.
pub fn run<S: AsRef<OsStr>>(to: SocketAddr, options: &[S]) -> Command {
    let mut command = command();
    command.args(["run", "--to", &to.to_string()]).args(options).arg("--");
    command
}

/// The command. It keeps what it keeps in the target folder: nothing of the user's is touched.
fn command() -> Command {
    let mut command = Command::new(binary());
    for name in ["XDG_DATA_HOME", "XDG_CACHE_HOME"] {
        command.env(name, home().join(name));
    }
    command
}

fn home() -> PathBuf {
    target_folder().join("tracing")
}

/// Has the command get what it needs from the network, once.
pub fn prepare(to: SocketAddr) {
    let set_up = Ran::new(command().arg("setup"));
    assert_eq!(set_up.code, Some(0), "Frida cannot be installed: {}", set_up.stderr);
    let ran = Ran::new(run(to, &["--no-detail"]).arg("true"));
    assert_eq!(ran.code, Some(0), "the agent does not work on this machine: {}", ran.stderr);
}

/// The command's own Python, which has Frida. There is one after [`prepare`].
pub fn python() -> Option<Command> {
    let folders = fs::read_dir(home().join("XDG_DATA_HOME/spoor")).ok()?.flatten().map(|entry| entry.path());
    let folder = folders.into_iter().find(|folder| folder.join("complete").is_file())?;
    let mut command = Command::new(fs::read_to_string(folder.join("complete")).ok()?);
    command.env("PYTHONPATH", folder.join("packages"));
    Some(command)
}

/// What the command says with `--verbose` when all is hooked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hooked {
    /// How many functions.
    pub functions: f64,
    /// Of how many modules.
    pub modules: f64,
    /// How long it took to find and plan them, in ms.
    pub planned: f64,
    /// How long it took to put the hooks in, in ms.
    pub installed: f64,
    /// How long Frida took, in ms.
    pub frida: f64,
    /// From the start to the moment that the program runs, in ms.
    pub in_all: f64,
}

impl Hooked {
    /// Reads `agent: hooked N functions of M modules: planned in X ms, installed in Y ms, frida Z ms, in all T ms`.
    pub fn parse(stderr: &str) -> Option<Self> {
        let line = stderr.lines().find_map(|line| line.strip_prefix("agent: hooked "))?;
        let mut words = line.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_ascii_digit()));
        let mut next = || words.find_map(|word| word.replace(',', "").parse().ok());
        let [functions, modules, planned, installed, frida, in_all] =
            [next()?, next()?, next()?, next()?, next()?, next()?];
        Some(Self { functions, modules, planned, installed, frida, in_all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_are_read() {
        let said = "something\nagent: hooked 12354 functions of 9 modules: planned in 81.5 ms, installed in 20 ms, \
                    frida 210 ms, in all 377.2 ms\n";
        let phases =
            Hooked { functions: 12354.0, modules: 9.0, planned: 81.5, installed: 20.0, frida: 210.0, in_all: 377.2 };
        assert_eq!(Hooked::parse(said), Some(phases));
        assert_eq!(Hooked::parse("agent: hooked 3 functions"), None);
    }
}
