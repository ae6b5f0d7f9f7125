//! The heads of pages, in Thrift's compact protocol.

use super::bits::put_signed;

/// What is in a page.
#[derive(Clone, Copy)]
pub(super) enum Page {
    /// The values that the numbers in the other page stand for.
    Dictionary,
    /// Levels and values, in this encoding.
    Data(i32),
}

/// Values as they are.
pub(super) const PLAIN: i32 = 0;
/// Runs and packed bits.
pub(super) const RLE: i32 = 3;
/// Differences.
pub(super) const DELTA: i32 = 5;
/// Places in a dictionary.
pub(super) const DICTIONARY: i32 = 8;

/// The head of a page with this many values, and bytes before and after they were compressed.
pub(super) fn head(page: Page, values: i32, bytes: i32, compressed: i32) -> Vec<u8> {
    let mut head = Vec::with_capacity(32);
    let (kind, place) = match page {
        Page::Dictionary => (2, 4),
        Page::Data(_) => (0, 2),
    };
    numbers(&mut head, &[kind, bytes, compressed]);
    head.push(place << 4 | STRUCT);
    match page {
        Page::Dictionary => numbers(&mut head, &[values, PLAIN]),
        Page::Data(encoding) => numbers(&mut head, &[values, encoding, RLE, RLE]),
    }
    head.extend([STOP, STOP]);
    head
}

/// The first fields of a structure, all numbers.
fn numbers(to: &mut Vec<u8>, fields: &[i32]) {
    for field in fields {
        to.push(1 << 4 | I32);
        put_signed(to, i64::from(*field));
    }
}

const STOP: u8 = 0;
const I32: u8 = 5;
const STRUCT: u8 = 12;
