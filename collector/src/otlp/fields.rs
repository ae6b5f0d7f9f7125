//! Fields of messages in the encoding of protocol buffers, as far as answers have them.

/// A field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers, up to what cannot be read.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    let mut rest = message;
    std::iter::from_fn(move || {
        let tag = varint(&mut rest)?;
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut rest)?),
            1 => Field::Bytes(take(&mut rest, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                Field::Bytes(take(&mut rest, length)?)
            }
            5 => Field::Bytes(take(&mut rest, 4)?),
            _ => return None,
        };
        Some((tag >> 3, field))
    })
}

/// The bytes of a field.
pub(super) fn bytes(message: &[u8], number: u64) -> Option<&[u8]> {
    fields(message).find_map(|field| match field {
        (found, Field::Bytes(bytes)) if found == number => Some(bytes),
        _ => None,
    })
}

/// The number in a field; 0 where it is not there.
pub(super) fn number(message: &[u8], number: u64) -> u64 {
    let found = fields(message).find_map(|field| match field {
        (found, Field::Number(value)) if found == number => Some(value),
        _ => None,
    });
    found.unwrap_or(0)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_far_as_they_are_whole() {
        let message = [0x08, 0x96, 0x01, 0x12, 3, b'a', b'b', b'c', 0x1d, 1, 2, 3, 4];
        assert_eq!((number(&message, 1), number(&message, 2), bytes(&message, 2)), (150, 0, Some(&b"abc"[..])));
        assert_eq!(fields(&message).count(), 3);
        for length in 0..message.len() {
            assert!(fields(&message[..length]).count() < 3);
        }
        assert_eq!(fields(&[0xff; 20]).count(), 0);
    }
}
