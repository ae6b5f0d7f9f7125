//! The manifest of a session whose collector was killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::AtomicU64},
};

use codec::{
    Arch, ClockKind, Os, StreamId,
    atf::{EndEntry, FunctionEntry, LimitEntry, Manifest, ThreadEntry},
};

use super::restore::Restored;
use crate::{
    Catalog, CatalogLimits, Cause,
    disk::{
        journal::{Ends, Note, StreamEnd, replay},
        ledger::{Ledger, Missing},
        summary::describe,
    },
};

/// The manifest that was written at the start, what the journal tells beside it, and the threads found so far.
pub(super) struct Rebuild {
    base: Manifest,
    catalog: Catalog,
    zero: Option<(u64, ClockKind)>,
    functions: Vec<FunctionEntry>,
    gaps: Vec<Missing>,
    firsts: BTreeMap<u32, u64>,
    given_up: GivenUp,
    threads: BTreeMap<u32, Restored>,
}

/// How far streams had come that the collector had to give up.
#[derive(Default)]
struct GivenUp {
    cause: Option<Cause>,
    ends: BTreeMap<u32, StreamEnd>,
    /// How many streams there were.
    threads: u64,
}

impl GivenUp {
    fn note(&mut self, note: Ends) {
        self.cause = Some(note.cause);
        self.threads = note.threads;
        self.ends.extend(note.ends.into_iter().map(|end| (end.stream, end)));
    }

    /// What is missing at the end of a stream, of which this much is written and in gaps.
    fn gap(&self, stream: u32, written: u64, missing: u64) -> Option<Missing> {
        let (end, cause) = (self.ends.get(&stream)?, self.cause.clone()?);
        let produced = end.next.saturating_sub(end.first);
        let count = produced.saturating_sub(written).saturating_sub(missing);
        let gap = Missing { stream, first: end.next.saturating_sub(count), count, cause, at_index: written, ranges: 1 };
        Some(gap).filter(|gap| gap.count > 0)
    }

    /// That streams were given up of which nobody knows how far they had come.
    fn limit(&self) -> Option<LimitEntry> {
        let count = self.threads.saturating_sub(self.ends.len() as u64);
        let reason = self.cause.as_ref()?.to_string();
        let detail = "events at the end of threads are missing, nobody knows how many".into();
        Some(LimitEntry { module: 0, reason, detail, count, ..LimitEntry::default() }).filter(|_| count > 0)
    }
}

impl Rebuild {
    pub(super) fn new(base: Manifest, journal: &[u8]) -> Self {
        // The collector had its limits when it took the options.
        let most = usize::MAX;
        let limits = CatalogLimits {
            functions: most,
            modules: most,
            threads: most,
            others: most,
            bytes: u64::MAX,
            ..CatalogLimits::default()
        };
        let mut catalog = Catalog::new(limits, Arc::new(AtomicU64::new(0)));
        let (mut zero, mut functions, mut gaps, mut firsts) = (None, Vec::new(), Vec::new(), BTreeMap::new());
        let mut given_up = GivenUp::default();
        let note = |note| match note {
            Note::Gap(gap) => gaps.push(gap),
            Note::Zero(zero_ns, clock) => zero = Some((zero_ns, clock)),
            Note::Function(index, made) => functions.push(made.entry(index)),
            Note::First(stream, first) => _ = firsts.insert(stream, first),
            Note::Next(ends) => given_up.note(ends),
        };
        replay(journal, |option| _ = catalog.apply(option), note);
        for end in given_up.ends.values().filter(|end| end.first > 0) {
            firsts.insert(end.stream, end.first);
        }
        Self { base, catalog, zero, functions, gaps, firsts, given_up, threads: BTreeMap::new() }
    }

    /// The processor and operating system, where they are known.
    pub(super) fn platform(&self) -> Option<(Arch, Os)> {
        self.catalog.session().map(|process| (process.arch, process.os))
    }

    /// The clock of the timestamps, where it is known.
    pub(super) fn clock(&self) -> Option<ClockKind> {
        let known = self.catalog.clock().map(|clock| clock.clock);
        self.zero.map_or(known, |(_, clock)| Some(clock))
    }

    /// A thread's id with the operating system, where it is known.
    pub(super) fn os_id(&self, stream: u32) -> Option<u64> {
        self.catalog.thread(StreamId(stream)).map(|thread| thread.os_id)
    }

    /// Enters a thread whose files are finished now.
    pub(super) fn thread(&mut self, stream: u32, restored: &Restored) {
        self.threads.insert(stream, *restored);
    }

    /// Streams that have gaps or were given up, but have no files.
    pub(super) fn streams_without_files(&self) -> BTreeSet<u32> {
        let missing = self.gaps.iter().filter(|gap| gap.at_index == 0).map(|gap| gap.stream);
        missing.chain(self.given_up.ends.keys().copied()).filter(|stream| !self.threads.contains_key(stream)).collect()
    }

    /// The manifest.
    pub(super) fn finish(self) -> Manifest {
        let (base, known) = (self.base, self.catalog.clock());
        let base_zero = base.clock_zero_ns.unwrap_or(0);
        let zero_ns = self.zero.map_or(known.map_or(base_zero, |clock| clock.zero_ns), |(zero_ns, _)| zero_ns);
        let told = self.catalog.manifest_from(zero_ns);

        let mut ledger = Ledger::default();
        let written = |stream| self.threads.get(&stream).map(|thread: &Restored| thread.written);
        // What lies behind events that were not written yet is lost with them.
        let kept = self.gaps.into_iter().filter(|gap| written(gap.stream).is_some_and(|count| gap.at_index <= count));
        kept.for_each(|gap| ledger.add(gap));
        let missing = ledger.counts();
        for (&stream, restored) in &self.threads {
            let lost = missing.get(&stream).copied().unwrap_or(0);
            if let Some(gap) = self.given_up.gap(stream, restored.written, lost) {
                ledger.add(gap);
            }
        }
        let missing = ledger.counts();

        let mut threads = Vec::with_capacity(self.threads.len());
        for (&stream, restored) in &self.threads {
            let lost = missing.get(&stream).copied().unwrap_or(0);
            threads.push(ThreadEntry {
                has_detail: restored.has_detail,
                written: Some(restored.written),
                produced: Some(restored.written.saturating_add(lost)),
                first: self.firsts.get(&stream).copied(),
                ..describe(stream, &self.catalog, zero_ns)
            });
        }
        let times = self.threads.values().filter_map(|thread| thread.times);
        let (time_start_ns, time_end_ns) = times.reduce(|(a, b), (c, d)| (a.min(c), b.max(d))).unwrap_or_default();

        // Times in the first manifest count from the zero that was known then.
        let moved = |time: u64| time.saturating_sub(base_zero).saturating_add(zero_ns);
        let base_modules = base.modules.into_iter().map(|mut module| {
            (module.loaded_ns, module.unloaded_ns) = (module.loaded_ns.map(moved), module.unloaded_ns.map(moved));
            module
        });
        let functions = base.functions.into_iter().chain(self.functions).chain(told.functions);
        let mut manifest = Manifest {
            threads,
            time_start_ns,
            time_end_ns,
            session: told.session.or(base.session),
            process: told.process.or(base.process),
            clock: told.clock.or(base.clock),
            clock_zero_ns: told.clock_zero_ns.or(base.clock_zero_ns),
            epoch_unix_ns: told.epoch_unix_ns.or(base.epoch_unix_ns),
            modules: latest(base_modules.chain(told.modules), |module| module.id),
            functions: latest(functions, |function| function.id),
            queues: latest(base.queues.into_iter().chain(told.queues), |queue| queue.id),
            limits: latest(base.limits.into_iter().chain(told.limits).chain(self.given_up.limit()), |limit| {
                (limit.module, limit.reason.clone(), limit.detail.clone())
            }),
            gaps: ledger.entries(),
            drops: ledger.drops(),
            end: Some(EndEntry { how: "killed".into(), ..EndEntry::default() }),
            part: base.part,
            spans: base.spans,
            extra: base.extra,
        };
        if let Some((zero_ns, clock)) = self.zero {
            if u8::from(clock) == 0 {
                manifest.clock = None;
            } else {
                manifest.clock = Some(clock.name().into());
            }
            manifest.clock_zero_ns = manifest.clock_zero_ns.map(|_| zero_ns);
            if let Some(late) = known.filter(|late| late.zero_ns != zero_ns || late.clock != clock) {
                manifest.extra.insert("late_clock_zero_ns".into(), late.zero_ns.into());
                manifest.extra.insert("late_clock".into(), late.clock.name().into());
            }
        }
        manifest
    }
}

/// Of entries with the same key the last, by key.
fn latest<T, K: Ord>(entries: impl Iterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    entries.map(|entry| (key(&entry), entry)).collect::<BTreeMap<_, _>>().into_values().collect()
}
