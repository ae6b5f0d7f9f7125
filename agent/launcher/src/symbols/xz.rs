//! How large a file is that is compressed with xz, by what it says of each of its pieces.

/// The file begins with its magic and two bytes of flags, the second of which says how blocks are checked.
const MAGIC: &[u8] = b"\xFD7zXZ\0";
const HEADER_BYTES: usize = 12;

/// How many bytes it has unpacked. None if it is no such file, or is packed in more ways than LZMA2.
pub(super) fn unpacked_bytes(packed: &[u8]) -> Option<usize> {
    let mut rest = packed.strip_prefix(MAGIC)?;
    let check_bytes = match rest.get(1)? & 0xF {
        0 => 0,
        kind => 4 << ((kind - 1) / 3),
    };
    rest = packed.get(HEADER_BYTES..)?;
    let mut bytes = 0_usize;
    // Behind the blocks is an index, which begins with 0 where a block has its size.
    while let Some(words) = rest.first().filter(|words| **words != 0) {
        let header = (usize::from(*words) + 1) * 4;
        let before = rest.len();
        rest = rest.get(header..)?;
        rest = chunks(rest, &mut bytes)?;
        let padding = (before - rest.len()).next_multiple_of(4) - (before - rest.len());
        rest = rest.get(padding + check_bytes..)?;
    }
    Some(bytes)
}

/// Adds up the chunks of a block, and returns what is behind them.
fn chunks<'a>(mut rest: &'a [u8], bytes: &mut usize) -> Option<&'a [u8]> {
    let size = |at: [u8; 2]| usize::from(u16::from_be_bytes(at)) + 1;
    loop {
        let (packed, unpacked) = match *rest {
            [0, ref behind @ ..] => return Some(behind),
            [1 | 2, a, b, ..] => (3 + size([a, b]), size([a, b])),
            [control @ 0x80..=0xFF, a, b, c, d, ..] => {
                let properties = usize::from(control >= 0xC0);
                (5 + properties + size([c, d]), (usize::from(control & 0x1F) << 16) + size([a, b]))
            }
            _ => return None,
        };
        *bytes = bytes.checked_add(unpacked)?;
        rest = rest.get(packed..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100,000 zeros, packed by xz in two blocks.
    const ZEROS: &str = "\
        fd377a585a000004e6d6b446020021011c00000010cf58cce0ea5f004b5d00006ffdffffa3b7ff473e481572396151b8\
        9228e6a38607f9eee41e82d32fc53a3c014bb17ec98a8a4d2fa30dd97fa6e38c231153e05918c5758ae277f8b6947f0c\
        6ac0de7444c9e985000000002737023bfe22b11b020021011c00000010cf58cce09c3f00455d00006ffdffffa3b7ff47\
        3e481572396151b89228e6a38607f9eee41e82d32fc53a3c014bb17ec98a8a4d2fa30dd97fa6e38c231153e05918c575\
        8ae277f8b6947a631d4e0000000000006840b862fc1db6c9000267e0d40361c0b80200000805f46814173b3003000000\
        0004595a";

    #[test]
    fn the_size_is_known_without_unpacking() {
        let pair = |at: usize| u8::from_str_radix(&ZEROS[at..at + 2], 16).expect("digits");
        let packed: Vec<u8> = (0..ZEROS.len()).step_by(2).map(pair).collect();
        let mut unpacked = Vec::new();
        lzma_rs::xz_decompress(&mut packed.as_slice(), &mut unpacked).expect("it is whole");
        assert_eq!((unpacked_bytes(&packed), unpacked.len()), (Some(100_000), 100_000));
        for end in 0..packed.len() {
            // The index is not looked at.
            assert!(unpacked_bytes(&packed[..end]).is_none_or(|bytes| bytes == 0 || end > 100), "{end}");
        }
    }
}
