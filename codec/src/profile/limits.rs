//! What a session could not capture.

use crate::{
    ModuleId,
    heph::{List, wire::wire_struct},
};

wire_struct! {
    /// What could not be captured, and why. A later limit replaces one with the same module, reason and detail.
    pub struct Limits<'a> as "limits" {
        /// The limits.
        pub limits: List<'a, Limit<'a>>,
    }
}

wire_struct! {
    /// One thing that could not be captured.
    pub struct Limit<'a> as "limit" {
        /// The module it concerns; 0 is the process as a whole.
        pub module: ModuleId,
        /// How many functions, threads or other things are affected.
        pub count: u64,
        /// Why, as a short constant word: `no-unwind-info`, `missing-symbol`.
        pub reason: &'a str,
        /// What exactly, possibly empty.
        pub detail: &'a str,
    }
}
