//! A catalog of a session that is on disk.

use std::sync::Arc;

use codec::{
    Arch, BirthKind, ClockKind, FunctionId, LevelKind, ModuleId, Os, SessionId, SessionNs, StreamId,
    atf::{
        BirthEntry, CountedEntry, LevelEntry, LimitEntry, Manifest, ModuleEntry, OffsetEntry, ProcessEntry,
        ThreadEntry, TraceContextEntry,
    },
    profile::{Birth, Clock, CountedCalls, Epoch, Offset},
};

use super::{Catalog, CatalogContext, CatalogLimits, CatalogModule, CatalogProcess, CatalogThread};

impl Catalog {
    /// What a manifest tells of its session. Unlike one that listens, it knows the functions of module 0 too, those that
    /// stand for other events.
    pub fn from_manifest(manifest: &Manifest) -> Self {
        let (most, bytes) = (usize::MAX, u64::MAX);
        let bounds = CatalogLimits {
            functions: most,
            modules: most,
            threads: most,
            others: most,
            levels: most,
            name_bytes: most,
            bytes,
        };
        let mut catalog = Self::new(bounds, Arc::default());
        catalog.add_manifest(manifest);
        catalog
    }

    /// Takes what a manifest tells of its session.
    pub fn add_manifest(&mut self, manifest: &Manifest) {
        let zero_ns = manifest.clock_zero_ns.unwrap_or(0);
        let time = |ns: u64| SessionNs(ns.saturating_sub(zero_ns));
        let clock = manifest.clock.as_ref().map(|name| named(name, ClockKind::name));
        self.clock = clock.or(manifest.clock_zero_ns.map(|_| ClockKind::from(0))).map(|clock| Clock { clock, zero_ns });
        self.epoch = manifest.epoch_unix_ns.map(|unix_ns| Epoch { unix_ns });
        self.offset = manifest.offset.map(|OffsetEntry { zero_unix_ns, error_ns, at_ns }| Offset {
            zero_unix_ns,
            error_ns,
            at: time(at_ns),
        });
        self.birth = manifest.birth.as_ref().and_then(|entry| birth_of(entry, time));
        self.context = manifest.context.as_ref().and_then(context_of);
        self.process = manifest.process.as_ref().map(|process| process_of(process, manifest.session.as_deref()));
        let thread = |entry: &ThreadEntry| (StreamId(entry.id), thread_of(entry, time));
        self.threads = manifest.threads.iter().map(thread).collect();
        let module = |entry: &ModuleEntry| (ModuleId(entry.id), module_of(entry, time));
        self.modules = manifest.modules.iter().map(module).collect();
        for entry in &manifest.functions {
            self.functions.add(FunctionId(entry.id), entry.offset, &entry.name, &mut self.budget);
            if let Some((file, line)) = entry.source.as_deref().and_then(|source| source.rsplit_once(':')) {
                self.sources.add(FunctionId(entry.id), file, line.parse().unwrap_or(0));
            }
        }
        self.queues = manifest.queues.iter().map(|queue| (queue.id, queue.label.as_str().into())).collect();
        let limit = |entry: &LimitEntry| {
            ((ModuleId(entry.module), entry.reason.as_str().into(), entry.detail.as_str().into()), entry.count)
        };
        self.limits = manifest.limits.iter().map(limit).collect();
        let level = |entry: &LevelEntry| {
            ((FunctionId(entry.function), time(entry.at_ns)), named(&entry.level, LevelKind::name))
        };
        self.levels = manifest.levels.iter().map(level).collect();
        let counted = |entry: &CountedEntry| {
            let &CountedEntry { thread, count, brief, brief_ns, .. } = entry;
            let function = FunctionId(entry.function);
            ((StreamId(thread), function), CountedCalls { function, count, brief, brief_ns })
        };
        self.counted = manifest.counted.iter().map(counted).collect();
    }
}

fn birth_of(entry: &BirthEntry, time: impl Fn(u64) -> SessionNs) -> Option<Birth> {
    let how = named(&entry.how, BirthKind::name);
    Some(Birth { parent: entry.parent.parse().ok()?, how, tid: entry.tid.unwrap_or(0), at: time(entry.at_ns) })
}

fn context_of(entry: &TraceContextEntry) -> Option<CatalogContext> {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    Some(CatalogContext {
        root: entry.root.parse().ok()?,
        parent: text(&entry.traceparent),
        state: text(&entry.tracestate),
    })
}

fn process_of(entry: &ProcessEntry, session: Option<&str>) -> CatalogProcess {
    CatalogProcess {
        id: session.and_then(|digits| digits.parse().ok()).unwrap_or(SessionId::NONE),
        arch: named(&entry.arch, Arch::name),
        os: named(&entry.os, Os::name),
        pid: entry.pid,
        agent_version: entry.agent_version.as_str().into(),
        host: entry.host.as_str().into(),
        executable: entry.executable.as_str().into(),
        argument_count: entry.argument_count,
        arguments: entry.arguments.iter().map(|argument| argument.as_str().into()).collect(),
    }
}

fn thread_of(entry: &ThreadEntry, time: impl Fn(u64) -> SessionNs) -> CatalogThread {
    CatalogThread {
        os_id: entry.os_id.unwrap_or(0),
        start: entry.start_ns.map(&time).unwrap_or_default(),
        end: entry.end_ns.map(&time),
        creator: entry.creator.map(StreamId),
        name: entry.name.as_deref().unwrap_or_default().into(),
    }
}

fn module_of(entry: &ModuleEntry, time: impl Fn(u64) -> SessionNs) -> CatalogModule {
    let digits = entry.build_id.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    CatalogModule {
        base: entry.base,
        size: entry.size,
        loaded: entry.loaded_ns.map(&time).unwrap_or_default(),
        unloaded: entry.unloaded_ns.map(&time),
        function_count: entry.function_count,
        table_hash: u64::from_str_radix(&entry.function_table_hash, 16).unwrap_or(0),
        build_id: digits.filter_map(byte).collect(),
        path: entry.path.as_str().into(),
    }
}

/// The one with this name; number 0 is none that has one.
fn named<T: Copy + From<u8>>(name: &str, name_of: impl Fn(T) -> &'static str) -> T {
    (1..=u8::MAX).map(T::from).find(|one| name_of(*one) == name).unwrap_or(T::from(0))
}
