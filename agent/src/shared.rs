//! What the two halves share: a block of memory, made in the traced program and mapped by the `agent` command too.
//!
//! ```text
//! ┌─────────┬──────┬───────────┬──────┬───────────┬ …
//! │ control │ head │ ring      │ head │ ring      │      one head and ring per thread, at a fixed stride
//! └─────────┴──────┴───────────┴──────┴───────────┴ …
//! ```
//!
//! It outlives the program: what a ring holds when the program is killed is shipped all the same. Pages that nobody
//! wrote to take no memory, so there is room for far more rings than there are threads.

mod arena;
mod control;
mod lifeline;
mod mailbox;
mod record;
mod ring;
mod runtime;
pub mod tsc;

pub use arena::{Arena, ArenaError, CONTROL_BYTES, HEAD_BYTES, Shape};
pub use control::{Control, FLAG_BLOCK, FLAG_DETAIL, MAGIC, VERSION};
pub use lifeline::{Lifeline, ReaderState};
pub use mailbox::{Command, Mailbox, MailboxRequest, Turn};
pub use record::{Kind, MAX_DEPTH, MAX_FUNCTION, MAX_KEYS, MAX_RECORD_WORDS, Record, RecordError, header, parse};
pub use ring::{MappedRing, Ring, RingHead, RingState, SKIP, WritingEnd};
pub use runtime::{Family, Landmark, RUNTIME_FUNCTIONS, Watched};
