//! Numbers as Parquet encodes them.

/// Packs numbers of some bits each, the lowest bit first, and zeros after them up to this many.
fn pack(to: &mut Vec<u8>, numbers: impl Iterator<Item = u64>, width: u32, up_to: usize) {
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
fn put_varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// A number with a sign, small if it is near zero.
fn put_signed(to: &mut Vec<u8>, number: i64) {
    put_varint(to, (number << 1 ^ number >> 63).cast_unsigned());
}

/// Packed numbers come in groups of as many.
const GROUP: usize = 8;
/// Packed groups have one head for at most so many, so that it is one byte.
const MOST_GROUPS: usize = 63;

/// Small numbers of this many bits, 1 to 32, as `RLE`: those that come often after one another once, others packed.
pub(super) fn runs(to: &mut Vec<u8>, numbers: &[u32], width: u32) {
    let mut rest = numbers;
    while let Some(first) = rest.first() {
        let same = rest.iter().take_while(|number| *number == first).count();
        // What follows a run starts a group of its own.
        let run = if same == rest.len() { same } else { same / GROUP * GROUP };
        if run >= GROUP {
            one_run(to, *first, run, width);
            rest = rest.get(run..).unwrap_or_default();
            continue;
        }
        let is_mixed = |group: &&[u32]| group.iter().any(|number| Some(number) != group.first());
        let later = rest.get(GROUP..).unwrap_or_default();
        let groups = 1 + later.chunks(GROUP).take(MOST_GROUPS - 1).take_while(is_mixed).count();
        let (packed, behind) = rest.split_at((groups * GROUP).min(rest.len()));
        put_varint(to, (groups as u64) << 1 | 1);
        pack(to, packed.iter().map(|number| u64::from(*number)), width, groups * GROUP);
        rest = behind;
    }
}

/// One number as often as it comes, as [`runs`] encodes it.
pub(super) fn one_run(to: &mut Vec<u8>, number: u32, count: usize, width: u32) {
    if count > 0 {
        put_varint(to, (count as u64) << 1);
        to.extend(number.to_le_bytes().iter().take(width.div_ceil(8) as usize));
    }
}

/// So many differences have their least one in common.
const BLOCK: usize = 128;
/// So many have their width in common.
const PART: usize = 32;

/// Numbers of 64 bits by their differences, as `DELTA_BINARY_PACKED`.
pub(super) fn differences(to: &mut Vec<u8>, numbers: &[u64]) {
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
            pack(to, part.iter().copied(), *width, PART);
        }
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    fn varint(bytes: &mut &[u8]) -> usize {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a byte");
            *bytes = rest;
            number |= usize::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        number
    }

    fn decode(mut bytes: &[u8], width: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        while !bytes.is_empty() {
            let head = varint(&mut bytes);
            if head & 1 == 0 {
                let (value, rest) = bytes.split_at(width.div_ceil(8));
                let value = value.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
                numbers.extend(std::iter::repeat_n(value, head >> 1));
                bytes = rest;
            } else {
                let (packed, rest) = bytes.split_at((head >> 1) * width);
                let bit = |at: usize| u32::from(packed[at / 8] >> (at % 8) & 1);
                let number = |at: usize| (0..width).map(|place| bit(at * width + place) << place).sum::<u32>();
                numbers.extend((0..(head >> 1) * GROUP).map(number));
                bytes = rest;
            }
        }
        numbers
    }

    quickcheck! {
        fn what_is_encoded_is_decoded(lengths: Vec<(u32, u8)>, width: u8) -> bool {
            let width = u32::from(width) % 32 + 1;
            let mut numbers = Vec::new();
            for (value, times) in lengths {
                // Half of them are short.
                let times = usize::from(if times & 1 == 0 { times } else { times % 4 });
                numbers.extend(std::iter::repeat_n(u32::try_from(u64::from(value) & ((1 << width) - 1)).expect("few"), times));
            }
            let mut bytes = Vec::new();
            runs(&mut bytes, &numbers, width);
            let decoded = decode(&bytes, width as usize);
            decoded.starts_with(&numbers)
                && decoded.len() < numbers.len() + GROUP
                && decoded[numbers.len()..].iter().all(|more| *more == 0)
        }
    }

    #[test]
    fn long_runs_take_few_bytes_and_single_numbers_have_heads_of_one() {
        let mut bytes = Vec::new();
        runs(&mut bytes, &[70_000; 100_000], 17);
        assert_eq!(bytes.len(), 6);
        let numbers: Vec<_> = (0..2000).map(|number| number % 7).collect();
        bytes.clear();
        runs(&mut bytes, &numbers, 3);
        assert_eq!((bytes.len(), decode(&bytes, 3)), (2000 * 3 / 8 + 4, numbers));
    }
}
