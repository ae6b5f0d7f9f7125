//! Every order in which the two ends of a ring, and threads that take one after another, can see what the others do.
//!
//! What runs here is the code that runs outside and in the target (there, but for the common case, which is in assembly).

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64},
    },
    thread,
};

use super::{
    atomic::{Atomic, atomic},
    ends::Ring,
    *,
};
use crate::shared::{Kind, Record, header, parse};

atomic!(AtomicU64: u64, AtomicU32: u32);

/// Words in a ring: one record fits behind another, and a third only if it is read meanwhile.
const WORDS: usize = 8;

struct ModelRing {
    head: RingHead<AtomicU64, AtomicU32>,
    words: [UnsafeCell<u64>; WORDS],
}

impl ModelRing {
    fn new() -> Arc<Self> {
        Arc::new(Self { head: RingHead::default(), words: std::array::from_fn(|_| UnsafeCell::new(0)) })
    }
}

// SAFETY: the checker sees whether two use a word at once.
unsafe impl Sync for ModelRing {}

impl Ring for ModelRing {
    type Word = AtomicU64;
    type Half = AtomicU32;

    fn head(&self) -> &RingHead<AtomicU64, AtomicU32> {
        &self.head
    }

    fn start(&self) -> usize {
        4096
    }

    fn size(&self) -> usize {
        8 * WORDS
    }

    unsafe fn write(&self, at: usize, word: u64) {
        // SAFETY: the checker sees whether somebody else uses it.
        self.words[at / 8].with_mut(|place| unsafe { *place = word });
    }

    unsafe fn read(&self, at: usize, words: usize, into: &mut Vec<u64>) {
        // SAFETY: as above.
        into.extend(self.words[at / 8..][..words].iter().map(|place| place.with(|word| unsafe { *word })));
    }
}

/// A thread that has a ring: writes events with these numbers, each of three words or, where it is even, of two.
fn write(ring: &ModelRing, numbers: std::ops::Range<u64>) -> WritingEnd {
    let mut end = WritingEnd::new(ring);
    for number in numbers {
        let record = [1, header(Kind::Return, 3, 0, number as u32), number];
        let short = [1, header(Kind::Call, 2, 0, number as u32)];
        if !end.put(ring, if number % 2 == 0 { &short } else { &record }) {
            end.drop_event(ring);
        }
    }
    end
}

/// What the outside knows of a thread.
#[derive(Default)]
struct Seen {
    /// The number of the next event.
    next: u64,
    reported: u64,
}

impl Seen {
    /// Takes the records out of a ring that are there. Whether there were any.
    fn take(&mut self, ring: &ModelRing) -> bool {
        let mut words = Vec::new();
        let read = copy(ring, WORDS, &mut words);
        let mut taken = 0;
        while words.get(taken).is_some_and(|word| *word != SKIP) {
            let (record, length) = parse(&words[taken..]).expect("records").expect("whole ones");
            self.record(&record);
            taken += length;
        }
        assert!(words.is_empty() || taken > 0);
        if taken > 0 {
            advance(ring, read + 8 * taken as u64);
        }
        taken > 0
    }

    fn record(&mut self, record: &Record<'_>) {
        match record.kind {
            Kind::Dropped => {
                self.next += record.rest[0];
                self.reported += record.rest[0];
            }
            _ => {
                assert_eq!(u64::from(record.function), self.next, "in their order, and each once");
                self.next += 1;
            }
        }
    }

    /// Its thread is gone.
    fn finish(&mut self, ring: &ModelRing) {
        while self.take(ring) {}
        self.next += Atomic::load(&ring.head.dropped, Ordering::Relaxed) - self.reported;
    }
}

#[test]
fn what_is_read_was_written() {
    loom::model(|| {
        const EVENTS: u64 = 5;
        let ring = ModelRing::new();
        let writing = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || write(&ring, 0..EVENTS))
        };
        let mut seen = Seen::default();
        for _ in 0..2 {
            seen.take(&ring);
        }
        writing.join().expect("it ends");
        seen.finish(&ring);
        assert_eq!(seen.next, EVENTS, "what was not read was counted");
    });
}

#[test]
fn a_ring_has_one_thread_at_a_time() {
    loom::model(|| {
        let ring = ModelRing::new();
        let gone = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let threads = [1_u32, 2].map(|tid| {
            let (ring, gone) = (Arc::clone(&ring), Arc::clone(&gone));
            thread::spawn(move || {
                let is_taken = ring.head.take();
                if is_taken {
                    Atomic::store(&ring.head.tid, tid, Ordering::Relaxed);
                    ring.head.open();
                    assert_eq!(write(&ring, 0..2).untold, 0, "it was empty");
                }
                // The system says so.
                gone[tid as usize - 1].store(true, Ordering::Release);
                is_taken
            })
        });
        let mut found = Vec::new();
        let look = |found: &mut Vec<u32>| {
            if ring.head.is_live() {
                let tid = Atomic::load(&ring.head.tid, Ordering::Relaxed);
                if gone[tid as usize - 1].load(Ordering::Acquire) {
                    let mut seen = Seen::default();
                    seen.finish(&ring);
                    assert_eq!(seen.next, 2, "of thread {tid} all, and nothing of another");
                    ring.head.free();
                    found.push(tid);
                }
            }
        };
        look(&mut found);
        let takers = threads.map(|thread| thread.join().expect("it ends"));
        look(&mut found);
        look(&mut found);
        found.sort_unstable();
        let expected: Vec<u32> = (1..).zip(takers).filter(|(_, took)| *took).map(|(tid, _)| tid).collect();
        assert!(found == expected && !found.is_empty(), "{found:?} of {expected:?}");
    });
}
