//! The token in front of a stream.

use std::ops::Range;

use codec::{access::MAX_TOKEN_BYTES, heph::METADATA_MAGIC};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What a stream begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// A token, there, in a packet that ends there.
    Token { value: Range<usize>, end: usize },
    /// Something else.
    Nothing,
}

/// The option's name, behind its length.
const NAME: &[u8] = b"\0\x05token";

/// Where the name, the token's length and the token are in the packet.
const NAME_AT: usize = 8;
const LENGTH_AT: usize = NAME_AT + NAME.len();
const TOKEN_AT: usize = LENGTH_AT + 2;

/// Reads as far as it takes to know.
pub(super) async fn read(reader: &mut (impl AsyncRead + Unpin), first: &mut Vec<u8>) -> Shown {
    loop {
        if let Some(shown) = look(first) {
            return shown;
        }
        if !reader.read_buf(first).await.is_ok_and(|read| read > 0) {
            return Shown::Nothing;
        }
    }
}

/// What these first bytes are, if that can be said already.
fn look(first: &[u8]) -> Option<Shown> {
    let begins = |at: usize, wanted: &[u8]| {
        let there = first.get(at..).unwrap_or_default();
        there.iter().zip(wanted).all(|(there, wanted)| there == wanted)
    };
    if !begins(0, &METADATA_MAGIC.to_be_bytes()) || !begins(NAME_AT, NAME) {
        return Some(Shown::Nothing);
    }
    let size = u32::from_be_bytes(first.get(4..8)?.try_into().ok()?) as usize;
    let length = usize::from(u16::from_be_bytes(first.get(LENGTH_AT..TOKEN_AT)?.try_into().ok()?));
    // Something else under that name is a wrong one.
    let length = if size == TOKEN_AT + length && length <= MAX_TOKEN_BYTES { length } else { 0 };
    let end = if length == 0 { first.len() } else { size };
    (first.len() >= end).then(|| Shown::Token { value: TOKEN_AT..TOKEN_AT + length, end })
}

#[cfg(test)]
mod tests {
    use codec::{
        heph::Encode,
        profile::{Epoch, ProfileOption, Token},
    };

    use super::*;

    fn packet(option: ProfileOption<'_>) -> Vec<u8> {
        let mut packet = Vec::new();
        option.encode(&mut packet).expect("it fits");
        packet
    }

    #[test]
    fn a_token_is_found_as_soon_as_it_is_whole() {
        let whole = packet(Token { token: b"open sesame" }.into());
        let end = whole.len();
        let followed = [&whole[..], b"more"].concat();
        for length in 0..end {
            assert_eq!(look(&followed[..length]), None, "{length} bytes");
        }
        let value = end - 11..end;
        assert_eq!(look(&followed), Some(Shown::Token { value, end }));
    }

    #[test]
    fn anything_else_is_none_at_its_first_byte_that_differs() {
        let other = packet(Epoch { unix_ns: 1 }.into());
        assert_eq!((look(&other[..10]), look(&other[..11])), (None, Some(Shown::Nothing)));
        assert_eq!(look(b"GET"), Some(Shown::Nothing));
        let mut long = packet(Token { token: &[7; MAX_TOKEN_BYTES + 1] }.into());
        assert!(matches!(look(&long), Some(Shown::Token { value, .. }) if value.is_empty()));
        long[7] = 3;
        assert!(matches!(look(&long), Some(Shown::Token { value, .. }) if value.is_empty()));
    }
}
