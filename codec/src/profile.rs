//! The profile of Heph that our agent and collector speak: what their packets mean, as typed values.
//!
//! Everything here is an ordinary Heph packet. What a newer peer adds is kept: unknown options and events come
//! through as they are, unknown attributes stay reachable, and bytes behind the known fields of an option are
//! handed over beside it.

mod access;
mod birth;
mod context;
mod control;
mod delivery;
mod end;
mod fingerprint;
mod function;
mod level;
mod message;
mod module;
mod option;
pub(crate) mod run;
mod runtime;
mod session;

pub use crate::{AnswerKind, BirthKind, Key, LevelKind};
pub use access::{Claim, Refused, Token};
pub use birth::Birth;
pub use context::TraceContext;
pub use control::{Answer, Ask, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES};
pub use delivery::{Ack, Dropped, Drops, Kept, Lost, Nack, Progress, Range, StreamPosition, Times};
pub use end::{End, EndReason};
pub use fingerprint::{Fingerprint, FunctionTableHasher};
pub use function::{Detail, FunctionEvent, MAX_STACK_WORDS, Registers};
pub use level::{Counted, CountedCalls, LevelChange, Levels};
pub use message::Message;
pub use module::{FunctionName, Functions, Limit, Limits, Module, SourceLine, Sources};
pub use option::{Known, ProfileOption};
pub use run::{Run, RunEncoder, RunEvent, RunEvents};
pub use runtime::{Runtime, RuntimeEvent};
pub use session::{Clock, Epoch, Offset, PROFILE_VERSION, Queue, Session, Thread};
