//! One event of a thread, found without reading those before it.

use std::path::Path;

use anyhow::{Context, Result};
use codec::{
    EventKind, Position, StreamId,
    atf::{DetailBody, IndexEvent, ThreadEntry},
    profile::Registers,
};

use super::thread::{Details, FIRST, ThreadScan};
use crate::trace::Trace;

/// An event, with what was captured with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct One {
    /// Its place in what the thread produced.
    pub position: Position,
    /// The event.
    pub event: IndexEvent,
    /// The registers, where they were captured.
    pub registers: Option<Registers>,
    /// The words of the stack, from the stack pointer upward.
    pub stack: Vec<u64>,
}

impl Trace {
    /// The call that a thread made at this time, since the session's zero, and this depth.
    pub fn call_at(&self, stream: StreamId, start_ns: u64, depth: u32) -> Result<Option<One>> {
        let at = self.zero_ns().saturating_add(start_ns);
        let is_it = |event: &IndexEvent| event.kind == EventKind::Call && event.depth == depth;
        self.find_one(stream, |events| {
            let mut number = events.first(|event| event.timestamp.0 >= at)?;
            while let Some(event) = events.get(number)?.filter(|event| event.timestamp.0 == at) {
                if is_it(&event) {
                    return Ok(Some(number));
                }
                number += 1;
            }
            Ok(None)
        })
    }

    /// The event that is the so-and-so-many-th that a thread produced.
    pub fn event_of(&self, stream: StreamId, position: Position) -> Result<Option<One>> {
        let thread = self.threads().into_iter().find(|thread| thread.id == stream.0);
        let first = thread.and_then(|thread| thread.first).unwrap_or(0);
        let gaps = self.manifest.gaps.iter().filter(|gap| gap.thread == stream.0);
        if gaps.clone().any(|gap| (gap.first..gap.first.saturating_add(gap.count)).contains(&position.0)) {
            return Ok(None);
        }
        let missing = gaps.filter(|gap| gap.first <= position.0).map(|gap| gap.count).fold(0, u64::saturating_add);
        let number = position.0.checked_sub(first.saturating_add(missing));
        self.find_one(stream, |_| Ok(number))
    }

    fn find_one(&self, stream: StreamId, find: impl FnOnce(&Events) -> Result<Option<u64>>) -> Result<Option<One>> {
        let Some(thread) = self.threads().into_iter().find(|thread| thread.id == stream.0) else { return Ok(None) };
        let path = self.thread_dir(stream.0).join("index.atf");
        let Some(events) = Events::open(self, &thread, &path)? else { return Ok(None) };
        let Some(number) = find(&events)? else { return Ok(None) };
        let Some(event) = events.get(number)? else { return Ok(None) };
        let gaps = self.manifest.gaps.iter().filter(|gap| gap.thread == stream.0);
        let before = gaps.filter(|gap| gap.at_index.is_some_and(|at| at <= number)).map(|gap| gap.count);
        let position = before.fold(thread.first.unwrap_or(0), u64::saturating_add).saturating_add(number);
        let mut one = One { position: Position(position), event, registers: None, stack: Vec::new() };
        if let Some(detail) = event.detail {
            self.capture(&mut one, stream, number, detail)?;
        }
        Ok(Some(one))
    }

    /// Details have no fixed size: those before it are passed over.
    fn capture(&self, one: &mut One, stream: StreamId, number: u64, detail: u32) -> Result<()> {
        const PAGE: usize = 1 << 20;
        let mut details = Details::open(self.thread_dir(stream.0).join("detail.atf"), PAGE)?;
        for detail in Details::of(details.as_mut(), u32::try_from(number)?, detail)? {
            if let DetailBody::Call(captured) | DetailBody::Return(captured) = detail?.body {
                one.registers = Some(captured.registers);
                one.stack = captured.stack.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            }
        }
        Ok(())
    }
}

/// The events of a thread, by their numbers in its index.
struct Events {
    file: storage::File,
    count: u64,
}

impl Events {
    fn open(trace: &Trace, thread: &ThreadEntry, path: &Path) -> Result<Option<Self>> {
        let Some(scan) = ThreadScan::open(trace, thread, Vec::new(), IndexEvent::BYTES, None)? else { return Ok(None) };
        let file = storage::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Some(Self { file, count: scan.events() }))
    }

    fn get(&self, number: u64) -> Result<Option<IndexEvent>> {
        if number >= self.count {
            return Ok(None);
        }
        let mut bytes = [0; IndexEvent::BYTES];
        self.file.read_exact_at(&mut bytes, FIRST + number * IndexEvent::BYTES as u64)?;
        Ok(Some(IndexEvent::decode(&bytes, u32::try_from(number).unwrap_or(u32::MAX))?))
    }

    /// The number of the first that is so, where all behind it are.
    fn first(&self, is_so: impl Fn(&IndexEvent) -> bool) -> Result<u64> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle)?.is_some_and(|event| is_so(&event)) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Ok(low)
    }
}
