//! What to do with a function.

use super::{prologue::Prologue, reason::Reason};

/// What to do with a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Hook it.
    Hook(Hook),
    /// Leave it alone.
    Leave(Reason),
}

/// How to hook a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// What its hook does.
    pub kind: Kind,
    /// What its hook overwrites.
    pub prologue: Prologue,
}

/// What a hook does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Records the entry and the return.
    Frame,
    /// Records the entry and leaves the return address alone.
    Probe,
    /// Puts all return addresses of the thread back before the function looks at them.
    Unwinder,
}

impl Kind {
    /// The kind as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Frame => "frame",
            Self::Probe => "probe",
            Self::Unwinder => "unwinder",
        }
    }
}
