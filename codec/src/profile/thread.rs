//! The threads behind the streams.

use crate::{SessionNs, StreamId, heph::wire::wire_struct};

wire_struct! {
    /// A thread of the traced process. Sent when it starts, again when its name changes and when it ends.
    pub struct Thread<'a> as "thread" {
        /// The stream that carries its events.
        pub stream: StreamId,
        /// Its id with the operating system.
        pub os_id: u64,
        /// When it was first seen.
        pub start: SessionNs,
        /// When it ended, if it has.
        pub end: Option<SessionNs>,
        /// The stream of the thread that created it, where that is known.
        pub creator: Option<StreamId>,
        /// Its name, possibly empty.
        pub name: &'a str,
    }
}
