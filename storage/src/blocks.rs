//! What was read of objects in buckets: blocks, of which the least recently used are forgotten.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;

use crate::{
    Metadata,
    bucket::{Bucket, lock},
};

/// Objects are asked for whole blocks.
const BLOCK: u64 = 64 << 10;

/// What all blocks may take.
const MOST_BLOCKS: usize = 1024;

/// How much more than was asked for is read of an object that is read from front to back, at most.
const MOST_AHEAD: u64 = 4 << 20;

/// An object in a bucket.
#[derive(Debug)]
pub struct Object {
    bucket: Arc<Bucket>,
    key: String,
    len: u64,
    /// What tells it from another object that has its name later.
    number: u64,
    tag: Option<String>,
    /// Where the next read begins if it is read from front to back, and how much is read ahead then.
    ahead: Mutex<(u64, u64)>,
}

/// The blocks of all objects.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    held: HashMap<(u64, u64), Block>,
    /// How many objects the blocks are of.
    objects: HashMap<u64, usize>,
    clock: u64,
}

#[derive(Debug)]
struct Block {
    bytes: Bytes,
    used: u64,
}

impl Object {
    pub(crate) fn new(bucket: Arc<Bucket>, key: String, metadata: Metadata, tag: Option<String>) -> Self {
        let Metadata { len, identity: (_, number), .. } = metadata;
        Self { bucket, key, len, number, tag, ahead: Mutex::default() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = offset.saturating_add(buffer.len() as u64).min(self.len);
        let wanted = usize::try_from(end.saturating_sub(offset)).unwrap_or(0);
        let mut done = 0;
        while done < wanted {
            let at = offset.saturating_add(done as u64);
            let (block, skip) = (at / BLOCK, usize::try_from(at % BLOCK).unwrap_or(0));
            let held = self.blocks().get(self.number, block);
            let bytes = match held {
                Some(bytes) => bytes,
                None => self.fetch(block, end)?,
            };
            let from = bytes.get(skip..).filter(|from| !from.is_empty()).ok_or(io::ErrorKind::UnexpectedEof)?;
            let to = buffer.get_mut(done..wanted).unwrap_or_default();
            let count = from.len().min(to.len());
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            done = done.saturating_add(count);
        }
        Ok(done)
    }

    /// Gets a block, those up to `end` that are missing behind it, and more where it is read from front to back.
    fn fetch(&self, first: u64, end: u64) -> io::Result<Bytes> {
        let start = first.saturating_mul(BLOCK);
        let wanted = end.div_ceil(BLOCK).max(first.saturating_add(1));
        let last = {
            let blocks = self.blocks();
            let missing = (first..wanted).take_while(|block| !blocks.has(self.number, *block)).count() as u64;
            let share = (MOST_BLOCKS / 4 / blocks.objects.len().max(1)) as u64;
            let mut ahead = lock(&self.ahead);
            let (next, more) = *ahead;
            let more = if start == next && start > 0 { (more * 2).clamp(BLOCK, MOST_AHEAD) } else { 0 };
            let last = first.saturating_add(missing.max(1)).saturating_add((more / BLOCK).min(share));
            let last = last.min(self.len.div_ceil(BLOCK));
            *ahead = (last.saturating_mul(BLOCK), more);
            last
        };
        let bytes = self.bucket.get(&self.key, self.tag.as_deref(), start..last.saturating_mul(BLOCK).min(self.len))?;
        let mut blocks = self.blocks();
        for (block, at) in (first..last).zip((0..bytes.len()).step_by(BLOCK as usize)) {
            let end = at.saturating_add(BLOCK as usize).min(bytes.len());
            // A copy: a slice would keep all that came with it.
            blocks.put(self.number, block, Bytes::copy_from_slice(bytes.get(at..end).unwrap_or_default()));
        }
        blocks.get(self.number, first).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        lock(&self.bucket.blocks)
    }
}

impl Blocks {
    fn has(&self, object: u64, block: u64) -> bool {
        self.held.contains_key(&(object, block))
    }

    fn get(&mut self, object: u64, block: u64) -> Option<Bytes> {
        self.clock += 1;
        let held = self.held.get_mut(&(object, block))?;
        held.used = self.clock;
        Some(held.bytes.clone())
    }

    fn put(&mut self, object: u64, block: u64, bytes: Bytes) {
        self.clock += 1;
        if self.held.insert((object, block), Block { bytes, used: self.clock }).is_none() {
            *self.objects.entry(object).or_default() += 1;
        }
        while self.held.len() > MOST_BLOCKS {
            let Some(oldest) = self.held.iter().min_by_key(|(_, block)| block.used).map(|(key, _)| *key) else {
                return;
            };
            self.held.remove(&oldest);
            if let Some(count) = self.objects.get_mut(&oldest.0) {
                *count -= 1;
                if *count == 0 {
                    self.objects.remove(&oldest.0);
                }
            }
        }
    }
}
