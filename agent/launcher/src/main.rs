//! The `agent` command: starts a program or attaches to one, has Frida load the agent library into it, and
//! ships what is left in the rings when the program is gone.
//!
//! A crate of its own, so that no argument parser enters a target. Nothing is here yet; `CHANGELOG.md` says
//! what is.

#![forbid(unsafe_code)]

fn main() {}
