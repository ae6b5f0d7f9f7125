//! The `agent` command as a user meets it: what it does to programs, not what it sends.

mod attach;
mod collector;
mod doctor;
mod install;
mod list;
mod program;
mod run;
mod signals;
mod support;
mod unrunnable;
mod usage;
