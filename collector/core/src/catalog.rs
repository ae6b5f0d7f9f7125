//! What the options of a session have told.

mod entry;
mod from_manifest;
mod functions;
mod sources;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::AtomicU64},
};

use codec::{
    FunctionId, ModuleId, SessionNs, StreamId,
    atf::{
        BirthEntry, CountedEntry, FunctionEntry, LevelEntry, LimitEntry, Manifest, ModuleEntry, OffsetEntry,
        ProcessEntry, QueueEntry, TraceContextEntry,
    },
    profile::{Birth, Clock, CountedCalls, Epoch, LevelChange, LevelKind, Limit, Offset, ProfileOption, Session},
};

pub use entry::{CatalogContext, CatalogModule, CatalogProcess, CatalogThread};
use entry::{ENTRY_BYTES, short};
use functions::FunctionTable;
use sources::SourceTable;

use crate::budget::Budget;

/// What the options of one session have told so far, and how it becomes the descriptive part of a manifest.
///
/// Options come from outside, so all of it is bounded, by number for each kind and by bytes over all catalogs.
/// What does not fit is refused, and [`Refused`] says so.
#[derive(Debug)]
pub struct Catalog {
    bounds: CatalogLimits,
    budget: Budget,
    process: Option<CatalogProcess>,
    clock: Option<Clock>,
    epoch: Option<Epoch>,
    birth: Option<Birth>,
    context: Option<CatalogContext>,
    offset: Option<Offset>,
    threads: BTreeMap<StreamId, CatalogThread>,
    modules: BTreeMap<ModuleId, CatalogModule>,
    functions: FunctionTable,
    sources: SourceTable,
    queues: BTreeMap<u64, Label>,
    limits: BTreeMap<LimitKey, u64>,
    levels: BTreeMap<(FunctionId, SessionNs), LevelKind>,
    counted: BTreeMap<(StreamId, FunctionId), CountedCalls>,
    /// What symbols stand for, by somebody who understands them.
    readings: Arc<HashMap<Box<str>, Box<str>>>,
}

/// The label of a queue.
type Label = Box<str>;

/// What makes a limit the same as another: module, reason, detail.
type LimitKey = (ModuleId, Box<str>, Box<str>);

/// How much a catalog may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogLimits {
    /// Functions of all modules.
    pub functions: usize,
    /// Modules.
    pub modules: usize,
    /// Threads.
    pub threads: usize,
    /// Queues; and as many limits.
    pub others: usize,
    /// Changes of functions' levels; and as many counts of calls.
    pub levels: usize,
    /// Bytes of one name. A longer one is cut, and ends with `…`.
    pub name_bytes: usize,
    /// Bytes of all catalogs that share a counter.
    pub bytes: u64,
}

impl Default for CatalogLimits {
    fn default() -> Self {
        let (functions, modules, threads, others) = (1_000_000, 65_536, 65_536, 65_536);
        Self { functions, modules, threads, others, levels: 1_000_000, name_bytes: 4096, bytes: 128 << 20 }
    }
}

/// What became of an option: how many of its entries were refused because there are too many, and how many names were
/// cut. All zero where everything was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refused {
    /// Functions refused.
    pub functions: u64,
    /// Modules refused.
    pub modules: u64,
    /// Threads refused.
    pub threads: u64,
    /// Sessions, source lines, queues and limits refused.
    pub others: u64,
    /// Names that were cut.
    pub names_cut: u64,
}

impl Refused {
    /// Adds what was refused elsewhere.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { functions, modules, threads, others, names_cut } = other;
        self.functions += functions;
        self.modules += modules;
        self.threads += threads;
        self.others += others;
        self.names_cut += names_cut;
    }
}

impl Catalog {
    /// A catalog that knows nothing yet. Catalogs that are given the same counter share the limit in bytes.
    pub fn new(limits: CatalogLimits, bytes_in_use: Arc<AtomicU64>) -> Self {
        Self {
            bounds: limits,
            budget: Budget::new(limits.bytes, bytes_in_use),
            process: None,
            clock: None,
            epoch: None,
            birth: None,
            context: None,
            offset: None,
            threads: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: FunctionTable::default(),
            sources: SourceTable::default(),
            queues: BTreeMap::new(),
            limits: BTreeMap::new(),
            levels: BTreeMap::new(),
            counted: BTreeMap::new(),
            readings: Arc::default(),
        }
    }

    /// Enters what an option tells. What is entered twice is there once; what is told anew replaces what was known.
    pub fn apply(&mut self, option: &ProfileOption<'_>) -> Refused {
        let mut refused = Refused::default();
        let (bounds, budget) = (self.bounds, &mut self.budget);
        match option {
            ProfileOption::Epoch(epoch) => self.epoch = Some(*epoch),
            ProfileOption::Birth(birth) => self.birth = Some(*birth),
            ProfileOption::TraceContext(context) => {
                let context = CatalogContext::new(context, bounds.name_bytes, &mut refused.names_cut);
                let before = self.context.as_ref().map_or(0, CatalogContext::bytes);
                match budget.exchange(before, context.bytes()) {
                    true => self.context = Some(context),
                    false => refused.others = 1,
                }
            }
            ProfileOption::Clock(clock) => self.clock = Some(*clock),
            ProfileOption::Offset(offset) => self.offset = Some(*offset),
            ProfileOption::Session(session) => {
                let process = CatalogProcess::new(session, bounds.name_bytes, &mut refused.names_cut);
                let before = self.process.as_ref().map_or(0, CatalogProcess::bytes);
                match budget.exchange(before, process.bytes()) {
                    true => self.process = Some(process),
                    false => refused.others = 1,
                }
            }
            ProfileOption::Thread(thread) => {
                let entry = CatalogThread::new(thread, bounds.name_bytes, &mut refused.names_cut);
                let bytes = CatalogThread::bytes;
                refused.threads = enter(&mut self.threads, thread.stream, entry, bounds.threads, budget, bytes);
            }
            // Module 0 is ours: no loaded file has that id.
            ProfileOption::Module(module) if module.id == ModuleId(0) => refused.modules = 1,
            ProfileOption::Module(module) => {
                let entry = CatalogModule::new(module, bounds.name_bytes, &mut refused.names_cut);
                let bytes = CatalogModule::bytes;
                refused.modules = enter(&mut self.modules, module.id, entry, bounds.modules, budget, bytes);
            }
            ProfileOption::Sources(part) => refused.others = self.sources.enter(part, &bounds, budget),
            ProfileOption::Functions(part) => self.functions.enter(part, &bounds, budget, &mut refused),
            ProfileOption::Queue(queue) => {
                let label = short(queue.label, bounds.name_bytes, &mut refused.names_cut);
                let bytes = |label: &Label| ENTRY_BYTES.saturating_add(label.len() as u64);
                refused.others = enter(&mut self.queues, queue.id, label, bounds.others, budget, bytes);
            }
            ProfileOption::Limits(list) => {
                for limit in list.limits.iter() {
                    let key = limit_key(&limit, bounds.name_bytes, &mut refused.names_cut);
                    let bytes = ENTRY_BYTES.saturating_add((key.1.len() + key.2.len()) as u64);
                    refused.others += enter(&mut self.limits, key, limit.count, bounds.others, budget, |_| bytes);
                }
            }
            ProfileOption::Levels(list) => {
                for LevelChange { function, at, level } in list.changes.iter() {
                    let (key, bytes) = ((function, at), |_: &LevelKind| ENTRY_BYTES);
                    refused.others += enter(&mut self.levels, key, level, bounds.levels, budget, bytes);
                }
            }
            ProfileOption::Counted(list) => {
                for calls in list.calls.iter() {
                    let (key, bytes) = ((list.stream, calls.function), |_: &CountedCalls| ENTRY_BYTES);
                    refused.others += enter(&mut self.counted, key, calls, bounds.levels, budget, bytes);
                }
            }
            ProfileOption::Drops(_)
            | ProfileOption::Progress(_)
            | ProfileOption::End(_)
            | ProfileOption::Ack(_)
            | ProfileOption::Times(_)
            | ProfileOption::Kept(_)
            | ProfileOption::Nack(_)
            | ProfileOption::Claim(_)
            | ProfileOption::Token(_)
            | ProfileOption::Refused(_)
            | ProfileOption::Ask(_)
            | ProfileOption::Answer(_) => {}
        }
        refused
    }

    /// The traced process, once it was announced.
    pub fn session(&self) -> Option<&CatalogProcess> {
        self.process.as_ref()
    }

    /// The session's zero by the traced machine's clock, once it is known.
    pub fn clock(&self) -> Option<Clock> {
        self.clock
    }

    /// The session's zero by the collector's clock, once it was measured.
    pub fn offset(&self) -> Option<Offset> {
        self.offset
    }

    /// The session's zero by the wall clock, once it is known.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Which process made it, where that was told.
    pub fn birth(&self) -> Option<Birth> {
        self.birth
    }

    /// The distributed trace that it is part of, where that was told.
    pub fn context(&self) -> Option<&CatalogContext> {
        self.context.as_ref()
    }

    /// A thread.
    pub fn thread(&self, stream: StreamId) -> Option<&CatalogThread> {
        self.threads.get(&stream)
    }

    /// All threads, by their streams.
    pub fn threads(&self) -> impl Iterator<Item = (StreamId, &CatalogThread)> {
        self.threads.iter().map(|(stream, thread)| (*stream, thread))
    }

    /// A module.
    pub fn module(&self, module: ModuleId) -> Option<&CatalogModule> {
        self.modules.get(&module)
    }

    /// The path of a module.
    pub fn module_path(&self, module: ModuleId) -> Option<&str> {
        self.modules.get(&module).map(|module| &*module.path)
    }

    /// The name of a function, where its module's table has come that far.
    pub fn function_name(&self, function: FunctionId) -> Option<&str> {
        self.function(function).map(|(name, _)| name)
    }

    /// Says what symbols stand for, where somebody understands them who is not here.
    pub fn set_readings(&mut self, readings: Arc<HashMap<Box<str>, Box<str>>>) {
        self.readings = readings;
    }

    /// What a symbol stands for, where somebody has said that.
    pub fn reading(&self, symbol: &str) -> Option<&str> {
        self.readings.get(symbol).map(|name| &**name)
    }

    /// The name of a function as its module's symbol table has it: none of what stands for something else.
    pub(crate) fn symbol(&self, function: FunctionId) -> Option<&str> {
        self.function_name(function).filter(|_| function.module() != ModuleId(0))
    }

    /// The name of a function, and its offset in its module.
    pub fn function(&self, function: FunctionId) -> Option<(&str, u64)> {
        self.functions.function(function)
    }

    /// Where a function begins in its sources: file and line.
    pub fn source(&self, function: FunctionId) -> Option<(&str, u32)> {
        self.sources.get(function)
    }

    /// The function at an address of the program at this time: the last that starts at or before it in its module.
    pub fn function_at(&self, address: u64, at: SessionNs) -> Option<FunctionId> {
        self.function_near(address, Some(at))
    }

    /// The same; without a time, in whatever module was there at any time.
    pub fn function_near(&self, address: u64, at: Option<SessionNs>) -> Option<FunctionId> {
        let id = self.module_at(address, at)?;
        self.function_in(id, address.checked_sub(self.module(id)?.base)?)
    }

    /// The module at an address. One that was there at this time comes before others: modules may be seen late.
    pub fn module_at(&self, address: u64, at: Option<SessionNs>) -> Option<ModuleId> {
        let holds =
            |module: &CatalogModule| address.checked_sub(module.base).is_some_and(|offset| offset < module.size);
        let there = |module: &CatalogModule| {
            at.is_some_and(|at| module.loaded <= at && module.unloaded.is_none_or(|unloaded| at <= unloaded))
        };
        let found = self.modules.iter().filter(|(_, module)| holds(module));
        found.max_by_key(|(_, module)| (there(module), module.loaded)).map(|(id, _)| *id)
    }

    /// The last function of a module that starts at or before this offset.
    pub fn function_in(&self, module: ModuleId, offset: u64) -> Option<FunctionId> {
        self.functions.at(module, offset)
    }

    /// The label of a dispatch queue.
    pub fn queue_label(&self, queue: u64) -> Option<&str> {
        self.queues.get(&queue).map(|label| &**label)
    }

    /// From when on functions had other levels, in the order of functions and times.
    pub fn levels(&self) -> impl Iterator<Item = LevelChange> {
        self.levels.iter().map(|(&(function, at), &level)| LevelChange { function, at, level })
    }

    /// Calls that were counted and are no events, by thread and function.
    pub fn counted(&self) -> impl Iterator<Item = (StreamId, CountedCalls)> {
        self.counted.iter().map(|(&(stream, _), &calls)| (stream, calls))
    }

    /// How many modules are known.
    pub fn module_count(&self) -> usize {
        self.modules.len()
    }

    /// How many functions are known.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// What it knows, as the descriptive part of a manifest: no threads, no gaps, no times of events.
    pub fn manifest(&self) -> Manifest {
        self.manifest_from(self.clock.map_or(0, |clock| clock.zero_ns))
    }

    /// The same for a trace whose timestamps count from another zero: its clock came later than its first event.
    pub fn manifest_from(&self, zero_ns: u64) -> Manifest {
        let function = |(id, offset, name): (FunctionId, u64, &str)| FunctionEntry {
            id: id.0,
            offset,
            name: name.into(),
            source: self.source(id).map(|(file, line)| format!("{file}:{line}")),
            ..FunctionEntry::default()
        };
        Manifest {
            session: self.process.as_ref().map(|process| process.id.to_string()),
            process: self.process.as_ref().map(ProcessEntry::from),
            birth: self.birth.map(|birth| birth_entry(&birth, zero_ns)),
            context: self.context.as_ref().map(TraceContextEntry::from),
            clock: self.clock.map(|clock| clock.clock.name().into()),
            clock_zero_ns: Some(zero_ns).filter(|_| self.clock.is_some()),
            epoch_unix_ns: self.epoch.map(|epoch| epoch.unix_ns),
            offset: self.offset.map(|Offset { zero_unix_ns, error_ns, at }| OffsetEntry {
                zero_unix_ns,
                error_ns,
                at_ns: zero_ns.saturating_add(at.0),
            }),
            modules: self.modules.iter().map(|(id, module)| module.entry(*id, zero_ns)).collect::<Vec<ModuleEntry>>(),
            functions: self.functions.iter().map(function).collect(),
            queues: self.queues.iter().map(queue_entry).collect(),
            limits: self.limits.iter().map(limit_entry).collect(),
            levels: self.levels().map(|change| level_entry(&change, zero_ns)).collect(),
            counted: self.counted().map(counted_entry).collect(),
            ..Manifest::default()
        }
    }

    /// The `session` option as it was announced, but for what was cut.
    pub fn with_session_option<T>(&self, with: impl FnOnce(Session<'_>) -> T) -> Option<T> {
        self.process.as_ref().map(|process| process.with_option(with))
    }
}

fn limit_key(limit: &Limit<'_>, name_bytes: usize, cuts: &mut u64) -> LimitKey {
    (limit.module, short(limit.reason, name_bytes, cuts), short(limit.detail, name_bytes, cuts))
}

fn limit_entry(((module, reason, detail), count): (&LimitKey, &u64)) -> LimitEntry {
    let (reason, detail) = (reason.to_string(), detail.to_string());
    LimitEntry { module: module.0, reason, detail, count: *count, ..LimitEntry::default() }
}

fn level_entry(&LevelChange { function, at, level }: &LevelChange, zero_ns: u64) -> LevelEntry {
    let at_ns = zero_ns.saturating_add(at.0);
    LevelEntry { function: function.0, at_ns, level: level.name().into(), ..LevelEntry::default() }
}

fn counted_entry((stream, calls): (StreamId, CountedCalls)) -> CountedEntry {
    let CountedCalls { function, count, brief, brief_ns } = calls;
    CountedEntry { thread: stream.0, function: function.0, count, brief, brief_ns, ..CountedEntry::default() }
}

fn birth_entry(&Birth { parent, how, tid, at }: &Birth, zero_ns: u64) -> BirthEntry {
    BirthEntry {
        parent: parent.to_string(),
        how: how.name().into(),
        tid: Some(tid).filter(|tid| *tid != 0),
        at_ns: zero_ns.saturating_add(at.0),
        ..BirthEntry::default()
    }
}

fn queue_entry((id, label): (&u64, &Label)) -> QueueEntry {
    QueueEntry { id: *id, label: label.to_string(), ..QueueEntry::default() }
}

/// Puts an entry where one with the same key may be already, and tells how many were refused: none or one.
fn enter<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    key: K,
    value: V,
    most: usize,
    budget: &mut Budget,
    bytes: impl Fn(&V) -> u64,
) -> u64 {
    let before = map.get(&key).map(&bytes);
    if (before.is_none() && map.len() >= most) || !budget.exchange(before.unwrap_or(0), bytes(&value)) {
        return 1;
    }
    map.insert(key, value);
    0
}

#[cfg(test)]
mod tests;
