//! The spans that are asked for, as they come.

use codec::span::Span;
use sinks::{Catalog, NameCache};

use super::Filter;
use crate::trace::Trace;

/// Tells which spans are asked for, until those are enough. They count as wholes.
#[derive(Debug)]
pub struct Pick<'a> {
    catalog: &'a Catalog,
    filter: &'a Filter,
    names: NameCache,
    left: usize,
}

impl<'a> Pick<'a> {
    /// None yet.
    pub fn new(trace: &'a Trace, filter: &'a Filter) -> Self {
        let left = filter.limit().unwrap_or(usize::MAX);
        Self { catalog: &trace.catalog, filter, names: NameCache::new(), left }
    }

    /// Whether this is one of them.
    pub fn has(&mut self, span: &Span) -> bool {
        let filter = self.filter;
        let has = self.left > 0
            && filter.has_span(span)
            && (!filter.has_names() || filter.has_name(self.names.of(self.catalog, span)));
        self.left = self.left.saturating_sub(usize::from(has));
        has
    }
}
