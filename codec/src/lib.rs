//! The bytes of Spoor: Heph packets on the wire, the profile our agent speaks, and ATF v2 on disk.
//!
//! Layers, each standing on the one before it:
//!
//! * [`heph`]: packets as any Heph sender writes them, and how they are framed in streams and datagrams;
//! * [`profile`]: what our agent and collector say in those packets, as typed values;
//! * [`atf`]: the trace format on disk (feature `atf`);
//! * [`span`]: what events are made into.
//!
//! Beside them are [`access`], [`quantity`] and [`text`], which the commands of both sides need.
//!
//! The crate does no I/O and reads no clock. What comes from outside is checked once, when it is decoded;
//! a decoded value cannot be invalid. What goes out is checked before the first byte is written, so a
//! refused value leaves the buffer as it was.
//!
//! `docs/wire-format.md` and `docs/trace-format.md` are normative for the bytes; a test holds their tables
//! against the layouts declared here.
//!
//! Without the feature `std` there are only the enumerations that the library in a target needs.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

#[cfg(feature = "std")]
pub mod access;
#[cfg(feature = "atf")]
pub mod atf;
#[cfg(feature = "demangle")]
pub mod demangle;
#[cfg(feature = "std")]
pub mod heph;
#[cfg(feature = "std")]
mod id;
mod key;
#[cfg(feature = "std")]
pub mod layout;
mod platform;
#[cfg(feature = "std")]
pub mod profile;
#[cfg(feature = "std")]
pub mod quantity;
#[cfg(feature = "std")]
pub mod span;
#[cfg(feature = "std")]
pub mod text;

#[cfg(feature = "std")]
pub use id::{ClockNs, Counter, FunctionId, ModuleId, Position, SessionId, SessionNs, StreamId, SubstreamId};
pub use key::Key;
pub use platform::{AnswerKind, Arch, BirthKind, ClockKind, EventKind, LevelKind, Os};
