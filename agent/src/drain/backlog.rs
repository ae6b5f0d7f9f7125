//! Records of a thread that wait until it is known whether they are asked for.

use std::collections::VecDeque;

use crate::shared::{Kind, Record, header, parse};

/// How many words lie together.
const CHUNK_WORDS: usize = 8_192;

/// Records in their order, in pieces that are let go of as a whole.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    chunks: VecDeque<Chunk>,
    /// How many words of the first one are over.
    read: usize,
    /// How many words there are.
    words: usize,
    /// What the thread is busy with behind the last record.
    substream: u64,
}

/// Records. The first says what the thread is busy with.
#[derive(Debug, Default)]
struct Chunk {
    words: Vec<u64>,
    /// When the last record was, by the counter.
    last: u64,
    /// How many events are left of it.
    events: u64,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        8 * self.words
    }

    /// Adds a record.
    pub(super) fn push(&mut self, words: &[u64]) {
        let Ok(Some((record, _))) = parse(words) else { return };
        let has_room = self.chunks.back().is_some_and(|chunk| chunk.words.len() + words.len() <= CHUNK_WORDS);
        if !has_room {
            let first = vec![record.time, header(Kind::Substream, 3, 0, 0), self.substream];
            self.words += first.len();
            self.chunks.push_back(Chunk { words: first, ..Chunk::default() });
        }
        if record.kind == Kind::Substream {
            self.substream = record.rest.first().copied().unwrap_or(0);
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.last = chunk.last.max(record.time);
            chunk.events += u64::from(record.kind.is_event());
            chunk.words.extend_from_slice(words);
            self.words += words.len();
        }
    }

    /// The first record.
    pub(super) fn first(&self) -> Option<Record<'_>> {
        let words = self.chunks.front()?.words.get(self.read..)?;
        parse(words).ok().flatten().map(|(record, _)| record)
    }

    /// Lets go of the first record.
    pub(super) fn pop(&mut self) {
        let (length, is_event) =
            self.first().map_or((0, false), |record| (record.rest.len() + 2, record.kind.is_event()));
        self.read += length;
        let Some(chunk) = self.chunks.front_mut() else { return };
        chunk.events -= u64::from(is_event);
        if length == 0 || self.read >= chunk.words.len() {
            self.pop_chunk();
        }
    }

    /// When the last of the records was that lie together, and how many bytes those have, for all of them.
    pub(super) fn chunks(&self) -> impl Iterator<Item = (u64, usize)> {
        self.chunks.iter().map(|chunk| (chunk.last, 8 * chunk.words.len()))
    }

    /// When the last of the records was that lie together with the first.
    pub(super) fn chunk_end(&self) -> u64 {
        self.chunks.front().map_or(0, |chunk| chunk.last)
    }

    /// Lets go of all records that lie together with the first. How many events they are.
    pub(super) fn pop_chunk(&mut self) -> u64 {
        self.read = 0;
        let Some(chunk) = self.chunks.pop_front() else { return 0 };
        self.words -= chunk.words.len();
        chunk.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_as_they_went_in_with_what_the_thread_was_busy_with() {
        let mut backlog = Backlog::default();
        let mut expected = Vec::new();
        for time in 1..20_000 {
            let (kind, rest) = match time % 1_000 {
                0 => (Kind::Substream, vec![time]),
                1 => (Kind::Dropped, vec![3]),
                _ => (Kind::Call, vec![]),
            };
            let mut words = vec![time, header(kind, 2 + rest.len(), 0, 1)];
            words.extend(rest);
            backlog.push(&words);
            expected.push((time / 1_000 * 1_000, time, kind));
        }
        assert_eq!(backlog.bytes(), 8 * backlog.chunks.iter().map(|chunk| chunk.words.len()).sum::<usize>());
        // The first are let go of together.
        let (end, events) = (backlog.chunk_end(), backlog.pop_chunk());
        let gone = expected.iter().filter(|(_, time, kind)| *time <= end && kind.is_event()).count();
        assert_eq!(events, gone as u64);
        let (mut substream, mut found) = (0, Vec::new());
        while let Some(record) = backlog.first() {
            match record.kind {
                Kind::Substream => substream = record.rest[0],
                kind => found.push((substream, record.time, kind)),
            }
            backlog.pop();
        }
        expected.retain(|(_, time, kind)| *time > end && *kind != Kind::Substream);
        assert_eq!(found, expected);
        assert_eq!((backlog.is_empty(), backlog.bytes()), (true, 0));
    }
}
