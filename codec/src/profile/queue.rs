//! The dispatch queues that runtime events name.

use crate::heph::wire::wire_struct;

wire_struct! {
    /// The label of a dispatch queue.
    pub struct Queue<'a> as "queue" {
        /// The number that runtime events use for the queue.
        pub id: u64,
        /// Its label.
        pub label: &'a str,
    }
}
