//! Where a trace goes: the sink contract, disk, stdout and the exporters.
//!
//! Nothing is here yet; `CHANGELOG.md` says what is.

#![forbid(unsafe_code)]
