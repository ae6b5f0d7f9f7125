//! `collector top --live`: the functions of the last seconds, again and again.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use answers::{
    duration,
    live::{Live, Seen},
    seconds,
};
use anyhow::Result;
use codec::text::printable_json;
use serde_json::json;
use sinks::file_name;

use super::{keys::Keys, remote::Remote};
use crate::{
    args::{TopArgs, TopOrder, wrong_usage},
    asking::Place,
    offline::{
        printable, quiet,
        screen::{Screen, Style},
    },
    quantity::{count, counted},
};

/// How many functions are shown where nobody says and no screen does.
pub(super) const FUNCTIONS: usize = 50;

/// How many lines of a screen are above the functions, and one below.
const OTHER_LINES: usize = 5;

/// After how long without an event that is told: nothing happens, or nobody writes any more.
const IDLE_NS: u64 = 2_000_000_000;

pub(super) fn run(args: &TopArgs) -> Result<ExitCode> {
    if !matches!(args.sort, TopOrder::Total | TopOrder::Own | TopOrder::Count) {
        wrong_usage("--live sorts by total, self or count".into());
    }
    let mut looked_at = LookedAt::open(args)?;
    let is_screen = io::stdout().is_terminal() && !args.table.json;
    let mut keys = if is_screen { Keys::open() } else { Keys::none() };
    let mut before: Option<Instant> = None;
    loop {
        let now = Instant::now();
        let seen = looked_at.look(now)?;
        let mut text = Vec::new();
        if args.table.json {
            objects(args, &seen, &mut text)?;
        } else {
            if is_screen {
                text.extend_from_slice(b"\x1b[H\x1b[J");
            } else if before.is_some() {
                text.push(b'\n');
            }
            table(args, &looked_at.name(), &seen, is_screen, &mut text)?;
        }
        let written = io::stdout().write_all(&text).and_then(|()| io::stdout().flush());
        if written.is_err() {
            // Nobody reads any more.
            quiet(written.map_err(Into::into))?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(how) = &seen.ended {
            drop(keys);
            let how = if how.is_empty() { String::new() } else { format!(" ({})", printable(how)) };
            note!("{}: the session has ended{how}", printable(&looked_at.name()));
            return Ok(ExitCode::SUCCESS);
        }
        before = Some(now);
        // Looking takes time, too.
        let wait = args.every.0.saturating_sub(now.elapsed()).max(Duration::from_millis(10));
        if keys.quit_within(wait) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// What is looked at: a directory, or a collector that tells of its own.
enum LookedAt {
    Directory(Box<Live>),
    Collector(Remote),
}

impl LookedAt {
    fn open(args: &TopArgs) -> Result<Self> {
        if let Some(place) = Place::meant(&args.session.dir) {
            return Ok(Self::Collector(Remote::open(place, args)?));
        }
        let last_ns = u64::try_from(args.last.0.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self::Directory(Box::new(Live::open(&args.session.dir, &args.filter.wanted(), last_ns)?)))
    }

    fn look(&mut self, now: Instant) -> Result<Seen> {
        match self {
            Self::Directory(live) => live.look(now),
            Self::Collector(remote) => remote.look(),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Directory(live) => live.dir().display().to_string(),
            Self::Collector(remote) => remote.name(),
        }
    }
}

fn objects(args: &TopArgs, seen: &Seen, out: &mut Vec<u8>) -> Result<()> {
    let about = json!({
        "at_ns": seen.at_ns,
        "span_ns": seen.span_ns,
        "idle_ns": seen.idle_ns,
        "events": seen.events,
        "missing": seen.missing,
        "missing_in_all": seen.missing_in_all,
        "is_behind": seen.is_behind,
        "ended": seen.ended,
    });
    writeln!(out, "{about}")?;
    for row in seen.ranked(args.sort.into(), args.filter.limit.unwrap_or(FUNCTIONS)) {
        let object = json!({
            "at_ns": seen.at_ns,
            "function": row.name,
            "module": row.module,
            "calls": row.calls,
            "total_ns": row.total_ns,
            "self_ns": row.self_ns,
        });
        writeln!(out, "{}", printable_json(&object.to_string()))?;
    }
    Ok(())
}

fn table(args: &TopArgs, name: &str, seen: &Seen, is_screen: bool, out: &mut Vec<u8>) -> Result<()> {
    let screen = Screen::of_stdout();
    let rows_of_screen = Screen::lines().map(|lines| lines.saturating_sub(OTHER_LINES)).filter(|_| is_screen);
    let most = args.filter.limit.or(rows_of_screen).unwrap_or(FUNCTIONS);
    let whole_ns = seen.span_ns.max(1);
    let rate = (seen.events as f64 * 1e9 / whole_ns as f64).round() as u64;
    let idle = match seen.idle_ns {
        0..IDLE_NS => String::new(),
        idle => format!(", nothing new for {}", duration(idle)),
    };
    let head = format!(
        "{}: at {} s, the last {}: {} events/s{idle}{}",
        printable(name),
        seconds(seen.at_ns),
        duration(seen.span_ns),
        count(rate),
        if is_screen { "; q ends this" } else { "" },
    );
    writeln!(out, "{}", screen.line(&head, "", "", Style::Dim))?;
    if seen.missing_in_all > 0 {
        let line = format!(
            "{} missing, {} of them new: counts and times are of what is there",
            counted(seen.missing_in_all, "event"),
            count(seen.missing)
        );
        writeln!(out, "{}", screen.paint(&line, Style::Alarm))?;
    }
    if seen.is_behind {
        writeln!(out, "{}", screen.paint("more events come than can be read: some are passed over", Style::Alarm))?;
    }
    let down = seen.turned_down as u64;
    if down > 0 {
        let line =
            format!("{} turned down: calls of them that are only counted are not here", counted(down, "function"));
        writeln!(out, "{}", screen.paint(&line, Style::Dim))?;
    }
    let line = format!("{:>7}  {:>12}  {:>12}  {:>11}  function", "share", "total", "self", "calls");
    writeln!(out, "{}", screen.paint(&line, Style::Head))?;
    for row in seen.ranked(args.sort.into(), most) {
        let share = row.total_ns as f64 * 100.0 / whole_ns as f64;
        let (total, own, calls) = (duration(row.total_ns), duration(row.self_ns), count(row.calls));
        let head = format!("{share:>5.1} %  {total:>12}  {own:>12}  {calls:>11}  ");
        let module =
            row.module.as_deref().map_or_else(String::new, |path| format!("  [{}]", printable(file_name(path))));
        writeln!(out, "{}", screen.line(&head, &printable(&row.name), &module, Style::Dim))?;
    }
    Ok(())
}
