//! Who is being traced.

use crate::{
    Arch, Os, SessionId,
    heph::{List, wire::wire_struct},
};

/// The version of the profile described in `docs/wire-format.md`.
pub const PROFILE_VERSION: u16 = 1;

wire_struct! {
    /// One traced run of one process.
    ///
    /// Strings are UTF-8; a sender replaces what is not (a path, an argument) by U+FFFD.
    pub struct Session<'a> as "session" {
        /// The session's id. It stays the same when the agent reconnects.
        pub id: SessionId,
        /// The version of the profile that the agent speaks. 0 where what follows is plain Heph: then a collector has
        /// made the id up, to tell sessions apart in a file.
        pub profile: u16,
        /// The processor.
        pub arch: Arch,
        /// The operating system.
        pub os: Os,
        /// The process id.
        pub pid: u32,
        /// The version of the agent.
        pub agent_version: &'a str,
        /// The name of the machine.
        pub host: &'a str,
        /// The path of the executable.
        pub executable: &'a str,
        /// How many arguments the process has, its own name included.
        pub argument_count: u32,
        /// The first of them. Fewer than `argument_count` where they would not fit.
        pub arguments: List<'a, &'a str>,
    }
}
