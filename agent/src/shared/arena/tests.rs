//! The memory from both sides.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
    thread,
};

use quickcheck::quickcheck;
use rustix::fs::{MemfdFlags, memfd_create};

use super::*;
use crate::{
    drain::fake::FakeTarget,
    shared::{Kind, SKIP, header, parse},
};

/// A file with these words at its start, and this long.
fn file(words: [u64; 4], bytes: u64) -> File {
    let file = File::from(memfd_create("rings", MemfdFlags::CLOEXEC).expect("memory"));
    file.set_len(bytes).expect("memory");
    for (at, word) in (0..).zip(words) {
        file.write_all_at(&word.to_le_bytes(), 8 * at).expect("memory");
    }
    file
}

#[test]
fn only_what_is_laid_out_well_is_mapped() {
    let shape = Shape { ring_bytes: 8_192, rings: 3 };
    let bytes = shape.bytes().expect("it can be addressed") as u64;
    let version = u64::from(VERSION);
    assert_eq!(Arena::map(file([MAGIC, version, 8_192, 3], bytes)).expect("it is laid out well").shape(), shape);
    for words in [
        [MAGIC + 1, version, 8_192, 3],
        [MAGIC, version + 1, 8_192, 3],
        [MAGIC, version, 8_193, 3],
        [MAGIC, version, 2_048, 3],
        [MAGIC, version, 8_192, 4],
        [MAGIC, version, 1 << 63, 1 << 63],
        [MAGIC, version, 0, 3],
    ] {
        assert!(matches!(Arena::map(file(words, bytes)), Err(ArenaError::Layout)), "{words:x?}");
    }
    assert!(matches!(Arena::map(file([0; 4], 10)), Err(ArenaError::Map(_))));
}

#[test]
fn a_ring_that_is_given_back_is_empty_and_free() {
    let target = FakeTarget::new(8_192, 2);
    let mut thread = target.thread(1, 7, "name");
    thread.call(1, 2);
    let head = target.arena.head(1);
    assert!(head.is_live() && target.arena.rings_used() == 2);
    assert_eq!(head.name(), *b"name\0\0\0\0\0\0\0\0\0\0\0\0");
    head.dropped.store(5, Ordering::Relaxed);
    target.arena.free(1);
    assert!(!head.is_live());
    let mut words = vec![1];
    assert_eq!(target.arena.copy(1, 100, &mut words), 0);
    assert!(words.is_empty() && head.dropped.load(Ordering::Relaxed) == 0);
    // The memory went back, and comes again as zeros.
    let mut thread = target.thread(1, 8, "other");
    thread.call(3, 4);
    target.arena.copy(1, 100, &mut words);
    assert_eq!(words.get(1), Some(&header(Kind::Call, 2, 4, 3)));
}

/// Takes up to `most` words out of a ring, and of them the whole records. How many words those were.
fn take(arena: &Arena, ring: usize, most: usize, words: &mut Vec<u64>, mut each: impl FnMut(u64)) -> usize {
    let read = arena.copy(ring, most, words);
    let mut taken = 0;
    while words.get(taken).is_some_and(|word| *word != SKIP)
        && let Some((record, length)) = parse(&words[taken..]).expect("records")
    {
        each(record.rest.first().copied().unwrap_or(u64::MAX));
        taken += length;
    }
    arena.advance(ring, read + 8 * taken as u64);
    taken
}

quickcheck! {
    fn what_goes_in_comes_out(sizes: Vec<u8>, reads: Vec<u8>) -> bool {
        let target = FakeTarget::new(4_096, 1);
        let mut thread = target.thread(0, 1, "");
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        let mut words = Vec::new();
        let mut reads = reads.iter().cycle();
        for (number, size) in (0..).zip(sizes.iter().cycle().take(20 * sizes.len())) {
            let length = 3 + usize::from(*size) % 70;
            let mut record = vec![0; length];
            record[..3].copy_from_slice(&[1, header(Kind::Label, length, 0, 0), number]);
            while !thread.put(&record) {
                let most = 255 + usize::from(reads.next().copied().unwrap_or(0));
                take(&target.arena, 0, most, &mut words, |number| found.push(number));
            }
            expected.push(number);
        }
        while take(&target.arena, 0, 300, &mut words, |number| found.push(number)) > 0 {}
        found == expected
    }
}

#[test]
fn one_writes_while_the_other_reads() {
    const RECORDS: u64 = 200_000;
    let target = FakeTarget::new(1 << 14, 1);
    let mut writer = target.thread(0, 1, "");
    let arena = Arc::clone(&target.arena);
    let reader = thread::spawn(move || {
        let (mut next, mut words) = (0, Vec::new());
        while next < RECORDS {
            let taken = take(&arena, 0, 300, &mut words, |number| {
                assert_eq!(number, next);
                next += 1;
            });
            if taken == 0 {
                thread::yield_now();
            }
        }
    });
    let mut number = 0;
    while number < RECORDS {
        // A few at a time, of different sizes together.
        let count = (number % 5 + 1).min(RECORDS - number);
        let records = (number..number + count).flat_map(|number| [1, header(Kind::Substream, 3, 0, 0), number]);
        match writer.put(&records.collect::<Vec<_>>()) {
            true => number += count,
            false => thread::yield_now(),
        }
    }
    reader.join().expect("every record comes once and in order");
}
