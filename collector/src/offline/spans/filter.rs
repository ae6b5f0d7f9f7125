//! Which spans are wanted.

use std::collections::BTreeSet;

use answers::trace::Trace;
use anyhow::Result;
use codec::{StreamId, span::Span, text::Glob};
use sinks::{Catalog, NameCache};

use crate::{args::WhichArgs, offline::events::wanted_threads};

/// Tells which spans are wanted.
pub(super) struct Filter<'a> {
    args: &'a WhichArgs,
    function: Option<Glob>,
    threads: Option<BTreeSet<StreamId>>,
    min_duration_ns: u64,
    /// Times since the session's zero.
    from: u64,
    to: u64,
}

impl<'a> Filter<'a> {
    pub(super) fn new(trace: &Trace, args: &'a WhichArgs) -> Result<Self> {
        let threads = match &args.thread {
            Some(thread) => {
                Some(wanted_threads(trace, Some(thread))?.iter().map(|thread| StreamId(thread.id)).collect())
            }
            None => None,
        };
        Ok(Self {
            args,
            function: args.function.as_deref().map(Glob::new),
            threads,
            min_duration_ns: args.min_duration.map_or(0, |least| u64::try_from(least.0.as_nanos()).unwrap_or(u64::MAX)),
            from: args.from.map_or(0, |from| trace.given_ns(from)),
            to: args.to.map_or(u64::MAX, |to| trace.given_ns(to)),
        })
    }

    pub(super) fn matches(&mut self, catalog: &Catalog, names: &mut NameCache, span: &Span) -> bool {
        let args = self.args;
        let any = |none: bool, found: bool| none || found;
        any(args.kind.is_empty(), args.kind.contains(&span.kind))
            && any(args.runtime.is_empty(), args.runtime.contains(&span.kind.runtime()))
            && any(args.status.is_empty(), args.status.contains(&span.status))
            && any(args.reason.is_empty(), span.reason.is_some_and(|reason| args.reason.contains(&reason)))
            && (self.min_duration_ns == 0 || span.duration().is_some_and(|took| took >= self.min_duration_ns))
            && (span.start.0 < self.to || self.to == u64::MAX)
            // What has not ended goes on.
            && span.end.is_none_or(|end| end.0 >= self.from)
            && self.threads.as_ref().is_none_or(|threads| ran_on(span, threads))
            && self.function.as_ref().is_none_or(|glob| names.of(catalog, span).matches(glob))
    }
}

fn ran_on(span: &Span, threads: &BTreeSet<StreamId>) -> bool {
    let others = span.more.as_deref().map_or(&[][..], |more| &more.threads);
    threads.contains(&span.stream) || others.iter().any(|stream| threads.contains(stream))
}
