//! The overview of a session that grows.
//!
//! Spans find their places from the end of a session to its beginning. What has ended keeps its place when more comes, so only
//! the latest are arranged again each time, with what is open: these lie in memory, and the others in a file without a name.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write},
};

use anyhow::Result;
use codec::span::{Span, SpanKind};
use collector_core::spans::SpanConfig;

use super::{
    Overview,
    arrange::{Arranging, Later, Settled},
    directory::Identity,
    gather::{Gathered, MOST_DEPTH, Source},
    logical::Telling,
    making::{Rows, unnamed},
};
use crate::{
    spanning::{Following, Read},
    trace::Trace,
};

/// How many parts of spans are arranged again each time, of all rows, and of one at least.
const KEPT: usize = 128;
const KEPT_OF_ONE: usize = 2;

/// What is known of a session that grows.
#[derive(Debug)]
pub struct Growing {
    config: SpanConfig,
    following: Following,
    gathered: Gathered,
    telling: Telling,
    arranging: Arranging<BufWriter<File>>,
    rows: BTreeMap<Source, Settled>,
    file: File,
    /// How many parts of spans are arranged again each time.
    kept: usize,
}

impl Growing {
    /// Nothing is known yet.
    pub fn new(trace: &Trace, config: SpanConfig) -> Result<Self> {
        Self::lagging(trace, config, 0)
    }

    fn lagging(trace: &Trace, config: SpanConfig, lag_ns: u64) -> Result<Self> {
        let file = unnamed(&trace.dir)?;
        Ok(Self {
            following: Following::new(trace, config.clone(), lag_ns),
            config,
            gathered: Gathered::new(unnamed(&trace.dir)?),
            telling: Telling::new(unnamed(&trace.dir)?, &trace.name()),
            arranging: Arranging::new(BufWriter::with_capacity(1 << 20, file.try_clone()?)),
            rows: BTreeMap::new(),
            file,
            kept: KEPT,
        })
    }

    /// The same, which arranges so many parts of spans again each time.
    fn keeping(self, kept: usize) -> Self {
        Self { kept, ..self }
    }

    /// The overview of the session as it is now, from what is known and what is new, telling how many events were read; an
    /// error stops that. Where it is not the session that was known, or what was known turns out to be wrong, all is read
    /// again.
    pub fn extend(self, trace: &Trace, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<(Self, Overview)> {
        let (config, kept) = (self.config.clone(), self.kept);
        let lag_ns = match self.try_extend(trace, progress)? {
            Extended::Made(growing, overview) => return Ok((*growing, *overview)),
            Extended::Anew(lag_ns) => lag_ns,
        };
        match Self::lagging(trace, config, lag_ns)?.keeping(kept).try_extend(trace, progress)? {
            Extended::Made(growing, overview) => Ok((*growing, *overview)),
            Extended::Anew(_) => anyhow::bail!("the session changes while it is read"),
        }
    }

    fn try_extend(mut self, trace: &Trace, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<Extended> {
        let end = trace.manifest.time_end_ns.saturating_sub(trace.zero_ns());
        let (gathered, telling) = (&mut self.gathered, &mut self.telling);
        let read = self.following.read(trace, |batch| {
            progress(batch.events)?;
            for span in &batch.spans {
                let what = gathered.add(span, end)?;
                if let Some(what) = what.filter(|_| is_logical(span)) {
                    telling.add(trace, span, what)?;
                }
            }
            Ok(())
        })?;
        let (following, open) = match read {
            Read::On(following, open) => (*following, open),
            Read::Anew(lag_ns) => return Ok(Extended::Anew(lag_ns)),
        };
        let lag_ns = following.lag_ns();
        self.following = following;
        match self.arrange(trace, &open, end)? {
            Some(overview) => Ok(Extended::Made(Box::new(self), Box::new(overview))),
            None => Ok(Extended::Anew(lag_ns)),
        }
    }

    /// None where what was settled is not right any more.
    fn arrange(&mut self, trace: &Trace, open: &[Span], end: u64) -> Result<Option<Overview>> {
        let (gathered, arranging) = (&mut self.gathered, &mut self.arranging);
        let rest = gathered.rest(open, end);
        let sources: Vec<_> = gathered.rows.iter().map(|(source, row)| (*source, row.parts())).collect();
        let most = (self.kept / sources.len().max(1)).max(KEPT_OF_ONE);
        let mut rows = Rows::default();
        for (source, parts) in sources {
            // What is settled is so in large parts.
            let kept = if parts > most * 2 { most } else { parts };
            let settled = self.rows.entry(source).or_default();
            let open = rest.rows.get(&source).map_or(&[][..], |(_, open)| open);
            let unsettled = arranging.rows(gathered, source, settled, open, Some(kept))?;
            gathered.forget(source, &unsettled.left, kept)?;
            rows.add(source, settled, unsettled.special);
        }
        gathered.compact()?;
        arranging.out.flush()?;
        let Later { mut memory, cut, is_wrong } = std::mem::take(&mut arranging.later);
        if is_wrong {
            return Ok(None);
        }
        let mut told = self.telling.told.clone();
        for span in open.iter().filter(|span| is_logical(span) && span.depth < MOST_DEPTH) {
            let what = gathered.number(&span.what, span.kind);
            told.push(self.telling.open(trace, span, what, &mut memory));
        }
        told.sort_unstable();
        let (rows, special) = rows.finish();
        let contexts = &arranging.contexts;
        let cut = [cut, arranging.cut, contexts.cut, rest.cut].into_iter().fold(0, u64::saturating_add);
        Ok(Some(Overview {
            file: self.file.try_clone()?.into(),
            lines: self.telling.file.try_clone()?.into(),
            memory,
            identity: Identity::of(trace),
            range: rest.range(),
            cut,
            rows,
            contexts: contexts.nodes.clone(),
            whats: gathered.whats.clone(),
            gaps: rest.into_gaps(),
            special,
            told,
        }))
    }
}

enum Extended {
    Made(Box<Growing>, Box<Overview>),
    Anew(u64),
}

fn is_logical(span: &Span) -> bool {
    !matches!(span.kind, SpanKind::Frame | SpanKind::Event | SpanKind::Gap)
}

#[cfg(test)]
mod tests;
