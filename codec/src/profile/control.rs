//! What a collector asks of an agent while it traces, and what that answers.

use crate::{AnswerKind, SessionId, heph::wire::wire_struct};

/// The longest request.
pub const MAX_REQUEST_BYTES: usize = 4_096;

/// The longest text of an answer.
pub const MAX_ANSWER_BYTES: usize = 16_384;

wire_struct! {
    /// The collector wants to know something of a session, or to have it changed.
    pub struct Ask<'a> as "ask" {
        /// The session.
        pub session: SessionId,
        /// What the answer is known by. One that comes again asks for nothing new.
        pub number: u64,
        /// A word, and what it is about.
        pub request: &'a str,
    }

    /// What came of that.
    pub struct Answer<'a> as "answer" {
        /// The session.
        pub session: SessionId,
        /// What was answered.
        pub number: u64,
        /// Whether it was done.
        pub kind: AnswerKind,
        /// What came of it, or why nothing did.
        pub text: &'a str,
    }
}
