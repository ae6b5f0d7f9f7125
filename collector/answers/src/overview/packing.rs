//! Spans in few bytes, while an overview is made.
//!
//! Each is told by how it differs from the one before, in numbers of as many bytes as they need.

use super::gather::Drawn;

/// The bytes of spans.
pub(super) fn pack(spans: &[Drawn]) -> Vec<u8> {
    let mut to = Vec::with_capacity(spans.len() * 16);
    let (mut end, mut id) = (0, 0);
    for drawn in spans {
        put(difference(drawn.end, end), &mut to);
        put(drawn.end.wrapping_sub(drawn.start), &mut to);
        put(drawn.what.into(), &mut to);
        put(drawn.depth.into(), &mut to);
        to.extend_from_slice(&[drawn.flags, drawn.traits]);
        put(difference(drawn.id, id), &mut to);
        put(difference(drawn.id, drawn.caller), &mut to);
        (end, id) = (drawn.end, drawn.id);
    }
    to
}

/// The spans of bytes that [`pack`] has made.
pub(super) fn unpack(mut bytes: &[u8], to: &mut Vec<Drawn>) {
    to.clear();
    let (mut end, mut id) = (0, 0);
    while !bytes.is_empty() {
        end = undo(take(&mut bytes), end);
        let start = end.wrapping_sub(take(&mut bytes));
        let (what, depth) = (take(&mut bytes) as u32, take(&mut bytes) as u16);
        let (flags, traits) = (take_byte(&mut bytes), take_byte(&mut bytes));
        id = undo(take(&mut bytes), id);
        // The caller is as far before it.
        let caller = id.wrapping_sub(undo(take(&mut bytes), 0));
        to.push(Drawn { start, end, what, depth, flags, traits, id, caller });
    }
}

/// How two numbers differ, small for small differences in both directions.
fn difference(number: u64, other: u64) -> u64 {
    let difference = number.wrapping_sub(other).cast_signed();
    (difference << 1 ^ difference >> 63).cast_unsigned()
}

fn undo(difference: u64, other: u64) -> u64 {
    other.wrapping_add(difference >> 1 ^ (difference & 1).wrapping_neg())
}

fn put(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn take_byte(bytes: &mut &[u8]) -> u8 {
    let Some((first, rest)) = bytes.split_first() else { return 0 };
    *bytes = rest;
    *first
}

fn take(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = take_byte(bytes);
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 || shift > 63 {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let numbers = [0, 1, 63, 64, 127, 128, 1 << 40, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        let mut spans = Vec::new();
        for (at, start) in numbers.into_iter().enumerate() {
            for end in numbers {
                let (what, depth) = (start as u32, end as u16);
                let (id, caller) = (numbers[(at + 3) % numbers.len()], numbers[(at * 7) % numbers.len()]);
                spans.push(Drawn { start, end, what, depth, flags: 3, traits: 200, id, caller });
            }
        }
        let mut unpacked = Vec::new();
        unpack(&pack(&spans), &mut unpacked);
        assert_eq!(unpacked, spans);
    }
}
