//! The packets of one datagram: whole packets, one after the other, to its end.

use super::{DecodeError, Packet, packet_size};

/// Goes through the packets of a datagram.
///
/// A datagram that goes bad yields the packets before the trouble, then one error, and then ends: what lies
/// behind a packet that cannot be trusted cannot be trusted either.
#[derive(Debug, Clone)]
pub struct Packets<'a> {
    datagram: &'a [u8],
    offset: usize,
    limit: u32,
    failed: bool,
}

impl<'a> Packets<'a> {
    /// The packets of `datagram`, none larger than `limit`.
    pub fn new(datagram: &'a [u8], limit: u32) -> Self {
        Self { datagram, offset: 0, limit, failed: false }
    }

    /// How many bytes of the datagram have not been yielded as packets. After an error: how many were lost.
    pub fn remaining_bytes(&self) -> usize {
        self.datagram.len().saturating_sub(self.offset)
    }

    /// The next packet, decoded with `decode`.
    #[inline]
    pub fn next_with<T>(
        &mut self,
        decode: impl FnOnce(&'a [u8]) -> Result<T, DecodeError>,
    ) -> Option<Result<T, DecodeError>> {
        let rest = self.datagram.get(self.offset..).unwrap_or_default();
        if self.failed || rest.is_empty() {
            return None;
        }
        let packet = match frame(rest, self.limit) {
            Ok(packet) => packet,
            Err(error) => return Some(Err(self.fail(error))),
        };
        let decoded = decode(packet);
        match &decoded {
            Ok(_) => self.offset = self.offset.saturating_add(packet.len()),
            Err(error) => return Some(Err(self.fail(*error))),
        }
        Some(decoded)
    }

    /// Ends the iteration at the packet that cannot be read.
    #[cold]
    fn fail(&mut self, error: DecodeError) -> DecodeError {
        self.failed = true;
        error.from_base(self.offset)
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Packet<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.next_with(Packet::decode)
    }
}

#[inline]
fn frame(bytes: &[u8], limit: u32) -> Result<&[u8], DecodeError> {
    let found = bytes.len();
    let size = packet_size(bytes, limit)?;
    size.and_then(|size| bytes.get(..size)).ok_or(match size {
        Some(size) => DecodeError::Incomplete { offset: 0, size, found },
        None => DecodeError::TrailingBytes { offset: 0, count: found },
    })
}
