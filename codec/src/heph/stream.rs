//! Packets in a byte stream, found again after bytes that are none.

use super::{DecodeError, EVENT_MAGIC, METADATA_MAGIC, Packet, packet_size};

/// Finds the packets of a byte stream.
///
/// The caller holds the bytes. It passes all it has from the first byte not yet consumed, gets back one
/// [`Step`], drops what that consumed, and repeats.
///
/// Where the stream goes bad, the decoder skips to the next plausible packet and says how many bytes that
/// were. A packet with a sound frame but bad contents is skipped whole if another packet follows it, so that
/// bytes *inside* a packet (a traced program's stack may hold anything) are not taken for packets.
///
/// However hostile the bytes, the work is linear in their number.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    limit: u32,
    skipped_bytes: u64,
    /// Bytes decoded in vain, less an allowance for every byte consumed.
    wasted: usize,
}

/// What a [`StreamDecoder`] found at the start of the bytes it was given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step<'a, T = Packet<'a>> {
    /// A packet.
    Packet {
        /// What it was decoded to.
        packet: T,
        /// Its bytes, all of them consumed.
        bytes: &'a [u8],
    },
    /// Bytes that are no packet.
    Skip {
        /// How many are consumed.
        bytes: usize,
        /// What was wrong with the first of them.
        cause: DecodeError,
    },
    /// Nothing can be said before there are at least this many bytes in all. Nothing is consumed.
    More {
        /// The bytes needed, counted from the start of those that were passed.
        needed: usize,
    },
}

/// The bytes that tell a packet's kind and size.
const HEAD_BYTES: usize = 8;

/// How many bytes may be decoded in vain for each byte consumed, and how many before that is looked at.
const WASTE_PER_BYTE: usize = 8;
const WASTE_ALLOWED: usize = 1 << 20;

impl StreamDecoder {
    /// A decoder at the start of a stream, for packets of at most `limit` bytes.
    pub fn new(limit: u32) -> Self {
        Self { limit, skipped_bytes: 0, wasted: 0 }
    }

    /// All bytes skipped so far.
    pub fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// Looks at the start of `input`. `ended` says that no more bytes will come.
    ///
    /// At the end of the stream, `More` is only returned for no bytes at all.
    #[inline]
    pub fn step<'a>(&mut self, input: &'a [u8], ended: bool) -> Step<'a> {
        self.step_with(input, ended, Packet::decode)
    }

    /// Like [`step`](Self::step), decoding each framed packet with `decode`.
    #[inline]
    pub fn step_with<'a, T>(
        &mut self,
        input: &'a [u8],
        ended: bool,
        decode: impl Fn(&'a [u8]) -> Result<T, DecodeError>,
    ) -> Step<'a, T> {
        // The good case first and without a detour: this is the hot path.
        if let Ok(Some(size)) = packet_size(input, self.limit)
            && let Some(bytes) = input.get(..size)
            && let Ok(packet) = decode(bytes)
        {
            self.consume(size);
            return Step::Packet { packet, bytes };
        }
        match self.look(input, ended, &decode) {
            Look::Good { packet, bytes } => {
                self.consume(bytes.len());
                Step::Packet { packet, bytes }
            }
            Look::More { needed } => Step::More { needed },
            Look::Bad { bytes, cause } => self.skip(input, ended, &decode, bytes, cause),
        }
    }

    /// Skips `bytes`, and on to the next good packet as far as `input` tells.
    #[cold]
    fn skip<'a, T>(
        &mut self,
        input: &'a [u8],
        ended: bool,
        decode: &impl Fn(&'a [u8]) -> Result<T, DecodeError>,
        bytes: usize,
        cause: DecodeError,
    ) -> Step<'a, T> {
        self.consume(bytes);
        let mut skipped = bytes;
        while let Some(rest) = input.get(skipped..).filter(|rest| !rest.is_empty()) {
            let Look::Bad { bytes, .. } = self.look(rest, ended, decode) else { break };
            self.consume(bytes);
            skipped = skipped.saturating_add(bytes);
        }
        self.skipped_bytes = self.skipped_bytes.saturating_add(u64::try_from(skipped).unwrap_or(u64::MAX));
        Step::Skip { bytes: skipped, cause }
    }

    #[cold]
    fn look<'a, T>(
        &mut self,
        input: &'a [u8],
        ended: bool,
        decode: &impl Fn(&'a [u8]) -> Result<T, DecodeError>,
    ) -> Look<'a, T> {
        let found = input.len();
        let size = match packet_size(input, self.limit) {
            Ok(Some(size)) => size,
            Ok(None) if ended && found > 0 => {
                let cause = DecodeError::Incomplete { offset: 0, size: HEAD_BYTES, found };
                return Look::Bad { bytes: found, cause };
            }
            Ok(None) => return Look::More { needed: HEAD_BYTES },
            Err(cause) => return Look::Bad { bytes: next_magic(input), cause },
        };
        let Some((packet, rest)) = input.split_at_checked(size) else {
            if !ended {
                return Look::More { needed: size };
            }
            let cause = DecodeError::Incomplete { offset: 0, size, found };
            return Look::Bad { bytes: next_magic(input), cause };
        };
        match decode(packet) {
            Ok(value) => Look::Good { packet: value, bytes: packet },
            Err(cause) => self.distrust(input, rest, ended, cause),
        }
    }

    /// How much to skip of a packet that is whole but bad inside; `rest` is what lies behind it.
    #[cold]
    fn distrust<'a, T>(&mut self, input: &[u8], rest: &[u8], ended: bool, cause: DecodeError) -> Look<'a, T> {
        let size = input.len().saturating_sub(rest.len());
        let framed = match packet_size(rest, self.limit) {
            Ok(Some(_)) => true,
            Ok(None) if ended => rest.is_empty(),
            Ok(None) => return Look::More { needed: size.saturating_add(HEAD_BYTES) },
            Err(_) => false,
        };
        if framed {
            return Look::Bad { bytes: size, cause };
        }
        // The size is not to be trusted: the next packet may lie inside. Looking there means decoding some
        // bytes again; where that gets out of hand, they are given up instead.
        let decoded = cause.offset().clamp(1, size);
        self.wasted = self.wasted.saturating_add(decoded);
        let bytes = if self.wasted > WASTE_ALLOWED { decoded } else { next_magic(input) };
        Look::Bad { bytes, cause }
    }

    #[inline]
    fn consume(&mut self, bytes: usize) {
        self.wasted = self.wasted.saturating_sub(bytes.saturating_mul(WASTE_PER_BYTE));
    }
}

enum Look<'a, T> {
    Good { packet: T, bytes: &'a [u8] },
    Bad { bytes: usize, cause: DecodeError },
    More { needed: usize },
}

/// How many bytes to skip to where a packet may start next: a magic constant, or at the end of `input` what
/// may become one.
fn next_magic(input: &[u8]) -> usize {
    let magics = [METADATA_MAGIC.to_be_bytes(), EVENT_MAGIC.to_be_bytes()];
    let starts = |tail: &[u8]| magics.iter().any(|magic| tail.starts_with(magic));
    let may_start = |tail: &[u8]| magics.iter().any(|magic| magic.starts_with(tail));
    let whole = input.windows(4).skip(1).position(starts).map(|at| at.saturating_add(1));
    whole.unwrap_or_else(|| {
        let first = input.len().saturating_sub(3).max(1);
        let partial = (first..input.len()).find(|&at| input.get(at..).is_some_and(may_start));
        partial.unwrap_or(input.len())
    })
}
