//! Every option of the profile.

use bytes::BufMut;

use super::{
    Ack, Answer, Ask, Birth, Claim, Clock, Counted, Drops, End, Epoch, Functions, Kept, Levels, Limits, Module, Nack,
    Offset, Progress, Queue, Refused, Session, Sources, Thread, Times, Token, TraceContext,
};
use crate::heph::{
    DecodeError, Encode, EncodeError, Metadata, metadata_size,
    wire::{Reader, Wire},
    write_metadata,
};

/// An option that is known here, and what its sender put behind the fields that are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known<'a> {
    /// The option.
    pub option: ProfileOption<'a>,
    /// Bytes behind its known fields. A newer sender may have added fields at the end.
    pub extra: &'a [u8],
}

impl<'a> Known<'a> {
    /// Decodes an option, or returns `None` if it is not one of the profile.
    pub fn decode(metadata: &Metadata<'a>) -> Result<Option<Self>, DecodeError> {
        let mut reader = Reader::new(metadata.value, metadata.value_offset());
        let Some(option) = ProfileOption::read(metadata.name, &mut reader)? else { return Ok(None) };
        let extra = reader.rest();
        // Heph defines `epoch` and its size.
        if matches!(option, ProfileOption::Epoch(_)) && !extra.is_empty() {
            return Err(DecodeError::TrailingBytes { offset: reader.offset(), count: extra.len() });
        }
        Ok(Some(Self { option, extra }))
    }
}

impl Known<'_> {
    fn measure(&self) -> Result<usize, EncodeError> {
        let bytes = self.option.measure()?;
        let length = bytes.saturating_add(self.extra.len());
        if matches!(self.option, ProfileOption::Epoch(_)) && length > bytes {
            return Err(EncodeError::TooLong { field: "epoch", length, limit: bytes });
        }
        Ok(length)
    }
}

impl Encode for Known<'_> {
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        metadata_size(self.option.name(), self.measure()?)
    }

    fn encode(&self, out: &mut impl BufMut) -> Result<usize, EncodeError> {
        write_metadata(self.option.name(), self.measure()?, out, |out| {
            self.option.write(out);
            out.put_slice(self.extra);
        })
    }
}

macro_rules! options {
    ($($(#[$meta:meta])* $name:literal => $variant:ident($($ty:tt)+),)+) => {
        /// An option of the profile.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ProfileOption<'a> {
            $($(#[$meta])* $variant($($ty)+),)+
        }

        impl<'a> ProfileOption<'a> {
            /// The names of all options.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The option's name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)+
                }
            }

            fn read(name: &str, reader: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
                match name {
                    $($name => Wire::read(reader, $name).map(|value| Some(Self::$variant(value))),)+
                    _ => Ok(None),
                }
            }

            fn measure(&self) -> Result<usize, EncodeError> {
                match self {
                    $(Self::$variant(value) => value.measure($name),)+
                }
            }

            fn write(&self, out: &mut impl BufMut) {
                match self {
                    $(Self::$variant(value) => value.write(out),)+
                }
            }
        }

        $(
            impl<'a> From<$($ty)+> for ProfileOption<'a> {
                fn from(value: $($ty)+) -> Self {
                    Self::$variant(value)
                }
            }
        )+
    };
}

options! {
    /// The session's zero by the wall clock.
    "epoch" => Epoch(Epoch),
    /// The session's zero by the trace's clock.
    "clock" => Clock(Clock),
    /// The session's zero by the collector's clock.
    "offset" => Offset(Offset),
    /// Who is being traced.
    "session" => Session(Session<'a>),
    /// Which process made this one.
    "birth" => Birth(Birth),
    /// The distributed trace that the process is part of.
    "context" => TraceContext(TraceContext<'a>),
    /// A thread.
    "thread" => Thread(Thread<'a>),
    /// A module.
    "module" => Module(Module<'a>),
    /// A part of a module's function table.
    "functions" => Functions(Functions<'a>),
    /// Where functions of a module are in their sources.
    "sources" => Sources(Sources<'a>),
    /// The label of a dispatch queue.
    "queue" => Queue(Queue<'a>),
    /// What could not be captured.
    "limits" => Limits(Limits<'a>),
    /// Functions whose level has changed.
    "levels" => Levels(Levels<'a>),
    /// Calls that were counted and not recorded.
    "counted" => Counted(Counted<'a>),
    /// What the agent lost.
    "drops" => Drops(Drops<'a>),
    /// How far the streams have come.
    "progress" => Progress(Progress<'a>),
    /// The session is over.
    "end" => End(End<'a>),
    /// That the session is the sender's.
    "claim" => Claim(Claim<'a>),
    /// That the sender may send.
    "token" => Token(Token<'a>),
    /// What came of what the collector asked for.
    "answer" => Answer(Answer<'a>),
    /// From the collector: what it has.
    "ack" => Ack(Ack<'a>),
    /// From the collector: when it was asked and answered.
    "times" => Times(Times),
    /// From the collector: what would survive its end.
    "kept" => Kept(Kept<'a>),
    /// From the collector: what it misses.
    "nack" => Nack(Nack<'a>),
    /// From the collector: why it takes nothing.
    "refused" => Refused(Refused<'a>),
    /// From the collector: what it wants to know, or to be changed.
    "ask" => Ask(Ask<'a>),
}

impl Encode for ProfileOption<'_> {
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Known { option: *self, extra: &[] }.encoded_len()
    }

    fn encode(&self, out: &mut impl BufMut) -> Result<usize, EncodeError> {
        Known { option: *self, extra: &[] }.encode(out)
    }
}
