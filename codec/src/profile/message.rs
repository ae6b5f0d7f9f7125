//! Any packet, read by the profile.

use bytes::BufMut;

use super::{FunctionEvent, Known, Run, RuntimeEvent, function::Collected, run::RUN};
use crate::{
    EventKind,
    heph::{Attribute, Attributes, DecodeError, Encode, EncodeError, Event, Kind, Metadata, read_event, whole_kind},
};

/// What a packet says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Message<'a> {
    /// A function was called or left.
    Function(FunctionEvent<'a>),
    /// Functions were called and left.
    Run(Run<'a>),
    /// Something happened in a runtime that is known here.
    Runtime(RuntimeEvent<'a>),
    /// Any other event.
    Event(Event<'a>),
    /// An option of the profile.
    Option(Known<'a>),
    /// Any other option.
    Metadata(Metadata<'a>),
    /// An option with a name of the profile, but not the layout.
    BadOption {
        /// The option as it is.
        metadata: Metadata<'a>,
        /// Why it cannot be read.
        error: DecodeError,
    },
}

impl<'a> Message<'a> {
    /// Decodes `packet`, which must be one whole packet and nothing else.
    ///
    /// Only bytes that are not Heph are an error. An event that has the name of a function event, run or runtime event but
    /// not its attributes comes as [`Message::Event`]; an option that has the name of one of the profile but not
    /// its layout comes as [`Message::BadOption`].
    #[inline]
    pub fn decode(packet: &'a [u8]) -> Result<Self, DecodeError> {
        match whole_kind(packet)? {
            Kind::Event => {
                if let Some(run) = Run::read_canonical(packet) {
                    return Ok(Self::Run(run));
                }
                match FunctionEvent::read_canonical(packet) {
                    Some(event) => Ok(Self::Function(event)),
                    None => Self::decode_event(packet),
                }
            }
            Kind::Metadata => {
                let metadata = Metadata::read(packet)?;
                Ok(match Known::decode(&metadata) {
                    Ok(Some(known)) => Self::Option(known),
                    Ok(None) => Self::Metadata(metadata),
                    Err(error) => Self::BadOption { metadata, error },
                })
            }
        }
    }

    #[inline(never)]
    fn decode_event(packet: &'a [u8]) -> Result<Self, DecodeError> {
        let mut collected = Collected::default();
        let visit = |attribute: &Attribute<'a>| collected.add(attribute);
        let event = read_event(packet, |reader| Attributes::read_visiting(reader, visit))?;
        Ok(match EventKind::from_description(event.description) {
            Some(kind) => collected.function_event(kind, &event).map_or(Self::Event(event), Self::Function),
            None if event.description == RUN => Run::of(&event).map_or(Self::Event(event), Self::Run),
            None => RuntimeEvent::of(&event).map_or(Self::Event(event), Self::Runtime),
        })
    }
}

impl Encode for Message<'_> {
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        match self {
            Self::Function(event) => event.encoded_len(),
            Self::Run(run) => run.encoded_len(),
            Self::Runtime(event) => event.encoded_len(),
            Self::Event(event) => event.encoded_len(),
            Self::Option(option) => option.encoded_len(),
            Self::Metadata(metadata) | Self::BadOption { metadata, .. } => metadata.encoded_len(),
        }
    }

    fn encode(&self, out: &mut impl BufMut) -> Result<usize, EncodeError> {
        match self {
            Self::Function(event) => event.encode(out),
            Self::Run(run) => run.encode(out),
            Self::Runtime(event) => event.encode(out),
            Self::Event(event) => event.encode(out),
            Self::Option(option) => option.encode(out),
            Self::Metadata(metadata) | Self::BadOption { metadata, .. } => metadata.encode(out),
        }
    }
}
