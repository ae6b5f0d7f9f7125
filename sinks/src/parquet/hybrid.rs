//! Small numbers as runs and packed bits, as Parquet has them: levels, and the places of values in a dictionary.

use super::bits::{pack, put_varint};

/// Encodes numbers. Those that come often after one another are told once, others take a few bits each.
pub(super) struct Hybrid {
    /// How many bits a number has.
    width: u32,
    bytes: Vec<u8>,
    /// Numbers that are yet to be packed. They come before those of the run.
    single: Vec<u64>,
    /// What comes over and over now.
    value: u64,
    count: usize,
}

/// Packed numbers come in groups of as many.
const GROUP: usize = 8;

/// A row of groups has at most this many numbers, so that its head is one byte.
const MOST: usize = 63 * GROUP;

impl Hybrid {
    /// Numbers of this many bits: 1 to 32.
    pub(super) fn new(width: u32) -> Self {
        Self { width: width.clamp(1, 32), bytes: Vec::new(), single: Vec::new(), value: 0, count: 0 }
    }

    /// Adds a number some times.
    #[inline]
    pub(super) fn repeat(&mut self, value: u64, times: usize) {
        if value == self.value {
            self.count = self.count.saturating_add(times);
        } else if times > 0 {
            self.end_run();
            (self.value, self.count) = (value, times);
        }
    }

    /// Adds a number.
    #[inline]
    pub(super) fn push(&mut self, value: u64) {
        self.repeat(value, 1);
    }

    fn end_run(&mut self) {
        // The numbers before a run are whole groups. It helps them out.
        let missing = self.single.len().next_multiple_of(GROUP).saturating_sub(self.single.len());
        let rest = self.count.saturating_sub(missing);
        if rest < GROUP {
            self.single.extend(std::iter::repeat_n(self.value, self.count));
            return;
        }
        self.single.extend(std::iter::repeat_n(self.value, missing));
        self.pack();
        put_varint(&mut self.bytes, (rest as u64) << 1);
        let value = self.value.to_le_bytes();
        self.bytes.extend(value.iter().take(self.width.div_ceil(8) as usize));
    }

    fn pack(&mut self) {
        for numbers in self.single.chunks(MOST) {
            let groups = numbers.len().div_ceil(GROUP);
            put_varint(&mut self.bytes, (groups as u64) << 1 | 1);
            pack(&mut self.bytes, numbers, self.width, groups.saturating_mul(GROUP));
        }
        self.single.clear();
    }

    /// All of them. Others can be added afterwards, from the start.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.end_run();
        self.pack();
        (self.value, self.count) = (0, 0);
        std::mem::take(&mut self.bytes)
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

    fn decode(mut bytes: &[u8], width: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        while !bytes.is_empty() {
            let head = varint(&mut bytes);
            if head & 1 == 0 {
                let (value, rest) = bytes.split_at(width.div_ceil(8));
                let value = value.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
                numbers.extend(std::iter::repeat_n(value, head >> 1));
                bytes = rest;
            } else {
                let (packed, rest) = bytes.split_at((head >> 1) * width);
                let bit = |at: usize| u64::from(packed[at / 8] >> (at % 8) & 1);
                let number = |at: usize| (0..width).map(|place| bit(at * width + place) << place).sum::<u64>();
                numbers.extend((0..(head >> 1) * GROUP).map(number));
                bytes = rest;
            }
        }
        numbers
    }

    quickcheck! {
        fn what_is_encoded_is_decoded(runs: Vec<(u32, u8)>, width: u8) -> bool {
            let width = u32::from(width) % 32 + 1;
            let mut hybrid = Hybrid::new(width);
            let mut numbers = Vec::new();
            for (value, times) in runs {
                // Half of them are short.
                let times = usize::from(if times & 1 == 0 { times } else { times % 4 });
                let value = u64::from(value) & ((1 << width) - 1);
                hybrid.repeat(value, times);
                numbers.extend(std::iter::repeat_n(value, times));
            }
            let decoded = decode(&hybrid.take(), width as usize);
            decoded.starts_with(&numbers)
                && decoded.len() < numbers.len() + GROUP
                && decoded[numbers.len()..].iter().all(|more| *more == 0)
                && hybrid.take().is_empty()
        }
    }

    #[test]
    fn a_long_run_takes_few_bytes() {
        let mut hybrid = Hybrid::new(17);
        (0..100_000).for_each(|_| hybrid.push(70_000));
        assert_eq!(hybrid.take().len(), 6);
    }

    #[test]
    fn many_single_numbers_have_heads_of_one_byte() {
        let mut hybrid = Hybrid::new(3);
        (0..2000).for_each(|number| hybrid.push(number % 7));
        let bytes = hybrid.take();
        assert_eq!(bytes.len(), 2000 * 3 / 8 + 4);
        assert!(decode(&bytes, 3).into_iter().eq((0..2000).map(|number| number % 7)));
    }
}
