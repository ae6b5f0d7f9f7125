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
/// However hostile the bytes and however they come, the work is linear in their number: what lies inside a packet
/// is looked at only as long as not too much of that was in vain.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    limit: u32,
    skipped_bytes: u64,
    /// Bytes decoded in vain, less an allowance for every byte consumed.
    wasted: usize,
    /// How many bytes must be there before another look can tell more.
    awaiting: usize,
    /// How far the packet at hand, which is good by itself, has been searched for another inside it; 0 before that.
    searched: usize,
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
        Self { limit, skipped_bytes: 0, wasted: 0, awaiting: 0, searched: 0 }
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
        if self.awaiting == 0
            && let Ok(Some(size)) = packet_size(input, self.limit)
            && let Some((bytes, rest)) = input.split_at_checked(size)
            && let Ok(Some(_)) = packet_size(rest, self.limit)
            && let Ok(packet) = decode(bytes)
        {
            self.consume(size);
            return Step::Packet { packet, bytes };
        }
        if input.len() < self.awaiting && !ended {
            return Step::More { needed: self.awaiting };
        }
        match self.look(input, ended, &decode) {
            Look::Good { packet, bytes } => {
                self.consume(bytes.len());
                Step::Packet { packet, bytes }
            }
            Look::More { needed } => {
                self.awaiting = needed;
                Step::More { needed }
            }
            Look::Bad { bytes, cause } => self.skip(input, bytes, cause),
        }
    }

    /// Skips `bytes`, and on to the next head of a packet.
    #[cold]
    fn skip<'a, T>(&mut self, input: &[u8], bytes: usize, cause: DecodeError) -> Step<'a, T> {
        let mut skipped = bytes;
        while let Some(rest) = input.get(skipped..)
            && packet_size(rest, self.limit).is_err()
        {
            skipped = skipped.saturating_add(next_magic(rest));
        }
        self.consume(skipped);
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
        if self.searched == 0 {
            let more = Look::More { needed: size.saturating_add(HEAD_BYTES) };
            match (decode(packet), follows) {
                (Ok(value), Some(true)) => return Look::Good { packet: value, bytes: packet },
                // Whether another follows matters only where another may lie inside.
                (Ok(value), _) if magic_inside(packet, 1).is_none() => {
                    return Look::Good { packet: value, bytes: packet };
                }
                (_, None) => return more,
                (Ok(_), Some(false)) => self.searched = 1,
                (Err(cause), Some(true)) => return Look::Bad { bytes: size, cause },
                // The size is not to be trusted: the next packet may lie inside. Looking there means decoding some
                // bytes again; where that gets out of hand, they are given up instead.
                (Err(cause), Some(false)) => {
                    let decoded = cause.offset().clamp(1, size);
                    let bytes = if self.waste(decoded) { next_magic(input) } else { decoded };
                    return Look::Bad { bytes, cause };
                }
            }
        }
        match self.swallowed(input, size, ended, decode) {
            Swallowed::Nothing => match decode(packet) {
                Ok(value) => Look::Good { packet: value, bytes: packet },
                Err(cause) => Look::Bad { bytes: size, cause },
            },
            Swallowed::Unknown { needed } => Look::More { needed },
            Swallowed::Packet { at } => {
                let cause = DecodeError::TrailingBytes { offset: at, count: size.saturating_sub(at) };
                Look::Bad { bytes: at, cause }
            }
        }
    }

    /// Looks for a packet that starts inside the first `size` bytes of `input`, which are good by themselves. Goes on
    /// where it stopped, so that each place is looked at once.
    #[cold]
    fn swallowed<'a, T>(
        &mut self,
        input: &'a [u8],
        size: usize,
        ended: bool,
        decode: &impl Fn(&'a [u8]) -> Result<T, DecodeError>,
    ) -> Swallowed {
        let packet = input.get(..size).unwrap_or(input);
        while let Some(at) = magic_inside(packet, self.searched) {
            self.searched = at;
            let inner = input.get(at..).unwrap_or_default();
            let needed = match packet_size(inner, self.limit) {
                Ok(Some(length)) => match inner.get(..length).map(decode) {
                    // Both packets were decoded for no more than the bytes up to here.
                    Some(Ok(_)) if self.waste(size.saturating_add(length)) => return Swallowed::Packet { at },
                    Some(Err(error)) if self.waste(error.offset()) => None,
                    Some(_) => return Swallowed::Nothing,
                    None => Some(length),
                },
                Ok(None) => Some(HEAD_BYTES),
                Err(_) => None,
            };
            match needed {
                Some(needed) if !ended => return Swallowed::Unknown { needed: at.saturating_add(needed) },
                _ => self.searched = at.saturating_add(1),
            }
        }
        Swallowed::Nothing
    }

    /// Notes that bytes were decoded in vain, and tells whether that may go on.
    fn waste(&mut self, bytes: usize) -> bool {
        self.wasted = self.wasted.saturating_add(bytes);
        self.wasted <= WASTE_ALLOWED
    }

    #[inline]
    fn consume(&mut self, bytes: usize) {
        self.wasted = self.wasted.saturating_sub(bytes.saturating_mul(WASTE_PER_BYTE));
        (self.awaiting, self.searched) = (0, 0);
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

const MAGICS: [[u8; 4]; 2] = [METADATA_MAGIC.to_be_bytes(), EVENT_MAGIC.to_be_bytes()];

/// Where the first magic constant is in `bytes`, from `from` on.
fn magic_inside(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let [[first, ..], [other, ..]] = MAGICS;
    let is_magic = |at: &usize| rest.get(*at..).is_some_and(|rest| MAGICS.iter().any(|magic| rest.starts_with(magic)));
    memchr::memchr2_iter(first, other, rest).find(is_magic).map(|at| from.saturating_add(at))
}

/// How many bytes to skip to where a packet may start next: a magic constant, or at the end of `input` what
/// may become one.
fn next_magic(input: &[u8]) -> usize {
    let may_start = |tail: &[u8]| MAGICS.iter().any(|magic| magic.starts_with(tail));
    magic_inside(input, 1).unwrap_or_else(|| {
        let first = input.len().saturating_sub(3).max(1);
        let partial = (first..input.len()).find(|&at| input.get(at..).is_some_and(may_start));
        partial.unwrap_or(input.len())
    })
}
