//! What is known of one process, thread or module, owned and with names of a bounded length.

use codec::{
    Arch, ModuleId, Os, SessionId, SessionNs, StreamId,
    atf::{ModuleEntry, ProcessEntry, TraceContextEntry},
    profile::{Module, PROFILE_VERSION, Session, Thread, TraceContext},
};

use codec::text::shorten;

/// What an entry is taken to need beside its names.
pub(super) const ENTRY_BYTES: u64 = 96;

/// What an argument is taken to need beside its text.
const STRING_BYTES: usize = 32;

/// The traced process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogProcess {
    /// The session's id.
    pub id: SessionId,
    /// The processor.
    pub arch: Arch,
    /// The operating system.
    pub os: Os,
    /// The process id.
    pub pid: u32,
    /// The version of the agent.
    pub agent_version: Box<str>,
    /// The name of the machine.
    pub host: Box<str>,
    /// The path of the executable.
    pub executable: Box<str>,
    /// How many arguments there are.
    pub argument_count: u32,
    /// The first of them.
    pub arguments: Box<[Box<str>]>,
}

impl CatalogProcess {
    pub(super) fn new(session: &Session<'_>, name_bytes: usize, cuts: &mut u64) -> Self {
        let mut short = |name| short(name, name_bytes, cuts);
        Self {
            id: session.id,
            arch: session.arch,
            os: session.os,
            pid: session.pid,
            agent_version: short(session.agent_version),
            host: short(session.host),
            executable: short(session.executable),
            argument_count: session.argument_count,
            arguments: session.arguments.iter().map(short).collect(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let names = self.agent_version.len() + self.host.len() + self.executable.len();
        let arguments: usize = self.arguments.iter().map(|argument| argument.len() + STRING_BYTES).sum();
        ENTRY_BYTES.saturating_add((names + arguments) as u64)
    }

    pub(super) fn with_option<T>(&self, with: impl FnOnce(Session<'_>) -> T) -> T {
        let arguments: Vec<&str> = self.arguments.iter().map(|argument| &**argument).collect();
        with(Session {
            id: self.id,
            profile: PROFILE_VERSION,
            arch: self.arch,
            os: self.os,
            pid: self.pid,
            agent_version: &self.agent_version,
            host: &self.host,
            executable: &self.executable,
            argument_count: self.argument_count,
            arguments: arguments.as_slice().into(),
        })
    }
}

impl From<&CatalogProcess> for ProcessEntry {
    fn from(process: &CatalogProcess) -> Self {
        Self {
            pid: process.pid,
            host: process.host.to_string(),
            arch: process.arch.name().into(),
            os: process.os.name().into(),
            executable: process.executable.to_string(),
            arguments: process.arguments.iter().map(ToString::to_string).collect(),
            argument_count: process.argument_count,
            agent_version: process.agent_version.to_string(),
            ..Self::default()
        }
    }
}

/// The distributed trace that a session is part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogContext {
    /// The first session of the family.
    pub root: SessionId,
    /// The `traceparent` of the environment, possibly empty.
    pub parent: Box<str>,
    /// The `tracestate` of the environment, possibly empty.
    pub state: Box<str>,
}

impl CatalogContext {
    pub(super) fn new(context: &TraceContext<'_>, name_bytes: usize, cuts: &mut u64) -> Self {
        let mut short = |name| short(name, name_bytes, cuts);
        Self { root: context.root, parent: short(context.parent), state: short(context.state) }
    }

    pub(super) fn bytes(&self) -> u64 {
        ENTRY_BYTES.saturating_add((self.parent.len() + self.state.len()) as u64)
    }

    /// The option as it was told, but for what was cut.
    pub fn option(&self) -> TraceContext<'_> {
        TraceContext { root: self.root, parent: &self.parent, state: &self.state }
    }
}

impl From<&CatalogContext> for TraceContextEntry {
    fn from(context: &CatalogContext) -> Self {
        let told = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let (traceparent, tracestate) = (told(&context.parent), told(&context.state));
        Self { root: context.root.to_string(), traceparent, tracestate, ..Self::default() }
    }
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogThread {
    /// Its id with the operating system.
    pub os_id: u64,
    /// When it was first seen.
    pub start: SessionNs,
    /// When it ended, if it has.
    pub end: Option<SessionNs>,
    /// The stream of the thread that created it, where that is known.
    pub creator: Option<StreamId>,
    /// Its name, possibly empty.
    pub name: Box<str>,
}

impl CatalogThread {
    pub(super) fn new(thread: &Thread<'_>, name_bytes: usize, cuts: &mut u64) -> Self {
        let name = short(thread.name, name_bytes, cuts);
        Self { os_id: thread.os_id, start: thread.start, end: thread.end, creator: thread.creator, name }
    }

    pub(super) fn bytes(&self) -> u64 {
        ENTRY_BYTES.saturating_add(self.name.len() as u64)
    }
}

/// A module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogModule {
    /// The address it is loaded at.
    pub base: u64,
    /// How many bytes of address space it takes.
    pub size: u64,
    /// When it was loaded, or first seen.
    pub loaded: SessionNs,
    /// When it was unloaded, if it has been.
    pub unloaded: Option<SessionNs>,
    /// How many functions its table has.
    pub function_count: u32,
    /// The hash of that table.
    pub table_hash: u64,
    /// The build id from its file, possibly empty.
    pub build_id: Box<[u8]>,
    /// The path of its file.
    pub path: Box<str>,
}

impl CatalogModule {
    pub(super) fn new(module: &Module<'_>, name_bytes: usize, cuts: &mut u64) -> Self {
        let build_id = module.build_id.get(..name_bytes).unwrap_or(module.build_id);
        *cuts += u64::from(build_id.len() < module.build_id.len());
        Self {
            base: module.base,
            size: module.size,
            loaded: module.loaded,
            unloaded: module.unloaded,
            function_count: module.function_count,
            table_hash: module.table_hash,
            build_id: build_id.into(),
            path: short(module.path, name_bytes, cuts),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        ENTRY_BYTES.saturating_add((self.build_id.len() + self.path.len()) as u64)
    }

    pub(super) fn entry(&self, id: ModuleId, zero_ns: u64) -> ModuleEntry {
        ModuleEntry {
            id: id.0,
            path: self.path.to_string(),
            build_id: self.build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            base: self.base,
            size: self.size,
            loaded_ns: Some(zero_ns.saturating_add(self.loaded.0)),
            unloaded_ns: self.unloaded.map(|at| zero_ns.saturating_add(at.0)),
            function_count: self.function_count,
            function_table_hash: format!("{:016x}", self.table_hash),
            ..ModuleEntry::default()
        }
    }
}

/// A name of at most `limit` bytes: a longer one ends with `…`, and is counted.
pub(super) fn short(name: &str, limit: usize, cuts: &mut u64) -> Box<str> {
    *cuts += u64::from(name.len() > limit);
    shorten(name, limit).into()
}
