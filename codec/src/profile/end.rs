//! How a session ended.

use bytes::BufMut;

use super::StreamPosition;
use crate::{
    SessionNs,
    heph::{
        DecodeError, EncodeError, List,
        wire::{Reader, Wire, wire_struct},
    },
};

wire_struct! {
    /// The session is over.
    pub struct End<'a> as "end" {
        /// How it ended.
        pub reason: EndReason,
        /// When.
        pub at: SessionNs,
        /// How many streams the session had.
        pub stream_count: u32,
        /// Where they ended; those that do not fit are in further packets.
        pub streams: List<'a, StreamPosition>,
    }
}

/// How a session ended. A byte for the way and a 32-bit number for the code or signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The process exited with this code.
    Exited(i32),
    /// The process was ended by this signal.
    Signaled(i32),
    /// The agent was detached; the process goes on.
    Detached,
    /// The process became another program.
    Replaced,
    /// A way that has no name here, and its number.
    Other(u8, i32),
}

impl EndReason {
    /// The process has ended, and nobody can say how: its parent has taken notice before it could be asked.
    pub const UNKNOWN: Self = Self::Other(5, 0);

    fn numbers(self) -> (u8, i32) {
        match self {
            Self::Exited(code) => (1, code),
            Self::Signaled(signal) => (2, signal),
            Self::Detached => (3, 0),
            Self::Replaced => (4, 0),
            Self::Other(way, number) => (way, number),
        }
    }
}

impl<'a> Wire<'a> for EndReason {
    const WIDTH: Option<usize> = Some(5);

    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let way = u8::read(reader, field)?;
        let number = i32::read(reader, field)?;
        Ok(match (way, number) {
            (1, code) => Self::Exited(code),
            (2, signal) => Self::Signaled(signal),
            (3, 0) => Self::Detached,
            (4, 0) => Self::Replaced,
            _ => Self::Other(way, number),
        })
    }

    fn measure(&self, _: &'static str) -> Result<usize, EncodeError> {
        Ok(5)
    }

    fn write(&self, out: &mut impl BufMut) {
        let (way, number) = self.numbers();
        way.write(out);
        number.write(out);
    }
}
