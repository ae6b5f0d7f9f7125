//! Steering a trace while it runs: what `agent ctl` and `collector ctl` ask for, where those are that answer, in which words, and
//! how a session is doing.
//!
//! ```text
//! agent ctl PID ─────▶ socket of the agent ──────────────────────┐
//! collector ctl ID ──▶ socket of the collector ─▶ ask ─▶ shipper ─┴▶ the agent's answer
//! ```

#![forbid(unsafe_code)]

mod action;
mod line;
mod pace;
mod run_folder;
mod status;

pub use action::{Action, LevelWord};
pub use line::{Reply, ask, serve};
pub use pace::{Budget, Pace};
pub use run_folder::{Role, Socket, path, sockets};
pub use status::{ByLevel, Status};
