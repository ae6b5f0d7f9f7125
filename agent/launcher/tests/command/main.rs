//! The `agent` command as a user meets it: everything that needs no collector.

mod attach;
mod doctor;
mod install;
mod list;
mod program;
mod run;
mod signals;
mod support;
mod unrunnable;
mod usage;
