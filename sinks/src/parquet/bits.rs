//! Numbers of few bits, without gaps between them.

/// Packs numbers of some bits each, the lowest bit first, and zeros after them up to this many.
pub(super) fn pack(to: &mut Vec<u8>, numbers: &[u64], width: u32, up_to: usize) {
    let end = to.len().saturating_add(up_to.saturating_mul(width as usize).div_ceil(8));
    to.reserve(end.saturating_sub(to.len()).saturating_add(8));
    let (mut word, mut used) = (0_u64, 0);
    for number in numbers {
        word |= number.wrapping_shl(used);
        used += width;
        if used >= u64::BITS {
            to.extend_from_slice(&word.to_le_bytes());
            used -= u64::BITS;
            // What of it did not fit.
            word = number.checked_shr(width.saturating_sub(used)).unwrap_or(0);
        }
    }
    to.extend_from_slice(&word.to_le_bytes());
    to.resize(end, 0);
}

/// A number by seven bits a byte, the lowest first.
pub(super) fn put_varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// A number with a sign, small if it is near zero.
pub(super) fn put_signed(to: &mut Vec<u8>, number: i64) {
    put_varint(to, (number << 1 ^ number >> 63).cast_unsigned());
}
