//! `collector top`: the functions of a session, by how long they took.

mod keys;
mod live;
mod remote;

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use answers::{
    duration,
    filter::Filter,
    loss::Loss,
    top::{self, InAll, Row},
};
use anyhow::Result;
use codec::text::printable_json;
use serde_json::json;

use super::{
    printable, quiet,
    screen::{Screen, Style},
    spans::field,
};
use crate::{
    args::{TopArgs, TopOrder, wrong_usage},
    asking,
    quantity::count,
};

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode> {
    if args.live {
        return live::run(args);
    }
    if asking::Place::meant(&args.session.dir).is_some() {
        wrong_usage("what a collector tells is looked at with --live".into());
    }
    let trace = super::open_wanted(&args.session.dir, &args.filter)?.named();
    let filter = Filter::new(&trace, &args.filter.wanted())?;
    let loss = Loss::of(&trace);
    super::say_if_unfinished(&trace);
    let mut rows = top::rows(&trace, args.session.making.config(), args.runtime, &filter, &loss)?;
    super::say_if_nothing(&trace.dir, &filter, rows.is_empty());
    top::rank(&mut rows, args.sort.into(), filter.limit().unwrap_or(FUNCTIONS));
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = print(args, &loss, &rows, &mut out).and_then(|()| out.flush());
    quiet(printed.map_err(Into::into))?;
    Ok(ExitCode::SUCCESS)
}

/// How many functions are printed where nobody says.
const FUNCTIONS: usize = 50;

fn print(args: &TopArgs, loss: &Loss, rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    if !args.table.json && !args.table.csv {
        return print_text(loss, rows, args.sort, Screen::of_stdout(), out);
    }
    if args.table.csv {
        out.write_all(b"function,symbol,module,count,total_ns,self_ns,p50_ns,p95_ns,p99_ns,max_ns,")?;
        out.write_all(b"estimated_count,untimed,unsure_ns,counted,brief,brief_ns,")?;
        out.write_all(b"estimated_total_ns,estimated_total_error_ns,was_off,self_has_turned_down,source\r\n")?;
    }
    for row in rows {
        let (function, calls) = (&row.function, &row.function.calls);
        let [p50, p95, p99] = [500, 950, 990].map(|thousandths| calls.percentile(thousandths));
        let estimate = function.estimate.round() as u64;
        let (in_all, error) = (function.in_all.map(|all| all.ns), function.in_all.and_then(|all| all.error_ns));
        let marks = [function.was_off(), function.has_called_down];
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
                "counted": function.counted,
                "brief": function.brief,
                "brief_ns": function.brief_ns,
                "estimated_total_ns": in_all,
                "estimated_total_error_ns": error,
                "was_off": marks[0],
                "self_has_turned_down": marks[1],
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
            let others = [function.counted, function.brief, function.brief_ns];
            let doubts = [estimate, function.untimed, function.unsure_ns];
            for value in [function.count].iter().chain(&times).chain(&doubts).chain(&others) {
                write!(line, ",{value}")?;
            }
            for value in [in_all, error] {
                write!(line, ",{}", value.map_or_else(String::new, |value| value.to_string()))?;
            }
            write!(line, ",{},{},", marks[0], marks[1])?;
            field(&mut line, row.source.as_deref().unwrap_or_default());
            line.extend_from_slice(b"\r\n");
            out.write_all(&line)?;
        }
    }
    Ok(())
}

/// The columns before the names. Where the screen is narrow, those with the largest numbers are left out first: those of
/// [`EXTRA`] and more unless names have plenty of room, the others only where names would have none.
const COLUMNS: [(&str, u32); 13] = [
    ("count", 2),
    (FOLLOWED, 3),
    ("about", 4),
    ("total", 0),
    (IN_ALL, 3),
    (BRIEF, 2),
    ("self", 1),
    ("unsure", 4),
    ("p50", 8),
    ("p95", 7),
    ("p99", 6),
    ("max", 5),
    (MODULE, 3),
];
const EXTRA: u32 = 4;
const MODULE: &str = "module";
/// Of functions that were turned down: which part of their calls the times are of.
const FOLLOWED: &str = "followed";

/// Of functions that were turned down: about how long all their calls took together.
const IN_ALL: &str = "in all";

/// How long the calls took together that were left out because they took too little time.
const BRIEF: &str = "brief";

/// What a column says of a function.
fn cell(row: &Row, column: &str) -> String {
    let (function, calls) = (&row.function, &row.function.calls);
    match column {
        "count" => {
            let bound = function.bound();
            format!("{bound}{}{}", if bound.is_empty() { "" } else { " " }, count(function.all_calls()))
        }
        FOLLOWED if !function.is_in_part() || function.has_others => String::new(),
        FOLLOWED => {
            let percent = 100.0 * function.count as f64 / function.all_calls() as f64;
            format!("{}{percent:.1} %", if function.was_off() { "≤ " } else { "" })
        }
        "about" => format!("~{}", count(function.estimate.round() as u64)),
        MODULE => row.file_name(),
        BRIEF if function.brief == 0 => String::new(),
        BRIEF => duration(function.brief_ns),
        // Of none of its calls the return was seen.
        _ if function.untimed == function.count => "-".into(),
        "total" => duration(function.total_ns),
        IN_ALL if !function.is_in_part() => String::new(),
        IN_ALL => {
            let Some(InAll { ns: in_all, error_ns: error }) = function.in_all else { return "-".into() };
            let percent = |error| (error as f64 * 100.0 / in_all.max(1) as f64).ceil().to_string();
            let percent = error.map_or_else(|| "?".into(), percent);
            let at_least = if function.was_off() { "≥ " } else { "" };
            format!("{at_least}~{} ± {percent} %", duration(in_all))
        }
        "self" => format!("{}{}", if function.has_called_down { "≤ " } else { "" }, duration(function.self_ns)),
        "unsure" => duration(function.unsure_ns),
        "p50" => duration(calls.percentile(500)),
        "p95" => duration(calls.percentile(950)),
        "p99" => duration(calls.percentile(990)),
        _ => duration(calls.max()),
    }
}

/// The columns that are shown, and how wide they are.
fn columns(loss: &Loss, rows: &[Row], order: TopOrder, screen: Screen) -> Vec<(&'static str, usize)> {
    let sorted_by = match order {
        TopOrder::Total => "total",
        TopOrder::Own => "self",
        TopOrder::Count => "count",
        TopOrder::P50 => "p50",
        TopOrder::P95 => "p95",
        TopOrder::P99 => "p99",
        TopOrder::Max => "max",
    };
    let wide = |text: &str| text.chars().count();
    let width = |column: &str| rows.iter().map(|row| wide(&cell(row, column))).fold(wide(column), usize::max);
    let is_any_in_part = rows.iter().any(|row| row.function.is_in_part());
    let is_any_brief = rows.iter().any(|row| row.function.brief > 0);
    let is_wanted = |column: &str| match column {
        "about" | "unsure" => loss.is_any(),
        FOLLOWED | IN_ALL => is_any_in_part,
        BRIEF => is_any_brief,
        _ => true,
    };
    let wanted = COLUMNS.into_iter().filter(|(column, _)| is_wanted(column));
    // What they are sorted by stays.
    let rank = |column: &str, rank: u32| if column == sorted_by { 0 } else { rank };
    let mut shown: Vec<_> = wanted.map(|(column, least)| (column, rank(column, least), width(column))).collect();
    loop {
        let taken = shown.iter().map(|(.., width)| width + 2).sum::<usize>();
        let Some(least) = shown.iter().map(|(_, rank, _)| *rank).max().filter(|rank| *rank > 0) else { break };
        let fits = if least >= EXTRA { screen.has_room(taken) } else { screen.has_room_for_name(taken) };
        if fits {
            break;
        }
        shown.retain(|(_, rank, _)| *rank != least);
    }
    shown.into_iter().map(|(column, _, width)| (column, width)).collect()
}

fn print_text(loss: &Loss, rows: &[Row], order: TopOrder, screen: Screen, out: &mut impl Write) -> io::Result<()> {
    if loss.is_any() {
        writeln!(out, "{}", screen.paint(&loss.to_string(), Style::Alarm))?;
    }
    if let Some(text) = loss.left_out() {
        writeln!(out, "{}", screen.paint(&text, Style::Dim))?;
    }
    let down = rows.iter().filter(|row| row.function.bursts.is_some()).count();
    if down > 0 {
        let text = format!(
            "{down} of these functions were turned down: their times are of the calls that were followed, `in all` is an estimate \
             for all that were counted, calls while a function was off are in no count (`≥`), and own times of callers contain \
             what was not followed (`≤`)"
        );
        writeln!(out, "{}", screen.paint(&text, Style::Dim))?;
    }
    if rows.iter().any(|row| row.function.brief > 0) {
        let text = "calls that took less than --slower-than are counted, and `brief` is how long they took together: other times \
                    are without them, but their callers' own times contain them";
        writeln!(out, "{}", screen.paint(text, Style::Dim))?;
    }
    let shown = columns(loss, rows, order, screen);
    let line = |cell: &dyn Fn(&str) -> String| {
        let padded = shown.iter().map(|(column, width)| match *column {
            MODULE => format!("{:width$}  ", cell(column)),
            _ => format!("{:>width$}  ", cell(column)),
        });
        padded.collect::<String>()
    };
    let head = format!("{}function", line(&str::to_owned));
    writeln!(out, "{}", screen.paint(&head, Style::Head))?;
    for row in rows {
        let head = line(&|column| cell(row, column));
        writeln!(out, "{}", screen.line(&head, &printable(&row.name), "", Style::Dim))?;
    }
    Ok(())
}
