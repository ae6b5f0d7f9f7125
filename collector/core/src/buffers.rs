//! Memory for batches, used again and again.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Buffers that batches are collected in. A batch goes through other threads; when the last of them is done with it,
/// its buffer comes back, instead of being given to the system and asked for anew.
#[derive(Debug, Clone)]
pub(crate) struct Buffers {
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
    capacity: usize,
}

/// How many bytes are kept in spare buffers.
const SPARE_BYTES: usize = 8 << 20;

impl Buffers {
    /// Buffers of at least this many bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { spare: Arc::default(), capacity }
    }

    /// An empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Vec::with_capacity(self.capacity))
    }

    /// Makes a buffer something to be shared, which comes back here in the end.
    pub(crate) fn share(&self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Shared { buffer, home: self.clone() })
    }
}

struct Shared {
    buffer: Vec<u8>,
    home: Buffers,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut spare = self.home.spare.lock().unwrap_or_else(PoisonError::into_inner);
        // One that a huge packet has grown is not worth keeping.
        let fits = buffer.capacity() <= 2 * self.home.capacity;
        if fits && spare.len() * self.home.capacity < SPARE_BYTES {
            spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_nobody_has_it_any_more() {
        let buffers = Buffers::new(1000);
        let mut buffer = buffers.take();
        buffer.extend_from_slice(b"batch");
        let address = buffer.as_ptr();
        let shared = buffers.share(buffer);
        let other = shared.clone();
        drop(shared);
        assert_eq!(&other[..], b"batch");
        let meanwhile = buffers.take();
        assert_ne!(meanwhile.as_ptr(), address, "somebody still reads it");
        drop(other);
        let again = buffers.take();
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
    }
}
