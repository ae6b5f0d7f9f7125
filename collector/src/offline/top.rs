//! `collector top`: the functions of a session, by how long they took.

mod ranking;
#[cfg(test)]
mod tests;
mod times;

use std::{
    collections::BTreeSet,
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use anyhow::Result;
use codec::{
    StreamId,
    text::{Glob, printable_json},
};
use serde_json::json;
use sinks::{Catalog, NameCache, file_name, source_at};

use self::ranking::{Function, Ranking};
use super::{
    duration,
    events::wanted_threads,
    loss::Loss,
    printable, quiet,
    screen::{Screen, Style},
    spanning,
    spans::field,
    trace::Trace,
};
use crate::{
    args::{TopArgs, TopOrder},
    quantity::count,
};

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode> {
    let trace = Trace::open(&args.session.dir)?;
    let catalog = &trace.catalog;
    let threads: Option<BTreeSet<StreamId>> = match &args.thread {
        Some(thread) => Some(wanted_threads(&trace, Some(thread))?.iter().map(|thread| StreamId(thread.id)).collect()),
        None => None,
    };
    let loss = Loss::of(&trace);
    let mut ranking = Ranking::default();
    let engine = spanning::engine(&trace, args.session.making.config());
    spanning::spans(&trace, engine, |spans| {
        let wanted = spans.iter().filter(|span| span.kind.runtime() == args.runtime);
        wanted
            .filter(|span| threads.as_ref().is_none_or(|threads| threads.contains(&span.stream)))
            .for_each(|span| ranking.add(span, loss.weight(span.stream)));
        Ok(())
    })?;
    let rows = rows(args, catalog, ranking);
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = print(args, &loss, &rows, &mut out).and_then(|()| out.flush());
    quiet(printed.map_err(Into::into))?;
    Ok(ExitCode::SUCCESS)
}

/// A function with its names.
struct Row {
    name: String,
    symbol: Option<String>,
    module: Option<String>,
    source: Option<String>,
    function: Function,
}

impl Row {
    /// The name of its module's file.
    fn file_name(&self) -> String {
        self.module.as_deref().map_or_else(String::new, |path| printable(file_name(path)))
    }
}

/// The functions that are wanted, in the order that is wanted.
fn rows(args: &TopArgs, catalog: &Catalog, ranking: Ranking) -> Vec<Row> {
    let glob = args.function.as_deref().map(Glob::new);
    let mut names = NameCache::new();
    let mut rows = Vec::new();
    for (what, function) in ranking.finish() {
        let name = names.name(catalog, &what, function.last_start);
        if glob.as_ref().is_none_or(|glob| name.matches(glob)) {
            let text = |text: &std::sync::Arc<str>| text.to_string();
            let (symbol, module) = (name.raw.as_ref().map(text), name.module.as_ref().map(text));
            let value = match args.sort {
                TopOrder::Total => function.total_ns,
                TopOrder::Own => function.self_ns,
                TopOrder::Count => function.count,
                TopOrder::P50 => function.calls.percentile(500),
                TopOrder::P95 => function.calls.percentile(950),
                TopOrder::P99 => function.calls.percentile(990),
                TopOrder::Max => function.calls.max(),
            };
            let source = source_at(catalog, &what, function.last_start).map(|(file, line)| format!("{file}:{line}"));
            rows.push((value, Row { name: name.pretty.to_string(), symbol, module, source, function }));
        }
    }
    rows.sort_by(|(first, a), (second, b)| {
        second.cmp(first).then_with(|| (&a.name, &a.module).cmp(&(&b.name, &b.module)))
    });
    rows.truncate(args.limit);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn print(args: &TopArgs, loss: &Loss, rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    if !args.table.json && !args.table.csv {
        return print_text(loss, rows, Screen::of_stdout(), out);
    }
    if args.table.csv {
        out.write_all(b"function,symbol,module,count,total_ns,self_ns,p50_ns,p95_ns,p99_ns,max_ns,")?;
        out.write_all(b"estimated_count,untimed,unsure_ns,source\r\n")?;
    }
    for row in rows {
        let (function, calls) = (&row.function, &row.function.calls);
        let [p50, p95, p99] = [500, 950, 990].map(|thousandths| calls.percentile(thousandths));
        let estimate = function.estimate.round() as u64;
        if args.table.json {
            let object = json!({
                "function": row.name,
                "symbol": row.symbol,
                "module": row.module,
                "count": function.count,
                "total_ns": function.total_ns,
                "self_ns": function.self_ns,
                "p50_ns": p50,
                "p95_ns": p95,
                "p99_ns": p99,
                "max_ns": calls.max(),
                "estimated_count": estimate,
                "untimed": function.untimed,
                "unsure_ns": function.unsure_ns,
                "source": row.source,
            });
            writeln!(out, "{}", printable_json(&object.to_string()))?;
        } else {
            let mut line = Vec::new();
            field(&mut line, &row.name);
            line.push(b',');
            field(&mut line, row.symbol.as_deref().unwrap_or_default());
            line.push(b',');
            field(&mut line, row.module.as_deref().unwrap_or_default());
            let times = [function.total_ns, function.self_ns, p50, p95, p99, calls.max()];
            let doubts = [estimate, function.untimed, function.unsure_ns];
            for value in [function.count].iter().chain(&times).chain(&doubts) {
                write!(line, ",{value}")?;
            }
            line.push(b',');
            field(&mut line, row.source.as_deref().unwrap_or_default());
            line.extend_from_slice(b"\r\n");
            out.write_all(&line)?;
        }
    }
    Ok(())
}

/// The columns before the names. Where the screen is narrow, those with the largest numbers are left out first, and those with
/// 0 never.
const COLUMNS: [(&str, u32); 9] = [
    ("count", 0),
    ("about", 1),
    ("total", 0),
    ("self", 0),
    ("unsure", 1),
    ("p50", 5),
    ("p95", 4),
    ("p99", 3),
    ("max", 2),
];

fn print_text(loss: &Loss, rows: &[Row], screen: Screen, out: &mut impl Write) -> io::Result<()> {
    if loss.is_any() {
        writeln!(out, "{}", screen.paint(&loss.to_string(), Style::Alarm))?;
    }
    let cell = |row: &Row, column: &str| {
        let (function, calls) = (&row.function, &row.function.calls);
        match column {
            "count" => count(function.count),
            "about" => format!("~{}", count(function.estimate.round() as u64)),
            "total" => duration(function.total_ns),
            "self" => duration(function.self_ns),
            "unsure" => duration(function.unsure_ns),
            "p50" => duration(calls.percentile(500)),
            "p95" => duration(calls.percentile(950)),
            "p99" => duration(calls.percentile(990)),
            _ => duration(calls.max()),
        }
    };
    let wide = |text: &str| text.chars().count();
    let widest = |head: &str, text: &dyn Fn(&Row) -> String| {
        rows.iter().map(|row| wide(&text(row))).fold(wide(head), usize::max)
    };
    let module = widest("module", &Row::file_name);
    let is_wanted = |(column, _): &(&str, u32)| loss.is_any() || !matches!(*column, "about" | "unsure");
    let wanted = COLUMNS.into_iter().filter(is_wanted);
    let mut shown: Vec<_> =
        wanted.map(|(column, rank)| (column, rank, widest(column, &|row| cell(row, column)))).collect();
    let taken = |shown: &[(&str, u32, usize)]| shown.iter().map(|(.., width)| width + 2).sum::<usize>() + module + 2;
    while !screen.has_room(taken(&shown))
        && let Some(least) = shown.iter().map(|(_, rank, _)| *rank).max().filter(|rank| *rank > 0)
    {
        shown.retain(|(_, rank, _)| *rank != least);
    }
    let line = |cells: &dyn Fn(&str) -> String| {
        shown.iter().map(|(column, _, width)| format!("{:>width$}  ", cells(column))).collect::<String>()
    };
    let head = format!("{}{:module$}  function", line(&|column| column.into()), "module");
    writeln!(out, "{}", screen.paint(&head, Style::Head))?;
    for row in rows {
        let head = format!("{}{:module$}  ", line(&|column| cell(row, column)), row.file_name());
        writeln!(out, "{}", screen.line(&head, &printable(&row.name), "", Style::Dim))?;
    }
    Ok(())
}
