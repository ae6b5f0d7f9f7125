//! Why Frida could not do what it was asked to.

use std::{io, path::PathBuf};

use crate::{process, signals::Interrupted};

/// Why Frida could not do what it was asked to. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    /// There is no Python, or none that will do.
    #[error("{0}")]
    Python(String),
    /// The Python that was found cannot load Frida.
    #[error("{} cannot load Frida: {text} (install it with `agent setup`, or there with `{} -m pip install frida=={}`)",
        python.display(), python.display(), super::VERSION)]
    Import { python: PathBuf, text: String },
    /// It is a version with another interface.
    #[error("{} has Frida {version}, and version 17 is needed (`agent setup` installs it)", python.display())]
    Version { python: PathBuf, version: String },
    /// The helper could not be started.
    #[error("cannot start {}: {error}", python.display())]
    Start { python: PathBuf, error: io::Error },
    /// Frida could not get into the process.
    #[error("cannot attach to process {pid}: {why}")]
    Attach { pid: i32, why: String },
    /// The script, or what it called, failed.
    #[error("Frida could not carry out {call}: {text}")]
    Call { call: String, text: String },
    /// The library could not make the memory that it records into.
    #[error(
        "the program cannot have the memory for its rings: {0} (try a smaller --ring-bytes, or look at its limits)"
    )]
    Memory(io::Error),
    /// The time was up.
    #[error("Frida was still owing {what} when the time was up (try a longer --startup-timeout)")]
    Late { what: String },
    /// The program ended, or Frida was made to leave it.
    #[error("the program ended while it was being prepared")]
    TargetEnded,
    /// The process runs another program.
    #[error("the program ran another one in its place while it was being prepared")]
    Replaced,
    /// Somebody asked to stop meanwhile.
    #[error("gave up on Frida")]
    Interrupted(#[from] Interrupted),
    /// The helper ended.
    #[error("Frida's helper ended during {during}{said}")]
    Ended { during: String, said: String },
}

/// Says in one line why attaching failed, from the kind of exception and the text that Frida gave.
pub(super) fn attach(pid: i32, kind: &str, text: &str) -> Failure {
    let why = match kind {
        "ProcessNotFoundError" => "there is no such process (has it ended?)".into(),
        "PermissionDeniedError" => format!("permission denied ({})", process::ptrace_remedy()),
        _ if process::has_ended(pid) => "it ended while Frida was getting in".into(),
        "ProcessNotRespondingError" | "TimedOutError" => {
            "it does not answer Frida (is it stopped, in a debugger, or confined by seccomp?)".into()
        }
        "NotParked" => text.into(),
        "NotSupportedError" => format!("Frida does not support it: {text}"),
        _ => format!("{text} ({kind})"),
    };
    Failure::Attach { pid, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_fail_says_what_to_do() {
        // A process that is there.
        let line = |kind| attach(1, kind, "x").to_string();
        assert!(line("ProcessNotFoundError").ends_with("process 1: there is no such process (has it ended?)"));
        assert!(line("PermissionDeniedError").contains("root"), "{}", line("PermissionDeniedError"));
        assert_eq!(line("WeirdError"), "cannot attach to process 1: x (WeirdError)");
        let gone = attach(i32::MAX, "TimedOutError", "x").to_string();
        assert!(gone.ends_with("it ended while Frida was getting in"), "{gone}");
    }
}
