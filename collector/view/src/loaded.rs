//! A session with its overview and the names of what ran.

use std::collections::{HashMap, HashSet};

use answers::{
    overview::{Overview, Row, RowKind},
    scan::Scan,
    trace::Trace,
    turned_down::{Changes, TurnedDown},
};
use codec::{
    FunctionId, SessionNs,
    atf::ThreadEntry,
    span::{SpanKind, What},
};
use serde_json::{Value, json};
use sinks::{NameCache, source_at};

use crate::refusal::Refusal;

/// How many gaps are told one by one.
const MOST_GAPS: usize = 20_000;

/// What is shown of a session.
pub(crate) struct Loaded {
    pub(crate) trace: Trace,
    pub(crate) overview: Overview,
    /// By the numbers of the overview.
    pub(crate) functions: Vec<Function>,
    /// Those of which all calls were counted and none followed, which no overview has.
    pub(crate) unfollowed: Vec<(FunctionId, Function)>,
    /// The functions that were turned down, with what became of them.
    pub(crate) down: HashMap<FunctionId, Changes>,
    /// Which of the overviews of the session it is: numbers are those of one of them.
    pub(crate) generation: u32,
}

/// Something that ran.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) symbol: Option<String>,
    pub(crate) module: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) kind: SpanKind,
    /// Whether there were calls of it that were not followed.
    pub(crate) is_down: bool,
    /// How many of them were counted, in the whole session.
    pub(crate) counted: u64,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("dir", &self.trace.dir).field("generation", &self.generation).finish()
    }
}

impl Loaded {
    pub(crate) fn new(trace: Trace, overview: Overview, generation: u32) -> Self {
        let mut names = NameCache::new();
        let down: HashMap<_, _> = TurnedDown::in_trace(&trace).into_functions().collect();
        // Which module was at an address then is known best at the end.
        let at = SessionNs(overview.range().1);
        let mut counted: HashMap<FunctionId, u64> = HashMap::new();
        for (_, calls) in trace.catalog.counted() {
            let known = counted.entry(calls.function).or_default();
            *known = known.saturating_add(calls.count).saturating_add(calls.brief);
        }
        let mut describe = |what: &What, kind: SpanKind| {
            let function = if let What::Function(function) = what { Some(function) } else { None };
            let counted = function.and_then(|function| counted.get(function)).copied().unwrap_or(0);
            let was_off = function.and_then(|function| down.get(function)).is_some_and(|changes| changes.was_off);
            let name = names.name(&trace.catalog, what, at);
            Function {
                name: name.pretty.to_string(),
                symbol: name.raw.as_deref().map(ToOwned::to_owned),
                module: name.module.as_deref().map(ToOwned::to_owned),
                source: source_at(&trace.catalog, what, at).map(|(file, line)| format!("{file}:{line}")),
                kind,
                is_down: counted > 0 || was_off,
                counted,
            }
        };
        let functions = overview.whats().iter().map(|(what, kind)| describe(what, *kind)).collect();
        let followed: HashSet<_> = overview.whats().iter().map(|(what, _)| what).collect();
        let mut unfollowed: Vec<_> = counted.keys().copied().map(|id| (id, What::Function(id))).collect();
        unfollowed.retain(|(id, what)| counted[id] > 0 && !followed.contains(what));
        unfollowed.sort_unstable_by_key(|(id, _)| *id);
        let unfollowed = unfollowed.iter().map(|(id, what)| (*id, describe(what, SpanKind::Frame))).collect();
        Self { trace, overview, functions, unfollowed, down, generation }
    }

    /// What something is called, by its number.
    pub(crate) fn name(&self, what: u32) -> &str {
        self.function(what).map_or("?", |function| &function.name)
    }

    pub(crate) fn function(&self, what: u32) -> Option<&Function> {
        self.functions.get(usize::try_from(what).ok()?)
    }

    /// The number of what has this name. Of several with one name, the one of this module, if it is given.
    pub(crate) fn number(&self, name: &str, module: Option<&str>) -> Option<u32> {
        let fits = |function: &Function| {
            function.name == name && module.is_none_or(|module| function.module.as_deref() == Some(module))
        };
        u32::try_from(self.functions.iter().position(fits)?).ok()
    }

    /// What ran at a place of the tree of calls, and below which others, the outermost first.
    pub(crate) fn path(&self, node: u32) -> Vec<u32> {
        let mut path = Vec::new();
        let mut next = Some(node);
        while let Some(here) = next.and_then(|node| self.overview.node(node)) {
            path.push(here.what);
            next = here.parent.filter(|_| path.len() < 4096);
        }
        path.reverse();
        path
    }

    /// What ran at a place of the tree.
    pub(crate) fn what(&self, node: u32) -> u32 {
        self.overview.node(node).map_or(u32::MAX, |node| node.what)
    }

    /// The rows that a request names, or else all.
    pub(crate) fn check_rows(&self, rows: &[u32]) -> Result<(), Refusal> {
        let count = self.overview.rows().len();
        match rows.iter().find(|row| usize::try_from(**row).is_ok_and(|row| row >= count)) {
            Some(row) => Err(Refusal::Wrong(format!("there is no row {row}: there are {count}"))),
            None => Ok(()),
        }
    }

    /// What is wrong with its files, as far as their ends tell.
    fn wrong(&self) -> Option<String> {
        match Scan::open(&self.trace, &self.trace.threads()) {
            Ok(scan) => scan.wrong(),
            Err(error) => Some(format!("{error:#}")),
        }
    }

    /// What a page needs to know before it draws.
    pub(crate) fn describe(&self) -> Value {
        let manifest = &self.trace.manifest;
        let (from, to) = self.overview.range();
        let threads: HashMap<u32, &ThreadEntry> = manifest.threads.iter().map(|thread| (thread.id, thread)).collect();
        let name_of = |stream: u32| {
            let name = threads.get(&stream).and_then(|thread| thread.name.clone()).filter(|name| !name.is_empty());
            name.unwrap_or_else(|| format!("thread {stream}"))
        };
        let rows = (0_u32..).zip(self.overview.rows()).map(|(number, row)| {
            let (kind, name, stream) = match row.kind {
                RowKind::Thread(stream) => ("thread", name_of(stream.0), Some(stream.0)),
                RowKind::Lane(stream, lane) => ("lane", format!("{}, stack {lane}", name_of(stream.0)), Some(stream.0)),
                RowKind::Logical(runtime) => ("logical", runtime.name().to_owned(), None),
            };
            let os_id = stream.and_then(|id| threads.get(&id)?.os_id);
            json!({
                "row": number, "kind": kind, "name": name, "stream": stream, "tid": os_id, "depths": row.depths(),
                "base": row.shallowest(),
                "slices": row.slices, "first": row.first, "last": row.last,
            })
        });
        let gaps = self.overview.gaps();
        let told = gaps.iter().take(MOST_GAPS);
        let of_thread = |(number, row): (usize, &Row)| match row.kind {
            RowKind::Thread(stream) => Some((stream, number)),
            _ => None,
        };
        let places: HashMap<_, _> = self.overview.rows().iter().enumerate().filter_map(of_thread).collect();
        let row_of = |stream| places.get(&stream).copied();
        let told = told.map(|gap| json!([row_of(gap.stream), gap.from, gap.to, gap.missing, &*gap.cause, gap.gaps]));
        let process = manifest.process.as_ref();
        let offset = manifest.offset.map(|offset| offset.zero_unix_ns).or(manifest.epoch_unix_ns);
        json!({
            "ready": true,
            "name": self.trace.name(),
            "program": process.map(|process| &process.executable),
            "pid": process.map(|process| process.pid),
            "machine": process.map(|process| &process.host),
            "generation": self.generation,
            "finished": !self.trace.is_unfinished,
            "wrong": self.wrong(),
            "range": [from, to.max(from.saturating_add(1))],
            "zero_unix_ns": offset,
            "rows": rows.collect::<Vec<_>>(),
            "gaps": told.collect::<Vec<_>>(),
            "gaps_in_all": gaps.len(),
            "cut": self.overview.cut(),
            "missing": manifest.missing().into_values().fold(0, u64::saturating_add),
            "functions": self.names(),
        })
    }

    /// The table of what ran, in columns: modules are numbers of places in a list.
    fn names(&self) -> Value {
        let mut modules: Vec<&str> = Vec::new();
        let mut places = HashMap::new();
        let module = self.functions.iter().map(|function| {
            let path = function.module.as_deref()?;
            Some(*places.entry(path).or_insert_with(|| {
                modules.push(path);
                modules.len() - 1
            }))
        });
        let module: Vec<_> = module.collect();
        let all = &self.functions;
        let down = (0_u32..).zip(all).filter(|(_, function)| function.is_down).map(|(number, _)| number);
        json!({
            "name": all.iter().map(|function| &function.name).collect::<Vec<_>>(),
            "module": module,
            "modules": modules,
            "source": all.iter().map(|function| &function.source).collect::<Vec<_>>(),
            "kind": all.iter().map(|function| function.kind.name()).collect::<Vec<_>>(),
            "down": down.collect::<Vec<_>>(),
        })
    }
}
