//! The profile of Heph that our agent and collector speak: what their packets mean, as typed values.
//!
//! Everything here is an ordinary Heph packet. What a newer peer adds is kept: unknown options and events come
//! through as they are, unknown attributes stay reachable, and bytes behind the known fields of an option are
//! handed over beside it.

mod ack;
mod clock;
mod drops;
mod end;
mod fingerprint;
mod function;
mod limits;
mod message;
mod module;
mod option;
mod progress;
mod queue;
pub(crate) mod run;
mod runtime;
mod session;
mod thread;

pub use ack::{Ack, Nack, Range};
pub use clock::{Clock, Epoch};
pub use drops::{Dropped, Drops};
pub use end::{End, EndReason};
pub use fingerprint::{Fingerprint, FunctionTableHasher};
pub use function::{Detail, FunctionEvent, MAX_STACK_WORDS, Registers};
pub use limits::{Limit, Limits};
pub use message::Message;
pub use module::{FunctionName, Functions, Module};
pub use option::{Known, ProfileOption};
pub use progress::{Progress, StreamPosition};
pub use queue::Queue;
pub use run::{Run, RunEncoder, RunEvent, RunEvents};
pub use runtime::{Key, Runtime, RuntimeEvent};
pub use session::{PROFILE_VERSION, Session};
pub use thread::Thread;
