//! How a program ended, and ending in the same way.

use std::{fmt, os::unix::process::ExitStatusExt, process::ExitCode, process::ExitStatus};

use codec::profile::EndReason;
use rustix::process::{Resource, Rlimit, setrlimit};
use signal_hook::low_level;

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndState {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal.
    Signaled(i32),
    /// In a way that this process cannot be told.
    Unknown,
}

impl EndState {
    /// From the word that the system keeps of it.
    pub(crate) fn from_raw(status: i32) -> Self {
        ExitStatus::from_raw(status).into()
    }

    /// Ends this process in the same way, so that whoever started it sees what the program did.
    pub(crate) fn pass_on(self) -> ExitCode {
        match self {
            Self::Exited(code) => ExitCode::from(code.to_le_bytes()[0]),
            Self::Signaled(signal) => die_of(signal),
            Self::Unknown => ExitCode::SUCCESS,
        }
    }
}

/// Dies of a signal.
pub(crate) fn die_of(signal: i32) -> ExitCode {
    // A core of this process would say nothing, and may overwrite the program's own.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    if low_level::emulate_default_handler(signal).is_err() {
        // Not one of the classic ones, so nothing has been done to what it does by default.
        let _ = low_level::raise(signal);
    }
    // Where even that did not end it: what a shell would say.
    ExitCode::from(128_u8.wrapping_add(signal.to_le_bytes()[0]))
}

/// A signal by its name.
pub(crate) fn signal_name(signal: i32) -> String {
    low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_string)
}

impl From<ExitStatus> for EndState {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (_, Some(signal)) => Self::Signaled(signal),
            _ => Self::Unknown,
        }
    }
}

impl From<EndState> for EndReason {
    fn from(state: EndState) -> Self {
        match state {
            EndState::Exited(code) => Self::Exited(code),
            EndState::Signaled(signal) => Self::Signaled(signal),
            EndState::Unknown => Self::UNKNOWN,
        }
    }
}

impl fmt::Display for EndState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Signaled(signal) => write!(f, "died of {}", signal_name(*signal)),
            Self::Unknown => f.write_str("ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_word_is_read() {
        for (raw, ending, text) in [
            (0x0300, EndState::Exited(3), "exited with 3"),
            (0x000f, EndState::Signaled(15), "died of SIGTERM"),
            (0x008b, EndState::Signaled(11), "died of SIGSEGV"),
            (0x0028, EndState::Signaled(40), "died of signal 40"),
        ] {
            assert_eq!(EndState::from_raw(raw), ending);
            assert_eq!(ending.to_string(), text);
        }
    }
}
