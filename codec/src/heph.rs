//! Heph packets: what any Heph sender may write, and how packets are found in streams and datagrams.
//!
//! Decoding borrows from the bytes it is given and allocates nothing. Encoding appends to the caller's buffer.

mod attribute;
mod datagram;
mod error;
mod event;
mod list;
mod metadata;
mod packet;
mod stream;
pub(crate) mod wire;

pub use attribute::{Attribute, Attributes, AttributesIter, Value};
pub use datagram::Packets;
pub use error::{DecodeError, EncodeError};
pub use event::{EVENT_LAYOUT, EVENT_MAGIC, Event, Stamp};
pub use list::{List, ListIter};
pub use metadata::{METADATA_LAYOUT, METADATA_MAGIC, Metadata};
pub use packet::{Encode, MAX_PACKET_BYTES, Packet, packet_size};
pub use stream::{Step, StreamDecoder};

pub(crate) use event::{EventHead, event_size, read_event, write_event};
pub(crate) use metadata::{metadata_size, write_metadata};
pub(crate) use packet::{Kind, check_room, check_size, whole_kind};
