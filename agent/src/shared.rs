//! What the two halves share: a block of memory, made in the traced program and mapped by the `agent` command too.
//!
//! ```text
//! ┌─────────┬───────┬──────┬────────┬──────────┬──────┬────────┬──────────┬ …
//! │ control │ slots │ head │ ring   │ counters │ head │ ring   │ counters │    one of each per thread, at a fixed stride
//! └─────────┴───────┴──────┴────────┴──────────┴──────┴────────┴──────────┴ …
//! ```
//!
//! It outlives the program: what a ring holds when the program is killed is shipped all the same. Pages that nobody
//! wrote to take no memory, so there is room for far more rings than there are threads.

#[cfg(feature = "outside")]
mod arena;
mod control;
mod level;
#[cfg(feature = "outside")]
mod lifeline;
mod mailbox;
mod record;
#[cfg(feature = "outside")]
mod request;
mod ring;
mod runtime;
mod shape;
pub mod tsc;

#[cfg(feature = "outside")]
pub use arena::{Arena, ArenaError};
pub use control::{
    Control, FLAG_BLOCK, FLAG_DETAIL, FLAG_FOLLOW_FORKS, FLAG_FOLLOW_PROGRAMS, FLAG_TURN_DOWN, FLAG_WRITE_GS, MAGIC,
    ReaderState, VERSION,
};
pub use level::{
    BEFORE_HEADER, COUNTED, GATE, GATE_START, Level, MOST_SLOTS, OFF, PINNED, SLOT_BYTES, pinned_slot, read_slot,
};
#[cfg(feature = "outside")]
pub use level::{pin_slot, set_slot, unpin_slot};
#[cfg(feature = "outside")]
pub use lifeline::Lifeline;
pub use mailbox::{Command, Mailbox, Subject, Turn};
pub use record::{Kind, MAX_DEPTH, MAX_FUNCTION, MAX_KEYS, MAX_RECORD_WORDS, Record, RecordError, header, parse};
#[cfg(feature = "outside")]
pub use request::{ChildBirth, MailboxRequest};
pub use ring::{MappedRing, Ring, RingHead, RingState, SKIP, WritingEnd};
pub use runtime::{Family, Landmark, RUNTIME_FUNCTIONS, Watched};
pub use shape::{
    BEFORE_CODE, BORROWED_FRAME_BYTES, BORROWED_GONE_BACK, BORROWED_LEAVES, BORROWED_NOBODY, BORROWED_STACK_BYTES,
    CODE_START, CONTROL_BYTES, FRAME_EXTENDED, FRAME_REGISTERS, HEAD_BYTES, LOCAL_POINTER, LOCAL_STATE, LOCAL_THIS,
    STATE_COUNTERS, Shape,
};
