//! The library inside the traced program: hook stub → per-thread ring → encode → ship.
//!
//! It will be a `cdylib` that the launcher has Frida load. It depends on `codec` without that crate's default
//! features, so that neither the disk format nor an asynchronous runtime enters a foreign process.
//!
//! Nothing is here yet; `CHANGELOG.md` says what is.
