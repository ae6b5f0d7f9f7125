//! Short names for long bytes: FNV-1a, 64 bits.

use crate::heph::wire::travels_as;

/// What an option packet is acknowledged by: the hash of all its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// The fingerprint of a whole packet.
    pub fn of(packet: &[u8]) -> Self {
        Self(extend(OFFSET_BASIS, packet))
    }
}

travels_as! {
    Fingerprint as u64: Fingerprint, |fingerprint| fingerprint.0;
}

/// The hash of a module's function table, by which two sides know that they have the same one: over each
/// function in order, its offset (eight bytes, big-endian), its name and a zero byte.
#[derive(Debug, Clone)]
pub struct FunctionTableHasher(u64);

impl FunctionTableHasher {
    /// The hasher of an empty table.
    pub fn new() -> Self {
        Self(OFFSET_BASIS)
    }

    /// Adds the next function.
    pub fn add(&mut self, offset: u64, name: &str) {
        self.0 = extend(self.0, &offset.to_be_bytes());
        self.0 = extend(self.0, name.as_bytes());
        self.0 = extend(self.0, &[0]);
    }

    /// The hash of the functions added so far.
    pub fn finish(&self) -> u64 {
        self.0
    }
}

impl Default for FunctionTableHasher {
    fn default() -> Self {
        Self::new()
    }
}

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

fn extend(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_published_vectors() {
        assert_eq!(Fingerprint::of(b""), Fingerprint(0xcbf2_9ce4_8422_2325));
        assert_eq!(Fingerprint::of(b"a"), Fingerprint(0xaf63_dc4c_8601_ec8c));
        assert_eq!(Fingerprint::of(b"foobar"), Fingerprint(0x8594_4171_f739_67e8));
    }

    #[test]
    fn a_table_hash_depends_on_where_names_end() {
        let hash = |functions: &[(u64, &str)]| {
            let mut hasher = FunctionTableHasher::new();
            functions.iter().for_each(|(offset, name)| hasher.add(*offset, name));
            hasher.finish()
        };
        assert_eq!(hash(&[(1, "ab")]), Fingerprint::of(b"\0\0\0\0\0\0\0\x01ab\0").0);
        assert_ne!(hash(&[(1, "ab"), (2, "c")]), hash(&[(1, "a"), (2, "bc")]));
    }
}
