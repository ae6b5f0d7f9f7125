//! How much was told of functions, and how many calls were only counted.

use crate::{
    FunctionId, LevelKind, SessionNs, StreamId,
    heph::{List, wire::wire_struct},
};

wire_struct! {
    /// Functions whose level has changed. A function of which nothing is told is full.
    pub struct Levels<'a> as "levels" {
        /// The changes.
        pub changes: List<'a, LevelChange>,
    }

    /// A function has another level.
    pub struct LevelChange as "level change" {
        /// The function.
        pub function: FunctionId,
        /// From when on.
        pub at: SessionNs,
        /// Which one.
        pub level: LevelKind,
    }

    /// Calls of a thread that were counted and not recorded. A later count of the same thread and function replaces it.
    pub struct Counted<'a> as "counted" {
        /// The thread.
        pub stream: StreamId,
        /// The calls, by function.
        pub calls: List<'a, CountedCalls>,
    }

    /// Calls of a function that were counted.
    pub struct CountedCalls as "counted calls" {
        /// The function.
        pub function: FunctionId,
        /// How many, since the thread began.
        pub count: u64,
        /// How many more were recorded, and left out because they took too little time.
        pub brief: u64,
        /// How long those took, in all.
        pub brief_ns: u64,
    }
}
