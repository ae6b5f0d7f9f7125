//! Following every call of a program: hook stub → per-thread ring → encode → ship.
//!
//! The crate has two halves that share one block of memory, [`shared`]. `target` runs inside the traced program, as a
//! `cdylib`: it records, and does nothing else. It opens no file, keeps no descriptor, starts no thread and allocates
//! with nobody's allocator. Everything that can be done from outside is done from outside, by the `agent` command:
//! [`plan`] decides what to hook and how, [`drain`] empties the rings and [`ship`] delivers.

pub mod drain;
pub mod plan;
#[cfg(target_arch = "x86_64")]
pub mod registers;
pub mod shared;
pub mod ship;
pub mod stub;
#[cfg(target_arch = "x86_64")]
mod target;
