//! What the collector knows: sessions, reassembly, gaps and spans.
//!
//! Without I/O: packets and the time come in, ordered events, gaps and spans go out. Nothing is here yet;
//! `CHANGELOG.md` says what is.

#![forbid(unsafe_code)]
