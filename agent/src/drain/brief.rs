//! Calls that are left out because they took too little time, and those that may yet take long enough.
//!
//! A call is held back until its function returns. Where that took long enough, it is passed on, and before it all calls that
//! were held back before: its callers. Otherwise it is counted, and the time that it took is summed up.

use std::collections::HashMap;

use crate::shared::{Kind, MAX_DEPTH, Record, header};

/// The most calls that are held back: more than can be on a stack.
const MOST_HELD: usize = 1 << 21;

/// The calls of a thread that are not over, and those that are left out.
#[derive(Debug, Default)]
pub(super) struct Brief {
    /// In the order in which they were made. So are those that were passed on: they come first.
    held: Vec<Held>,
    passed: usize,
    /// The records of those that were not.
    words: Vec<u64>,
    /// What the thread is busy with, and what it was when the last record was passed on.
    substream: u64,
    told: u64,
    sums: HashMap<u32, Sum>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    function: u32,
    depth: u32,
    /// When it was made, by the counter.
    entered: u64,
    /// Where its record is, and how long.
    at: usize,
    length: usize,
    substream: u64,
    /// It seems to have ended in a call of another function, at this time.
    tail_called: Option<u64>,
}

/// Calls of a function that were left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) time_ns: u64,
}

impl Brief {
    /// Takes a record, and adds those that are to be passed on to `out`. `elapsed` says how many nanoseconds lie between two
    /// times of the counter.
    pub(super) fn take(
        &mut self,
        record: &Record<'_>,
        words: &[u64],
        is_entry_only: bool,
        least_ns: u64,
        elapsed: impl Fn(u64, u64) -> u64,
        out: &mut Vec<u64>,
    ) {
        match record.kind {
            // Nobody can tell how long it takes.
            Kind::Call if is_entry_only => self.sum(record.function, 0),
            Kind::Call => self.call(record, words, elapsed, out),
            Kind::Return | Kind::Exception => {
                let entered = record.rest.first().copied().unwrap_or(record.time);
                let time_ns = elapsed(entered, record.time);
                let is_its = |held: &Held| held.entered == entered && held.function == record.function;
                let place = self.held.iter().rposition(is_its);
                let is_passed = place.is_some_and(|place| self.first_replaced_by(place) < self.passed);
                if time_ns >= least_ns || is_passed {
                    // Without a call of its own, all others are its callers.
                    self.pass_on(place.map_or(self.held.len(), |place| place + 1), out);
                    self.tell(record.time, words, self.substream, out);
                } else {
                    self.sum(record.function, time_ns);
                }
                if let Some(place) = place {
                    self.remove(place);
                }
            }
            Kind::Substream => self.substream = record.rest.first().copied().unwrap_or(0),
            // Whatever else there is stays, with its callers; and what is missing may have been a return.
            _ => {
                self.pass_on(self.held.len(), out);
                self.tell(record.time, words, self.substream, out);
            }
        }
    }

    fn call(&mut self, record: &Record<'_>, words: &[u64], elapsed: impl Fn(u64, u64) -> u64, out: &mut Vec<u64>) {
        // What has ended in calls of others, which have returned, is over.
        while let Some(last) = self.held.last().copied().filter(|last| last.depth >= record.depth)
            && let Some(end) = last.tail_called
        {
            if self.held.len() > self.passed {
                self.sum(last.function, elapsed(last.entered, end));
            }
            self.remove(self.held.len() - 1);
        }
        if let Some(last) = self.held.last_mut().filter(|last| last.depth == record.depth && last.depth < MAX_DEPTH) {
            last.tail_called = Some(record.time);
        }
        if self.held.len() >= MOST_HELD {
            self.pass_on(self.held.len(), out);
            self.held.clear();
            self.passed = 0;
        }
        let Record { function, depth, time, .. } = *record;
        let (at, length, substream) = (self.words.len(), words.len(), self.substream);
        self.words.extend_from_slice(words);
        self.held.push(Held { function, depth, entered: time, at, length, substream, tail_called: None });
    }

    /// The first of the calls that ended in a call of the next, up to this one, which returns for all of them.
    fn first_replaced_by(&self, place: usize) -> usize {
        let before = self.held[..place].iter().rev();
        let depth = self.held[place].depth;
        place - before.take_while(|held| held.tail_called.is_some() && held.depth == depth).count()
    }

    /// Passes on the calls that have lasted long enough by now, though they are not over.
    pub(super) fn pass_on_long(&mut self, is_long: impl Fn(u64) -> bool, out: &mut Vec<u64>) {
        let long = self.held[self.passed..].iter().take_while(|held| is_long(held.entered)).count();
        self.pass_on(self.passed + long, out);
    }

    /// Passes on all calls that are not over.
    pub(super) fn pass_on_all(&mut self, out: &mut Vec<u64>) {
        self.pass_on(self.held.len(), out);
    }

    /// How many calls of which functions were left out, and how long they took.
    pub(super) fn sums(&self) -> impl Iterator<Item = (u32, Sum)> {
        self.sums.iter().map(|(function, sum)| (*function, *sum))
    }

    fn pass_on(&mut self, up_to: usize, out: &mut Vec<u64>) {
        for place in self.passed..up_to {
            let Held { entered, at, length, substream, .. } = self.held[place];
            let words = std::mem::take(&mut self.words);
            self.tell(entered, &words[at..at + length], substream, out);
            self.words = words;
        }
        self.passed = self.passed.max(up_to);
        if self.passed == self.held.len() {
            self.words.clear();
        }
    }

    fn tell(&mut self, time: u64, words: &[u64], substream: u64, out: &mut Vec<u64>) {
        if substream != self.told {
            self.told = substream;
            out.extend([time, header(Kind::Substream, 3, 0, 0), substream]);
        }
        out.extend_from_slice(words);
    }

    fn sum(&mut self, function: u32, time_ns: u64) {
        let sum = self.sums.entry(function).or_default();
        sum.count += 1;
        sum.time_ns += time_ns;
    }

    fn remove(&mut self, place: usize) {
        let removed = self.held.remove(place);
        if place < self.passed {
            self.passed -= 1;
        } else if place == self.held.len() {
            self.words.truncate(removed.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::parse;

    /// What is passed on of these records, by kind, depth and time, with 100 ns as the least.
    struct Sieve(Brief, Vec<u64>);

    impl Sieve {
        fn new() -> Self {
            Self(Brief::default(), Vec::new())
        }

        fn put(&mut self, kind: Kind, depth: u32, function: u32, time: u64, rest: &[u64]) -> &mut Self {
            let mut words = vec![time, header(kind, 2 + rest.len(), depth, function)];
            words.extend(rest);
            let (record, _) = parse(&words).expect("a record").expect("whole");
            self.0.take(&record, &words, function == 99, 100, |from, to| to - from, &mut self.1);
            self
        }

        fn call(&mut self, depth: u32, function: u32, time: u64) -> &mut Self {
            self.put(Kind::Call, depth, function, time, &[])
        }

        fn leave(&mut self, depth: u32, function: u32, time: u64, entered: u64) -> &mut Self {
            self.put(Kind::Return, depth, function, time, &[entered])
        }

        fn passed(&mut self) -> Vec<(Kind, u32, u64)> {
            let (words, mut at, mut all) = (std::mem::take(&mut self.1), 0, Vec::new());
            while let Ok(Some((record, length))) = parse(&words[at..]) {
                all.push((record.kind, record.function, record.time));
                at += length;
            }
            assert_eq!(at, words.len());
            all
        }

        fn sum(&self, function: u32) -> (u64, u64) {
            self.0.sums.get(&function).map_or((0, 0), |sum| (sum.count, sum.time_ns))
        }
    }

    #[test]
    fn what_takes_long_enough_is_passed_on_with_its_callers() {
        let mut sieve = Sieve::new();
        sieve.call(0, 1, 10).call(1, 2, 20).leave(1, 2, 30, 20).call(1, 3, 40).call(2, 4, 50).leave(2, 4, 149, 50);
        assert_eq!(sieve.passed(), []);
        sieve.leave(1, 3, 140, 40);
        assert_eq!(sieve.passed(), [(Kind::Call, 1, 10), (Kind::Call, 3, 40), (Kind::Return, 3, 140)]);
        // Its caller has been passed on, and takes long enough anyway.
        sieve.call(1, 2, 150).leave(1, 2, 151, 150).leave(0, 1, 160, 10);
        assert_eq!(sieve.passed(), [(Kind::Return, 1, 160)]);
        assert_eq!((sieve.sum(1), sieve.sum(2), sieve.sum(3), sieve.sum(4)), ((0, 0), (2, 11), (0, 0), (1, 99)));
        assert!(sieve.0.held.is_empty() && sieve.0.words.is_empty());
    }

    #[test]
    fn what_ends_in_a_call_of_another_is_over_when_the_next_one_comes() {
        let mut sieve = Sieve::new();
        sieve.call(0, 1, 10);
        for round in 0..1_000 {
            let time = 100 + 10 * round;
            sieve.call(1, 2, time).call(1, 3, time + 3).leave(1, 3, time + 5, time + 3);
        }
        assert!(sieve.0.held.len() <= 2);
        sieve.call(1, 4, 20_000);
        assert_eq!((sieve.sum(2), sieve.sum(3)), ((1_000, 3_000), (1_000, 2_000)));
        // The one that it ends in takes long: then it is its caller.
        sieve.call(1, 5, 20_001).leave(1, 5, 20_200, 20_001);
        let all = [(Kind::Call, 1, 10), (Kind::Call, 4, 20_000), (Kind::Call, 5, 20_001), (Kind::Return, 5, 20_200)];
        assert_eq!(sieve.passed(), all);
    }

    #[test]
    fn what_returns_for_one_that_was_passed_on_is_passed_on() {
        let mut sieve = Sieve::new();
        sieve.call(0, 1, 10).call(1, 2, 20).call(1, 3, 300).call(1, 4, 310);
        sieve.0.pass_on_long(|entered| entered <= 20, &mut sieve.1);
        assert_eq!(sieve.passed(), [(Kind::Call, 1, 10), (Kind::Call, 2, 20)]);
        sieve.leave(1, 4, 320, 310);
        assert_eq!(sieve.passed(), [(Kind::Call, 3, 300), (Kind::Call, 4, 310), (Kind::Return, 4, 320)]);
        sieve.call(1, 5, 330).leave(1, 5, 340, 330);
        assert_eq!((sieve.passed(), sieve.sum(5)), (vec![], (1, 10)));
        assert!([2, 3, 4].into_iter().all(|function| sieve.sum(function) == (0, 0)));
    }

    #[test]
    fn coroutines_return_in_any_order() {
        let mut sieve = Sieve::new();
        // Two stacks, with two functions each; the first goes on when the second has begun.
        sieve.call(0, 1, 10).call(1, 2, 20).call(0, 3, 30).call(1, 4, 40);
        sieve.leave(1, 2, 50, 20).leave(0, 1, 60, 10).leave(1, 4, 70, 40).leave(0, 3, 200, 30);
        assert_eq!(sieve.passed(), [(Kind::Call, 3, 30), (Kind::Return, 3, 200)]);
        assert_eq!((sieve.sum(1), sieve.sum(2), sieve.sum(4)), ((1, 50), (1, 30), (1, 30)));
    }

    #[test]
    fn whatever_else_there_is_stays_with_its_callers_and_what_it_belongs_to() {
        let mut sieve = Sieve::new();
        sieve.put(Kind::Substream, 0, 0, 5, &[7]).call(0, 1, 10).put(Kind::Substream, 0, 0, 15, &[8]);
        sieve.put(Kind::Runtime, 1, 0, 20, &[20, u64::MAX]);
        let substream = |time| (Kind::Substream, 0, time);
        assert_eq!(sieve.passed(), [substream(10), (Kind::Call, 1, 10), substream(20), (Kind::Runtime, 0, 20)]);
        // Its call was passed on, so its return is.
        sieve.leave(0, 1, 30, 10).call(0, 99, 40);
        assert_eq!(sieve.passed(), [(Kind::Return, 1, 30)]);
        assert_eq!(sieve.sum(99), (1, 0));
        // One that was called before anything was recorded.
        sieve.leave(0, 6, 500, 1).leave(0, 6, 501, 500);
        assert_eq!((sieve.passed(), sieve.sum(6)), (vec![(Kind::Return, 6, 500)], (1, 1)));
        sieve.call(0, 1, 600).call(1, 2, 650);
        sieve.0.pass_on_long(|entered| entered <= 600, &mut sieve.1);
        assert_eq!(sieve.passed(), [(Kind::Call, 1, 600)]);
    }
}
