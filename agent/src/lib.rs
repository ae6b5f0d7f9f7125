//! Following every call of a program: hook stub → per-thread ring → encode → ship.
//!
//! The crate has two halves that share one block of memory, [`shared`]. `target` runs inside the traced program, as a
//! `cdylib`: it records, and does nothing else. It opens no file, keeps no descriptor, starts no thread and allocates
//! with nobody's allocator. Everything that can be done from outside is done from outside, by the `agent` command:
//! [`plan`] decides what to hook and how, [`drain`] empties the rings and [`ship`] delivers.

#![cfg_attr(not(feature = "outside"), no_std)]

#[cfg(feature = "outside")]
pub mod drain;
#[cfg(feature = "outside")]
pub mod mapped;
#[cfg(feature = "outside")]
pub mod plan;
#[cfg(all(feature = "outside", target_arch = "x86_64"))]
pub mod registers;
pub mod shared;
#[cfg(feature = "outside")]
pub mod ship;
#[cfg(feature = "outside")]
pub mod stub;
#[cfg(target_arch = "x86_64")]
mod target;
#[cfg(feature = "outside")]
pub mod tracee;
