//! `collector spans`: the spans of a session.

mod around;
mod csv;
mod row;
mod spill;

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use answers::{filter::Filter, spanning, trace::Trace};
use anyhow::Result;
use codec::{SessionNs, span::Span};
use sinks::{Catalog, Line, NameCache, source_of, span_line};

pub(super) use self::csv::field;
use self::{row::Row, spill::Sorter};
use super::{enough::Enough, quiet, screen::Screen};
use crate::args::{SpanOrder, SpansArgs, TableArgs};

pub(crate) fn run(args: &SpansArgs) -> Result<ExitCode> {
    let trace = super::open_wanted(&args.session.dir, &args.filter)?.aligned(args.align)?.named();
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let printed = match args.around {
        Some(at) => around::print(&trace, args, at, &mut out),
        None => print(&trace, args, &mut out),
    };
    let flushed = out.flush();
    quiet(printed.and(flushed.map_err(Into::into)))?;
    Ok(ExitCode::SUCCESS)
}

fn print(trace: &Trace, args: &SpansArgs, out: &mut impl Write) -> Result<()> {
    let catalog = &trace.catalog;
    let filter = Filter::new(trace, &args.filter.wanted())?;
    let mut lines = Lines::new(trace, &args.table);
    let mut sorter = args.sort.map(|_| Sorter::new(filter.limit()));
    let mut left = filter.limit().unwrap_or(usize::MAX);
    let mut is_nothing = true;
    out.write_all(lines.head())?;
    let (mut line, mut key) = (Vec::new(), Vec::new());
    let engine = spanning::engine(trace, args.session.making.config());
    super::say_if_unfinished(trace);
    let result = spanning::spans(trace, engine, |spans| {
        for span in spans {
            if !args.which.has(span)
                || !filter.has_span(span)
                || filter.has_names() && !filter.has_name(lines.names.of(catalog, span))
            {
                continue;
            }
            is_nothing = false;
            let (Some(sorter), Some(order)) = (&mut sorter, args.sort) else {
                if left == 0 {
                    return Err(Enough.into());
                }
                left -= 1;
                line.clear();
                lines.line(&mut line, catalog, span);
                out.write_all(&line)?;
                continue;
            };
            key.clear();
            put_key(&mut key, order, catalog, &mut lines.names, span);
            if sorter.wants(&key) {
                line.clear();
                lines.line(&mut line, catalog, span);
                sorter.add(&key, &line)?;
            }
        }
        Ok(())
    });
    // What could be read is printed, also before what cannot.
    let printed = sorter.map_or(Ok(()), |sorter| sorter.write(out));
    match result {
        Err(error) if error.is::<Enough>() => printed,
        result => {
            result.and(printed)?;
            super::say_if_nothing(&trace.dir, &filter, is_nothing);
            Ok(())
        }
    }
}

/// Writes what spans are sorted by, as bytes: start and id decide where it is the same.
fn put_key(key: &mut Vec<u8>, order: SpanOrder, catalog: &Catalog, names: &mut NameCache, span: &Span) {
    let more = span.more.as_deref();
    // The most comes first, and what has none of it last.
    let most = |value: Option<u64>| {
        value.map_or([u8::MAX; 9], |value| {
            let [a, b, c, d, e, f, g, h] = (!value).to_be_bytes();
            [0, a, b, c, d, e, f, g, h]
        })
    };
    match order {
        SpanOrder::Start => {}
        SpanOrder::Duration => key.extend(most(span.duration())),
        SpanOrder::Latency => key.extend(most(more.and_then(|more| more.latency))),
        SpanOrder::Suspended => {
            let suspended = more.filter(|more| more.suspensions > 0).map(|more| more.suspended);
            key.extend(most(suspended));
        }
        SpanOrder::Function => {
            key.extend_from_slice(names.of(catalog, span).pretty.as_bytes());
            key.push(0);
        }
    }
    key.extend_from_slice(&span.start.0.to_be_bytes());
    key.extend_from_slice(&span.id.to_bytes());
}

/// A span with times since another zero.
fn aligned(span: &Span, zero: u64) -> Span {
    let moved = |time: SessionNs| SessionNs(time.0.saturating_add(zero));
    let mut span = span.clone();
    (span.start, span.end) = (moved(span.start), span.end.map(moved));
    if let Some(more) = &mut span.more {
        (more.created, more.resumed) = (more.created.map(moved), more.resumed.map(moved));
    }
    span
}

/// Makes lines of spans.
struct Lines {
    /// What every line of JSON starts with.
    start: Vec<u8>,
    names: NameCache,
    form: Form,
    /// The session's zero by the collector's clock, where times are to be told by that.
    aligned: Option<u64>,
    screen: Screen,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Text,
    Json,
    Csv,
}

impl Lines {
    fn new(trace: &Trace, table: &TableArgs) -> Self {
        let start = Line::start_of_spans(&trace.name());
        let form = match (table.json, table.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        };
        let aligned = Some(trace.added_ns).filter(|zero| *zero != 0);
        Self { start, names: NameCache::new(), form, aligned, screen: Screen::of_stdout() }
    }

    /// What comes before the first line.
    fn head(&self) -> &'static [u8] {
        match self.form {
            Form::Text => Row::HEAD.as_bytes(),
            Form::Json => b"",
            Form::Csv => csv::HEAD.as_bytes(),
        }
    }

    fn line(&mut self, to: &mut Vec<u8>, catalog: &Catalog, span: &Span) {
        let aligned = self.aligned.map(|zero| aligned(span, zero));
        let span = aligned.as_ref().unwrap_or(span);
        match self.form {
            Form::Json => span_line(to, &self.start, catalog, &mut self.names, span),
            Form::Csv => csv::line(to, self.names.of(catalog, span), source_of(catalog, span), span),
            Form::Text => Row { span, name: self.names.of(catalog, span), screen: self.screen }.write(to),
        }
    }
}
