//! End-to-end tests, one folder a subject. They are one program, so that those that wait do not keep the others waiting.

#![forbid(unsafe_code)]

mod archive;
mod delivery;
mod fleet;
mod guide;
mod otlp;
mod runtimes;
mod service;
mod spans;
mod tracing;

// The imitation of a target, which is shared with the agent's own tests, expects it here.
use real_agent::shared;
