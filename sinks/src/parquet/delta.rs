//! Numbers by their differences, as Parquet has them: `DELTA_BINARY_PACKED`.

use super::bits::{pack, put_signed, put_varint};

/// So many differences have their least one in common.
const BLOCK: usize = 128;

/// So many have their width in common.
const PART: usize = 32;

/// Encodes numbers of 64 bits.
pub(super) fn encode(to: &mut Vec<u8>, numbers: &[u64]) {
    put_varint(to, BLOCK as u64);
    put_varint(to, (BLOCK / PART) as u64);
    put_varint(to, numbers.len() as u64);
    let mut last = numbers.first().copied().unwrap_or(0);
    put_signed(to, last.cast_signed());
    let mut differences = [0_u64; BLOCK];
    for block in numbers.get(1..).unwrap_or_default().chunks(BLOCK) {
        let mut least = i64::MAX;
        for (difference, number) in differences.iter_mut().zip(block) {
            *difference = number.wrapping_sub(last);
            least = least.min(difference.cast_signed());
            last = *number;
        }
        let differences = differences.get_mut(..block.len()).unwrap_or_default();
        for difference in &mut *differences {
            *difference = difference.wrapping_sub(least.cast_unsigned());
        }
        put_signed(to, least);
        // Parts that are not there have a width, too.
        let mut widths = [0; BLOCK / PART];
        for (width, part) in widths.iter_mut().zip(differences.chunks(PART)) {
            *width = u64::BITS - part.iter().fold(0, |all, difference| all | difference).leading_zeros();
        }
        to.extend(widths.iter().map(|width| *width as u8));
        for (width, part) in widths.iter().zip(differences.chunks(PART)) {
            pack(to, part, *width, PART);
        }
    }
}
