//! Packets in a byte stream, found again after bytes that are none.

use super::{DecodeError, EVENT_MAGIC, METADATA_MAGIC, Packet, packet_size};

/// Finds the packets of a byte stream.
///
/// The caller holds the bytes. It passes all it has from the first byte not yet consumed, gets back one
/// [`Step`], drops what that consumed, and repeats. How the bytes were cut into reads makes no difference to
/// what is found.
///
/// Where the stream goes bad, the decoder skips to the next plausible packet and says how many bytes that
/// were. Two packets are distrusted although they are whole:
///
/// * one with bad contents. If another packet follows it, only the contents are bad and it is skipped whole,
///   so that bytes *inside* it (a traced program's stack may hold anything) are not taken for packets;
/// * one with good contents behind which no packet starts, but inside of which one does: its size is wrong or
///   its end was lost, and it has swallowed what came next.
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
const WASTE_ALLOWED: usize = 4 << 20;

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
        // The good case first and without a detour, since this is the hot path: a packet, and behind it another.
        if let Ok(Some(size)) = packet_size(input, self.limit)
            && let Some((bytes, rest)) = input.split_at_checked(size)
            && let Ok(Some(_)) = packet_size(rest, self.limit)
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
        let follows = match packet_size(rest, self.limit) {
            Ok(Some(_)) => Some(true),
            Ok(None) if ended => Some(rest.is_empty()),
            Ok(None) => None,
            Err(_) => Some(false),
        };
        match (decode(packet), follows) {
            (Ok(value), Some(true)) => Look::Good { packet: value, bytes: packet },
            (Ok(value), _) => match self.swallowed(input, size, ended, decode) {
                Swallowed::Nothing => Look::Good { packet: value, bytes: packet },
                // Whether a packet follows is not known yet, and it matters.
                Swallowed::Packet { .. } | Swallowed::Unknown { .. } if follows.is_none() => {
                    Look::More { needed: size.saturating_add(HEAD_BYTES) }
                }
                Swallowed::Unknown { needed } => Look::More { needed },
                Swallowed::Packet { at } => {
                    let cause = DecodeError::TrailingBytes { offset: at, count: size.saturating_sub(at) };
                    Look::Bad { bytes: at, cause }
                }
            },
            (Err(cause), Some(true)) => Look::Bad { bytes: size, cause },
            (Err(_), None) => Look::More { needed: size.saturating_add(HEAD_BYTES) },
            // The size is not to be trusted: the next packet may lie inside. Looking there means decoding some
            // bytes again; where that gets out of hand, they are given up instead.
            (Err(cause), Some(false)) => {
                let decoded = cause.offset().clamp(1, size);
                let bytes = if self.waste(decoded) { next_magic(input) } else { decoded };
                Look::Bad { bytes, cause }
            }
        }
    }

    /// Looks for a packet that starts inside the first `size` bytes of `input`, behind their own start.
    #[cold]
    fn swallowed<'a, T>(
        &mut self,
        input: &'a [u8],
        size: usize,
        ended: bool,
        decode: &impl Fn(&'a [u8]) -> Result<T, DecodeError>,
    ) -> Swallowed {
        let mut at = 0_usize;
        loop {
            // A magic constant may start inside and end behind.
            let searched = input.get(..size.saturating_add(3)).unwrap_or(input);
            at = at.saturating_add(next_magic(searched.get(at..).unwrap_or_default()));
            let inner = input.get(at..).filter(|inner| at < size && !inner.is_empty());
            let Some(inner) = inner else { return Swallowed::Nothing };
            let needed = match packet_size(inner, self.limit) {
                Ok(Some(length)) => match inner.get(..length).map(decode) {
                    // Both packets were decoded for no more than the bytes up to here.
                    Some(Ok(_)) if self.waste(size.saturating_add(length)) => return Swallowed::Packet { at },
                    Some(Ok(_)) => return Swallowed::Nothing,
                    Some(Err(error)) if self.waste(error.offset()) => continue,
                    Some(Err(_)) => return Swallowed::Nothing,
                    None => length,
                },
                Ok(None) => HEAD_BYTES,
                Err(_) => continue,
            };
            if !ended {
                return Swallowed::Unknown { needed: at.saturating_add(needed) };
            }
        }
    }

    /// Notes that bytes were decoded in vain, and tells whether that may go on.
    fn waste(&mut self, bytes: usize) -> bool {
        self.wasted = self.wasted.saturating_add(bytes);
        self.wasted <= WASTE_ALLOWED
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

/// What a packet has swallowed.
enum Swallowed {
    Nothing,
    Packet { at: usize },
    Unknown { needed: usize },
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
