//! The columns of each table, and what a session has in them.

use std::{collections::HashMap, sync::Arc};

use answers::{sessions::Files, sessions::Summary, trace::Trace};
use codec::{FunctionId, span::What};
use datafusion::arrow::{
    array::ArrayRef,
    datatypes::{DataType, Schema, SchemaRef},
};
use sinks::name;

use crate::{
    archive::Session,
    rows::{Rows, field, time_type},
};

/// Which table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sessions,
    Threads,
    Modules,
    Functions,
    Gaps,
}

use DataType::{Boolean, Int64, UInt32, UInt64, Utf8View};

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Sessions, Self::Threads, Self::Modules, Self::Functions, Self::Gaps];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Threads => "threads",
            Self::Modules => "modules",
            Self::Functions => "functions",
            Self::Gaps => "gaps",
        }
    }

    pub(crate) fn schema(self) -> SchemaRef {
        let columns: Vec<(&str, DataType)> = match self {
            Self::Sessions => vec![
                ("session", Utf8View),
                ("id", Utf8View),
                ("parent", Utf8View),
                ("host", Utf8View),
                ("program", Utf8View),
                ("arguments", Utf8View),
                ("pid", UInt32),
                ("arch", Utf8View),
                ("agent_version", Utf8View),
                ("state", Utf8View),
                ("finished", Boolean),
                ("started", time_type()),
                ("ended", time_type()),
                ("lasted_ns", Int64),
                ("threads", UInt64),
                ("events", UInt64),
                ("missing", UInt64),
                ("spans", UInt64),
                ("bytes", UInt64),
                ("part", UInt32),
                ("directory", Utf8View),
                ("wrong", Utf8View),
            ],
            Self::Threads => vec![
                ("session", Utf8View),
                ("thread", UInt32),
                ("tid", UInt64),
                ("thread_name", Utf8View),
                ("creator", UInt32),
                ("start_ns", Int64),
                ("end_ns", Int64),
                ("produced", UInt64),
                ("written", UInt64),
                ("missing", UInt64),
            ],
            Self::Modules => vec![
                ("session", Utf8View),
                ("module", Utf8View),
                ("module_id", UInt32),
                ("build_id", Utf8View),
                ("base", UInt64),
                ("bytes", UInt64),
                ("loaded_ns", Int64),
                ("unloaded_ns", Int64),
                ("functions", UInt32),
            ],
            Self::Functions => vec![
                ("session", Utf8View),
                ("function_id", UInt64),
                ("function", Utf8View),
                ("symbol", Utf8View),
                ("module", Utf8View),
                ("address", UInt64),
                ("file", Utf8View),
                ("line", UInt32),
                ("counted", UInt64),
                ("brief", UInt64),
                ("brief_ns", Int64),
            ],
            Self::Gaps => vec![
                ("session", Utf8View),
                ("thread", UInt32),
                ("first", UInt64),
                ("count", UInt64),
                ("cause", Utf8View),
                ("ranges", UInt64),
            ],
        };
        let fields: Vec<_> = columns.into_iter().map(|(name, data_type)| field(name, data_type)).collect();
        Arc::new(Schema::new(fields))
    }

    /// The rows of a session.
    pub(crate) fn columns(self, session: &Session, trace: &Trace) -> Vec<ArrayRef> {
        match self {
            Self::Sessions => sessions(session, Some(trace), &Summary::of(trace)),
            Self::Threads => threads(session, trace),
            Self::Modules => modules(session, trace),
            Self::Functions => functions(session, trace),
            Self::Gaps => gaps(session, trace),
        }
    }
}

/// The row of a session whose manifest cannot be read.
pub(crate) fn unreadable(session: &Session) -> Vec<ArrayRef> {
    sessions(session, None, &Summary::read(&session.dir, &Files::of(&session.dir)))
}

fn sessions(session: &Session, trace: Option<&Trace>, summary: &Summary) -> Vec<ArrayRef> {
    let manifest = trace.map(|trace| &trace.manifest);
    let process = summary.process.as_ref();
    let known = |number: u64| summary.is_known().then_some(number);
    Rows::of(&[()])
        .text(|()| Some(&session.name))
        .text(|()| manifest?.session.as_ref())
        .text(|()| Some(&manifest?.birth.as_ref()?.parent))
        .text(|()| Some(&process?.host))
        .text(|()| Some(&process?.executable))
        .text(|()| Some(process?.arguments.join(" ")))
        .int(|()| Some(process?.pid))
        .text(|()| Some(&process?.arch))
        .text(|()| Some(&process?.agent_version))
        .text(|()| Some(&summary.state))
        .is(|()| Some(summary.is_finished))
        .time(|()| summary.start_unix_ns)
        .time(|()| summary.end_unix_ns().filter(|_| summary.is_known()))
        .ns(|()| known(summary.lasted_ns))
        .long(|()| known(summary.threads as u64))
        .long(|()| known(summary.events))
        .long(|()| known(summary.missing))
        .long(|()| Some(manifest?.table.as_ref()?.rows))
        .long(|()| Some(Files::of(&session.dir).bytes))
        .int(|()| manifest?.part)
        .text(|()| Some(session.dir.to_string_lossy()))
        .text(|()| summary.wrong.as_ref())
        .columns()
}

fn threads(session: &Session, trace: &Trace) -> Vec<ArrayRef> {
    let since = |time: Option<u64>| time.map(|time| time.saturating_sub(trace.zero_ns()));
    Rows::of(&trace.threads())
        .text(|_| Some(&session.name))
        .int(|thread| Some(thread.id))
        .long(|thread| thread.os_id)
        .text(|thread| thread.name.as_ref())
        .int(|thread| thread.creator)
        .ns(|thread| since(thread.start_ns))
        .ns(|thread| since(thread.end_ns))
        .long(|thread| thread.produced)
        .long(|thread| thread.written)
        .long(|thread| Some(thread.produced?.saturating_sub(thread.written?)))
        .columns()
}

fn modules(session: &Session, trace: &Trace) -> Vec<ArrayRef> {
    let since = |time: Option<u64>| time.map(|time| time.saturating_sub(trace.zero_ns()));
    Rows::of(&trace.manifest.modules)
        .text(|_| Some(&session.name))
        .text(|module| Some(&module.path))
        .int(|module| Some(module.id))
        .text(|module| Some(&module.build_id).filter(|id| !id.is_empty()))
        .long(|module| Some(module.base))
        .long(|module| Some(module.size))
        .ns(|module| since(module.loaded_ns))
        .ns(|module| since(module.unloaded_ns))
        .int(|module| Some(module.function_count))
        .columns()
}

fn functions(session: &Session, trace: &Trace) -> Vec<ArrayRef> {
    // Named as in the table of spans, so that both can be joined.
    let whats: Vec<_> =
        trace.manifest.functions.iter().map(|function| What::Function(FunctionId(function.id))).collect();
    let named: Vec<_> = whats.iter().map(|what| name(&trace.catalog, what)).collect();
    let mut counted: HashMap<u64, [u64; 3]> = HashMap::new();
    for entry in &trace.manifest.counted {
        let sums = counted.entry(entry.function).or_default();
        for (sum, more) in sums.iter_mut().zip([entry.count, entry.brief, entry.brief_ns]) {
            *sum = sum.saturating_add(more);
        }
    }
    let counted = |id: u64, place: usize| counted.get(&id).and_then(|sums| sums.get(place).copied());
    let source = |id: u64| trace.catalog.source(FunctionId(id));
    let all: Vec<_> = trace.manifest.functions.iter().zip(&named).collect();
    Rows::of(&all)
        .text(|_| Some(&session.name))
        .long(|(function, _)| Some(function.id))
        .text(|(_, named)| Some(&named.pretty))
        .text(|(_, named)| named.raw)
        .text(|(_, named)| named.module)
        .long(|(function, _)| Some(function.offset))
        .text(|(function, _)| source(function.id).map(|(file, _)| file))
        .int(|(function, _)| source(function.id).map(|(_, line)| line))
        .long(|(function, _)| counted(function.id, 0))
        .long(|(function, _)| counted(function.id, 1))
        .ns(|(function, _)| counted(function.id, 2))
        .columns()
}

fn gaps(session: &Session, trace: &Trace) -> Vec<ArrayRef> {
    Rows::of(&trace.manifest.gaps)
        .text(|_| Some(&session.name))
        .int(|gap| Some(gap.thread))
        .long(|gap| Some(gap.first))
        .long(|gap| Some(gap.count))
        .text(|gap| Some(&gap.cause))
        .long(|gap| gap.ranges.or(Some(1)))
        .columns()
}
