//! Which process made another.

use crate::{BirthKind, SessionId, SessionNs, heph::wire::wire_struct};

wire_struct! {
    /// The session that this one came from: the process that made its process, or what the process ran before.
    pub struct Birth as "birth" {
        /// The session of the parent.
        pub parent: SessionId,
        /// How the process was made.
        pub how: BirthKind,
        /// The thread of the parent that made it, by its id with the operating system; 0 if it is not known.
        pub tid: u32,
        /// A time inside the innermost call that was open on that thread, by the clock of the parent's session. Sessions
        /// of one family count from the same zero.
        pub at: SessionNs,
    }
}
