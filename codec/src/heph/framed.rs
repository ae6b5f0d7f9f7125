//! The stream decoder as a `tokio_util` codec.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;
use tokio_util::codec::{Decoder, Encoder};

use super::{DecodeError, Encode, EncodeError, MAX_PACKET_BYTES, Packet, Step, StreamDecoder};

/// Frames Heph packets in an asynchronous byte stream.
///
/// It yields [`Frame`] items: packets, and between them an account of the bytes that were none. The input
/// itself is never an error.
///
/// An item owns its bytes, so that it is decoded once here and once more where its values are wanted. Where that
/// counts, use [`StreamDecoder::step_with`] on the buffer instead.
#[derive(Debug, Clone)]
pub struct HephCodec {
    decoder: StreamDecoder,
}

impl HephCodec {
    /// A codec for packets of at most `limit` bytes.
    pub fn new(limit: u32) -> Self {
        Self { decoder: StreamDecoder::new(limit) }
    }

    /// All bytes skipped so far.
    pub fn skipped_bytes(&self) -> u64 {
        self.decoder.skipped_bytes()
    }

    fn next(&mut self, input: &mut BytesMut, ended: bool) -> Option<Frame> {
        match self.decoder.step(input, ended) {
            Step::Packet { bytes, .. } => {
                let size = bytes.len();
                Some(Frame::Packet(PacketBuf(input.split_to(size).freeze())))
            }
            Step::Skip { bytes, cause } => {
                input.advance(bytes);
                Some(Frame::Skipped { bytes, cause })
            }
            Step::More { needed } => {
                input.reserve(needed.saturating_sub(input.len()));
                None
            }
        }
    }
}

impl Default for HephCodec {
    fn default() -> Self {
        Self::new(MAX_PACKET_BYTES)
    }
}

impl Decoder for HephCodec {
    type Item = Frame;
    type Error = FramingError;

    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FramingError> {
        Ok(self.next(input, false))
    }

    fn decode_eof(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FramingError> {
        Ok(self.next(input, true))
    }
}

impl<T: Encode> Encoder<T> for HephCodec {
    type Error = FramingError;

    fn encode(&mut self, packet: T, out: &mut BytesMut) -> Result<(), FramingError> {
        packet.encode(out)?;
        Ok(())
    }
}

/// What a [`HephCodec`] found in a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// A packet.
    Packet(PacketBuf),
    /// Bytes that are no packet.
    Skipped {
        /// How many.
        bytes: usize,
        /// What was wrong with the first of them.
        cause: DecodeError,
    },
}

/// A packet that holds its bytes. They have been checked: it always has a [`Packet`] to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketBuf(Bytes);

impl PacketBuf {
    /// Checks that `bytes` are one whole packet, and keeps them.
    pub fn new(bytes: Bytes) -> Result<Self, DecodeError> {
        Packet::decode(&bytes)?;
        Ok(Self(bytes))
    }

    /// The packet.
    pub fn packet(&self) -> Packet<'_> {
        match Packet::decode(&self.0) {
            Ok(packet) => packet,
            Err(error) => unreachable!("decoded before: {error}"),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

/// Why a stream of packets ended, or a packet could not be sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FramingError {
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The packet cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}
