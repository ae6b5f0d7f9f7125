//! The modules of the traced process, the functions in them, and what could not be captured of them.

use crate::{
    ModuleId, SessionNs,
    heph::{List, wire::wire_struct},
};

wire_struct! {
    /// An executable or library. Sent when it is loaded, and again when it is unloaded.
    pub struct Module<'a> as "module" {
        /// Its id, never used again in the session.
        pub id: ModuleId,
        /// The address it is loaded at.
        pub base: u64,
        /// How many bytes of address space it takes.
        pub size: u64,
        /// When it was loaded, or first seen.
        pub loaded: SessionNs,
        /// When it was unloaded, if it has been.
        pub unloaded: Option<SessionNs>,
        /// How many functions its table has: the `functions` packets together hold that many.
        pub function_count: u32,
        /// The hash of that table, see [`FunctionTableHasher`](super::FunctionTableHasher).
        pub table_hash: u64,
        /// The build id from its file, possibly empty.
        pub build_id: &'a [u8],
        /// The path of its file.
        pub path: &'a str,
    }

    /// A part of a module's function table.
    pub struct Functions<'a> as "functions" {
        /// The module.
        pub module: ModuleId,
        /// The index of the first function in this part.
        pub first_index: u32,
        /// The functions, in the order of their indices.
        pub functions: List<'a, FunctionName<'a>>,
    }

    /// A function in a module's table.
    pub struct FunctionName<'a> as "function" {
        /// Where it is, counted from the module's base.
        pub offset: u64,
        /// Its name as the symbol table has it, possibly empty.
        pub name: &'a str,
    }

    /// Where functions of a module are in one of its source files.
    pub struct Sources<'a> as "sources" {
        /// The module.
        pub module: ModuleId,
        /// The path of the source file, as the compiler noted it.
        pub file: &'a str,
        /// The functions that begin in it.
        pub lines: List<'a, SourceLine>,
    }

    /// Where a function begins.
    pub struct SourceLine as "source line" {
        /// Its index in the module's table.
        pub index: u32,
        /// The line, from 1.
        pub line: u32,
    }

    /// What could not be captured, and why. A later limit replaces one with the same module, reason and detail.
    pub struct Limits<'a> as "limits" {
        /// The limits.
        pub limits: List<'a, Limit<'a>>,
    }

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
