//! Options: each is sent until the collector says that it has it, and kept for the next collector.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};

use codec::{
    ModuleId, Position, StreamId,
    heph::List,
    profile::{CountedCalls, Fingerprint, ProfileOption},
};

/// What an option is about. A later one about the same thing takes the place of an earlier one, which must not be sent
/// any more then: the collector believes what comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    Thread(StreamId),
    Module(ModuleId),
    Functions(ModuleId, u32),
    Queue(u64),
    Offset,
    /// Calls of a thread that are no events, of a group of functions.
    Counted(StreamId, u64),
    /// The end, by the first stream in the packet.
    End(Option<StreamId>),
}

impl Topic {
    pub(super) fn of(option: &ProfileOption<'_>) -> Option<Self> {
        Some(match option {
            ProfileOption::Thread(thread) => Self::Thread(thread.stream),
            ProfileOption::Module(module) => Self::Module(module.id),
            ProfileOption::Functions(functions) => Self::Functions(functions.module, functions.first_index),
            ProfileOption::Queue(queue) => Self::Queue(queue.id),
            ProfileOption::Offset(_) => Self::Offset,
            ProfileOption::Counted(counted) => {
                Self::Counted(counted.stream, counted.calls.iter().next().map_or(0, |calls| group(&calls)))
            }
            ProfileOption::End(end) => Self::End(end.streams.iter().next().map(|position| position.stream)),
            _ => return None,
        })
    }
}

/// How many functions a group has: calls of all of them fit a datagram.
pub(super) const GROUP: u64 = 16;

/// The group of functions that calls belong to: what is told of one together. The next time the same is told, and more.
pub(super) fn group(calls: &CountedCalls) -> u64 {
    calls.function.0 / GROUP
}

/// Options in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Options {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    by_fingerprint: HashMap<Fingerprint, u64>,
    by_topic: HashMap<Topic, u64>,
    /// Those that are not acknowledged.
    open: BTreeSet<u64>,
    /// Those of them that tell of modules and their functions.
    open_tables: BTreeSet<u64>,
    /// Those from here on have not been sent.
    fresh: u64,
    /// Bytes that were sent and are not acknowledged.
    flying_bytes: usize,
    /// Whether they arrive in the order in which they are sent.
    is_ordered: bool,
}

#[derive(Debug)]
struct Entry {
    packet: Box<[u8]>,
    fingerprint: Fingerprint,
    topic: Option<Topic>,
    /// It says nothing any more once these are settled. Empty for one that always says something.
    until: Vec<(StreamId, Position)>,
    sent: Option<Instant>,
    /// How often it must still be acknowledged. An earlier option about the same thing may be underway and arrive
    /// later; then a second round puts it right.
    rounds: u8,
}

impl Entry {
    /// Whether it tells of a module or its functions.
    fn is_table(&self) -> bool {
        matches!(self.topic, Some(Topic::Module(_) | Topic::Functions(..)))
    }
}

impl Options {
    /// None, for a way on which they may overtake each other, or not.
    pub(super) fn new(is_ordered: bool) -> Self {
        Self { is_ordered, ..Self::default() }
    }

    /// Adds an option that says something for good, unless it is the last word on its topic already.
    pub(super) fn add(&mut self, packet: &[u8], topic: Option<Topic>) {
        let fingerprint = Fingerprint::of(packet);
        if self.by_fingerprint.contains_key(&fingerprint) {
            return;
        }
        let mut rounds = 1;
        if let Some(earlier) = topic.and_then(|topic| self.by_topic.get(&topic).copied())
            && let Some(earlier) = self.remove(earlier)
        {
            rounds += u8::from(!self.is_ordered && earlier.sent.is_some() && earlier.rounds > 0);
        }
        self.insert(Entry { packet: packet.into(), fingerprint, topic, until: Vec::new(), sent: None, rounds });
    }

    /// Adds an option that says something only until these are settled.
    pub(super) fn add_until(&mut self, packet: &[u8], until: Vec<(StreamId, Position)>) {
        let fingerprint = Fingerprint::of(packet);
        self.insert(Entry { packet: packet.into(), fingerprint, topic: None, until, sent: None, rounds: 1 });
    }

    fn insert(&mut self, entry: Entry) {
        let key = self.next;
        self.next += 1;
        self.by_fingerprint.insert(entry.fingerprint, key);
        if let Some(topic) = entry.topic {
            self.by_topic.insert(topic, key);
        }
        if entry.is_table() {
            self.open_tables.insert(key);
        }
        self.open.insert(key);
        self.entries.insert(key, entry);
    }

    /// One is not waited for any more. Whether it was.
    fn close(&mut self, key: u64) -> bool {
        self.open_tables.remove(&key);
        self.open.remove(&key)
    }

    fn remove(&mut self, key: u64) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.by_fingerprint.remove(&entry.fingerprint);
        if self.close(key) && entry.sent.is_some() {
            self.flying_bytes -= entry.packet.len();
        }
        Some(entry)
    }

    pub(super) fn acknowledge(&mut self, fingerprints: List<'_, Fingerprint>, now: Instant) {
        for fingerprint in fingerprints {
            let Some(key) = self.by_fingerprint.get(&fingerprint).copied() else { continue };
            let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.sent.is_some()) else { continue };
            entry.rounds = entry.rounds.saturating_sub(1);
            // The second round comes when anything that was underway has arrived.
            entry.sent = Some(now);
            let (is_done, bytes) = (entry.rounds == 0, entry.packet.len());
            if is_done && self.close(key) {
                self.flying_bytes -= bytes;
            }
        }
    }

    /// How many are not acknowledged.
    pub(super) fn count_open(&self) -> usize {
        self.open.len()
    }

    /// Whether the collector may not know all modules and functions: some of them have not been sent, or, where packets
    /// may be lost, are not acknowledged.
    pub(super) fn lacks_tables(&self, may_be_lost: bool) -> bool {
        let from = if may_be_lost { 0 } else { self.fresh };
        self.open_tables.range(from..).next().is_some()
    }

    /// Whether some have not been sent.
    pub(super) fn has_fresh(&self) -> bool {
        self.open.range(self.fresh..).next().is_some()
    }

    /// Passes on options that have not been sent, packed into datagrams, as long as `send` takes them and no more than
    /// so many bytes are underway.
    pub(super) fn send_fresh(
        &mut self,
        now: Instant,
        datagram_bytes: usize,
        flying_limit: usize,
        send: impl FnMut(&[u8]) -> bool,
    ) {
        let mut flying = self.flying_bytes;
        let mut keys = Vec::new();
        for key in self.open.range(self.fresh..) {
            let bytes = self.entries.get(key).map_or(0, |entry| entry.packet.len());
            if flying > 0 && flying + bytes > flying_limit {
                break;
            }
            flying += bytes;
            keys.push(*key);
        }
        let sent = self.send(&keys, now, datagram_bytes, send);
        self.fresh = keys.get(sent).copied().or_else(|| keys.last().map(|last| last + 1)).unwrap_or(self.fresh);
    }

    /// Passes on options that were sent longer than `every` ago and are not acknowledged.
    pub(super) fn send_again(
        &mut self,
        now: Instant,
        every: Duration,
        datagram_bytes: usize,
        most_bytes: usize,
        send: impl FnMut(&[u8]) -> bool,
    ) {
        let mut bytes = 0;
        let mut keys = Vec::new();
        for key in self.open.range(..self.fresh) {
            let Some(entry) = self.entries.get(key) else { continue };
            if bytes > most_bytes {
                break;
            }
            if entry.sent.is_some_and(|sent| now.saturating_duration_since(sent) >= every) {
                bytes += entry.packet.len();
                keys.push(*key);
            }
        }
        self.send(&keys, now, datagram_bytes, send);
    }

    /// How many of these were taken.
    fn send(
        &mut self,
        keys: &[u64],
        now: Instant,
        datagram_bytes: usize,
        mut send: impl FnMut(&[u8]) -> bool,
    ) -> usize {
        let mut datagram = Vec::new();
        let mut done = 0;
        while done < keys.len() {
            datagram.clear();
            let mut count = 0;
            for key in keys.iter().skip(done) {
                let packet = self.entries.get(key).map_or(&[][..], |entry| &entry.packet);
                if count > 0 && datagram.len() + packet.len() > datagram_bytes {
                    break;
                }
                datagram.extend_from_slice(packet);
                count += 1;
            }
            if !send(&datagram) {
                break;
            }
            for key in keys.iter().skip(done).take(count) {
                let Some(entry) = self.entries.get_mut(key) else { continue };
                if entry.sent.replace(now).is_none() {
                    self.flying_bytes += entry.packet.len();
                }
            }
            done += count;
        }
        done
    }

    /// Forgets those that say nothing any more: acknowledged, and about nothing that is not settled.
    pub(super) fn forget(&mut self, mut settled: impl FnMut(StreamId) -> Position) {
        let mut is_past =
            |entry: &Entry| !entry.until.is_empty() && entry.until.iter().all(|(stream, end)| settled(*stream) >= *end);
        let past = self.entries.iter().filter(|(key, entry)| !self.open.contains(key) && is_past(entry));
        let past: Vec<_> = past.map(|(key, _)| *key).collect();
        past.into_iter().for_each(|key| drop(self.remove(key)));
    }

    /// Takes the end back. Whether there was one.
    pub(super) fn withdraw_end(&mut self) -> bool {
        let ends = self.entries.iter().filter(|(_, entry)| matches!(entry.topic, Some(Topic::End(_))));
        let ends: Vec<_> = ends.map(|(key, _)| *key).collect();
        ends.iter().for_each(|key| drop(self.remove(*key)));
        !ends.is_empty()
    }

    /// There is another collector, or one that may have forgotten: it is told everything.
    pub(super) fn renew(&mut self) {
        self.open = self.entries.keys().copied().collect();
        self.open_tables = self.entries.iter().filter(|(_, entry)| entry.is_table()).map(|(key, _)| *key).collect();
        for entry in self.entries.values_mut() {
            (entry.sent, entry.rounds) = (None, 1);
        }
        (self.fresh, self.flying_bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests;
