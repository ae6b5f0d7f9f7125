//! The options that a session was described by, made again from its manifest.

use std::collections::BTreeMap;

use codec::{
    FunctionId, ModuleId, StreamId,
    atf::FunctionEntry,
    heph::List,
    profile::{
        Counted, CountedCalls, FunctionName, Functions, Levels, Limit, Limits, Module, ProfileOption, Queue,
        SourceLine, Sources, Thread,
    },
};

use super::trace::Trace;

/// What the lists of one option may take, so that it fits into a datagram.
const LIST_BYTES: usize = 32 << 10;

/// Tells of the session: who it is first, then its clock, birth, context, threads, modules, functions, source lines, queues, limits and levels.
pub fn each(trace: &Trace, tell: &mut dyn FnMut(&ProfileOption<'_>)) {
    let (manifest, catalog) = (&trace.manifest, &trace.catalog);
    catalog.with_session_option(|session| tell(&session.into()));
    if let Some(clock) = catalog.clock() {
        tell(&ProfileOption::Clock(clock));
    }
    if let Some(epoch) = catalog.epoch() {
        tell(&ProfileOption::Epoch(epoch));
    }
    if let Some(birth) = catalog.birth() {
        tell(&ProfileOption::Birth(birth));
    }
    if let Some(context) = catalog.context() {
        tell(&ProfileOption::TraceContext(context.option()));
    }
    if let Some(offset) = catalog.offset() {
        tell(&ProfileOption::Offset(offset));
    }
    threads(trace, tell);
    for entry in &manifest.modules {
        let id = ModuleId(entry.id);
        let Some(known) = catalog.module(id) else { continue };
        tell(&ProfileOption::Module(Module {
            id,
            base: known.base,
            size: known.size,
            loaded: known.loaded,
            unloaded: known.unloaded,
            function_count: known.function_count,
            table_hash: known.table_hash,
            build_id: &known.build_id,
            path: &known.path,
        }));
    }
    functions(&manifest.functions, tell);
    sources(trace, tell);
    for queue in &manifest.queues {
        tell(&ProfileOption::Queue(Queue { id: queue.id, label: &queue.label }));
    }
    limits(trace, tell);
    levels(trace, tell);
}

/// Tells of the threads.
pub fn threads(trace: &Trace, tell: &mut dyn FnMut(&ProfileOption<'_>)) {
    // A thread of which nobody told has events, but no id.
    for thread in trace.manifest.threads.iter().filter(|thread| thread.os_id.is_some()) {
        let stream = StreamId(thread.id);
        let Some(known) = trace.catalog.thread(stream) else { continue };
        let (os_id, start, end, creator) = (known.os_id, known.start, known.end, known.creator);
        tell(&ProfileOption::Thread(Thread { stream, os_id, start, end, creator, name: &known.name }));
    }
}

/// Tells what could not be captured.
pub fn limits(trace: &Trace, tell: &mut dyn FnMut(&ProfileOption<'_>)) {
    for entry in &trace.manifest.limits {
        let limits = [Limit {
            module: ModuleId(entry.module),
            count: entry.count,
            reason: &entry.reason,
            detail: &entry.detail,
        }];
        tell(&ProfileOption::Limits(Limits { limits: (&limits).into() }));
    }
}

/// Tells which functions were turned down, and how many calls of them each thread made.
fn levels(trace: &Trace, tell: &mut dyn FnMut(&ProfileOption<'_>)) {
    let changes: Vec<_> = trace.catalog.levels().collect();
    for part in List::parts(&changes, LIST_BYTES) {
        tell(&ProfileOption::Levels(Levels { changes: part.into() }));
    }
    let mut threads: BTreeMap<StreamId, Vec<CountedCalls>> = BTreeMap::new();
    trace.catalog.counted().for_each(|(stream, calls)| threads.entry(stream).or_default().push(calls));
    for (stream, calls) in threads {
        for part in List::parts(&calls, LIST_BYTES) {
            tell(&ProfileOption::Counted(Counted { stream, calls: part.into() }));
        }
    }
}

/// Where the functions of each module are in each of its source files.
fn sources(trace: &Trace, tell: &mut dyn FnMut(&ProfileOption<'_>)) {
    let mut files: BTreeMap<(ModuleId, &str), Vec<SourceLine>> = BTreeMap::new();
    for id in trace.manifest.functions.iter().map(|entry| FunctionId(entry.id)) {
        if let Some((file, line)) = trace.catalog.source(id).filter(|(file, _)| file.len() <= LIST_BYTES) {
            files.entry((id.module(), file)).or_default().push(SourceLine { index: id.index(), line });
        }
    }
    for ((module, file), lines) in files {
        for part in List::parts(&lines, LIST_BYTES) {
            tell(&ProfileOption::Sources(Sources { module, file, lines: part.into() }));
        }
    }
}

/// The function tables. Those of module 0 stand for something else, and are made anew by whoever needs them; a name that
/// fits no packet is left out.
fn functions(entries: &[FunctionEntry], tell: &mut dyn FnMut(&ProfileOption<'_>)) {
    let sorted: BTreeMap<u64, &FunctionEntry> = entries.iter().map(|entry| (entry.id, entry)).collect();
    let mut run: Vec<FunctionName<'_>> = Vec::new();
    let mut next = 0;
    let mut first = FunctionId(0);
    for (id, entry) in sorted {
        if FunctionId(id).module() == ModuleId(0) || entry.name.len() > LIST_BYTES {
            continue;
        }
        if id != next || FunctionId(id).module() != first.module() || run.len() >= 1024 {
            tell_run(first, &run, tell);
            run.clear();
            first = FunctionId(id);
        }
        run.push(FunctionName { offset: entry.offset, name: &entry.name });
        next = id.saturating_add(1);
    }
    tell_run(first, &run, tell);
}

fn tell_run(first: FunctionId, run: &[FunctionName<'_>], tell: &mut dyn FnMut(&ProfileOption<'_>)) {
    let mut first_index = first.index();
    for part in List::parts(run, LIST_BYTES) {
        tell(&ProfileOption::Functions(Functions { module: first.module(), first_index, functions: part.into() }));
        first_index = first_index.saturating_add(u32::try_from(part.len()).unwrap_or(u32::MAX));
    }
}
