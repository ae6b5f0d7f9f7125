//! The `collector` command: sockets, wiring, and the offline commands.
//!
//! It moves bytes between sockets, `collector-core` and `sinks`, and decides nothing. Nothing is here yet;
//! `CHANGELOG.md` says what is.

#![forbid(unsafe_code)]
