//! `collector sessions`: which sessions there are.

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
    time::Duration,
};

use answers::sessions::{Files, Summary};
use anyhow::{Context, Result};
use codec::text::printable_json;
use serde_json::json;

use super::{
    family_at, printable, quiet,
    screen::{Screen, Style},
    spans::field,
};
use crate::{
    args::{SessionOrder, SessionsArgs},
    names::date_and_time,
    quantity::{Period, Size, count},
};

/// A session that is listed.
struct Listed {
    name: String,
    directory: String,
    /// The one that made it, and how many are above it.
    parent: Option<String>,
    level: usize,
    bytes: u64,
    summary: Summary,
}

pub(crate) fn run(args: &SessionsArgs) -> Result<ExitCode> {
    let (mut sessions, wanted) = (read(args)?, args.wanted());
    sessions.retain(|session| wanted.takes(&session.summary));
    if sessions.is_empty() {
        super::say_nothing(&args.place);
    }
    sort(&mut sessions, args.sort);
    if let Some(limit) = args.limit {
        match args.sort {
            SessionOrder::Start => drop(sessions.drain(..sessions.len().saturating_sub(limit))),
            _ => sessions.truncate(limit),
        }
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = print(args, &sessions, &mut out).and_then(|()| out.flush());
    quiet(printed.map_err(Into::into))?;
    let mut is_whole = true;
    for (session, wrong) in sessions.iter().filter_map(|session| Some((session, session.summary.wrong.as_ref()?))) {
        note!("{}: {}", session.directory, printable(wrong));
        is_whole = false;
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All sessions, each behind the one that made it.
fn read(args: &SessionsArgs) -> Result<Vec<Listed>> {
    let place = &args.place;
    let found = sinks::disk::sessions_in(place);
    let bare = sinks::disk::bare_in(place, found.as_deref().unwrap_or_default()).unwrap_or_default();
    let sessions = match found {
        Ok(sessions) => [sessions, bare].concat(),
        Err(_) if !bare.is_empty() => bare,
        Err(error) => return Err(error).with_context(|| format!("cannot look into {}", place.display())),
    };
    let (family, one) = family_at(place, sessions);
    let first = one.map_or_else(|| family.roots().collect(), |one| vec![one]);
    let below = family.below(first);
    let dirs: Vec<_> = below.iter().filter_map(|(place, _)| Some(family.members.get(*place)?.dir.clone())).collect();
    let read = storage::each(&dirs, |dir| {
        let files = Files::of(dir);
        (files.bytes, Summary::read(dir, &files))
    });
    let listed = below.into_iter().zip(read).filter_map(|((place, level), (bytes, summary))| {
        let member = family.members.get(place)?;
        // It may have been removed meanwhile.
        if summary.wrong.is_some() && storage::metadata(&member.dir).is_err() {
            return None;
        }
        Some(Listed {
            name: member.name(),
            directory: member.dir.display().to_string(),
            parent: family.parent(place).and_then(|parent| Some(family.members.get(parent)?.name())),
            level,
            bytes,
            summary,
        })
    });
    Ok(listed.collect())
}

/// Orders them. By start they are in their order already, each behind the one that made it.
fn sort(sessions: &mut [Listed], order: SessionOrder) {
    if order != SessionOrder::Start {
        // Who is above it is somewhere else.
        sessions.iter_mut().for_each(|session| session.level = 0);
        sessions.sort_by_key(|session| session.summary.start_unix_ns);
    }
    match order {
        SessionOrder::Start => {}
        SessionOrder::Program => sessions.sort_by(|a, b| program(&a.summary).cmp(program(&b.summary))),
        SessionOrder::Host => sessions.sort_by(|a, b| host(&a.summary).cmp(host(&b.summary))),
        SessionOrder::Events => sessions.sort_by_key(|session| std::cmp::Reverse(session.summary.events)),
        SessionOrder::Missing => sessions.sort_by_key(|session| std::cmp::Reverse(session.summary.missing)),
        SessionOrder::Bytes => sessions.sort_by_key(|session| std::cmp::Reverse(session.bytes)),
    }
}

fn program(session: &Summary) -> &str {
    session.process.as_ref().map_or("", |process| &process.executable)
}

fn host(session: &Summary) -> &str {
    session.process.as_ref().map_or("", |process| &process.host)
}

fn pid(session: &Summary) -> Option<u32> {
    session.process.as_ref().map(|process| process.pid)
}

fn print(args: &SessionsArgs, sessions: &[Listed], out: &mut impl Write) -> io::Result<()> {
    if args.table.csv {
        out.write_all(b"session,directory,parent,host,program,pid,state,finished,start_unix_ns,lasted_ns,")?;
        out.write_all(b"threads,events,missing,bytes,wrong\r\n")?;
    }
    if !args.table.json && !args.table.csv {
        return print_text(sessions, Screen::of_stdout(), out);
    }
    for session in sessions {
        let summary = &session.summary;
        // Of one that cannot be read nobody knows.
        let known = |number: u64| summary.is_known().then_some(number);
        if args.table.json {
            let object = json!({
                "session": session.name,
                "directory": session.directory,
                "parent": session.parent,
                "host": summary.process.as_ref().map(|process| &process.host),
                "program": summary.process.as_ref().map(|process| &process.executable),
                "arguments": summary.process.as_ref().map(|process| &process.arguments),
                "pid": pid(summary),
                "state": summary.state,
                "finished": summary.is_finished,
                "start_unix_ns": summary.start_unix_ns,
                "lasted_ns": known(summary.lasted_ns),
                "threads": known(summary.threads as u64),
                "events": known(summary.events),
                "missing": known(summary.missing),
                "causes": summary.causes.iter().map(|(cause, count)| json!([cause, count])).collect::<Vec<_>>(),
                "bytes": session.bytes,
                "wrong": summary.wrong,
            });
            writeln!(out, "{}", printable_json(&object.to_string()))?;
            continue;
        }
        let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        let mut line = Vec::new();
        for text in [
            session.name.as_str(),
            &session.directory,
            session.parent.as_deref().unwrap_or_default(),
            host(summary),
            program(summary),
            &number(pid(summary).map(u64::from)),
            &summary.state,
            if summary.is_finished { "true" } else { "false" },
            &number(summary.start_unix_ns),
        ] {
            field(&mut line, text);
            line.push(b',');
        }
        let numbers = [summary.lasted_ns, summary.threads as u64, summary.events, summary.missing].map(known);
        numbers.into_iter().chain([Some(session.bytes)]).try_for_each(|one| write!(line, "{},", number(one)))?;
        field(&mut line, summary.wrong.as_deref().unwrap_or_default());
        line.extend_from_slice(b"\r\n");
        out.write_all(&line)?;
    }
    Ok(())
}

/// The columns of the table, and whether they hold text. Where the screen is narrow, the first in [`LEAST`] are left out first.
/// The program comes last.
const COLUMNS: [(&str, bool); 10] = [
    ("start (UTC)", true),
    ("session", true),
    ("host", true),
    ("pid", false),
    ("state", true),
    ("lasted", false),
    ("threads", false),
    ("events", false),
    ("missing", false),
    ("size", false),
];
const LEAST: [usize; 7] = [6, 3, 9, 5, 2, 0, 4];

fn print_text(sessions: &[Listed], screen: Screen, out: &mut impl Write) -> io::Result<()> {
    let rows: Vec<[String; 10]> = sessions.iter().map(cells).collect();
    let width = |(at, (name, _)): (usize, &(&str, bool))| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain([name.len()]).max().unwrap_or_default()
    };
    let mut widths: Vec<Option<usize>> = COLUMNS.iter().enumerate().map(|column| Some(width(column))).collect();
    for least in LEAST {
        if screen.has_room_for_name(widths.iter().flatten().map(|width| width + 2).sum()) {
            break;
        }
        widths.get_mut(least).into_iter().for_each(|width| *width = None);
    }
    let line = |cells: [&str; 10]| {
        let shown = cells.into_iter().zip(&COLUMNS).zip(&widths).filter_map(|(cell, width)| Some((cell, (*width)?)));
        let padded = shown.map(|((cell, (_, is_text)), width)| match is_text {
            true => format!("{cell:width$}  "),
            false => format!("{cell:>width$}  "),
        });
        padded.collect::<String>()
    };
    let head = format!("{}program", line(COLUMNS.map(|(name, _)| name)));
    writeln!(out, "{}", screen.paint(&head, Style::Head))?;
    for (session, row) in sessions.iter().zip(&rows) {
        let head = line(row.each_ref().map(String::as_str));
        let head = format!("{head}{:indent$}", "", indent = screen.indent(2 * session.level, head.chars().count()));
        let program = match program(&session.summary) {
            "" => "?",
            program => program,
        };
        let causes: Vec<_> = session.summary.causes.iter().map(|(cause, _)| printable(cause)).collect();
        let tail = if causes.is_empty() { String::new() } else { format!("  [{}]", causes.join(", ")) };
        writeln!(out, "{}", screen.line(&head, &printable(program), &tail, Style::Alarm))?;
    }
    Ok(())
}

fn cells(session: &Listed) -> [String; 10] {
    let summary = &session.summary;
    let known = |text: String| if summary.is_known() { text } else { "?".into() };
    [
        summary.start_unix_ns.map_or_else(|| "?".into(), |start| date_and_time(start / 1_000_000_000)),
        printable(&session.name),
        printable(host(summary)),
        pid(summary).map_or_else(String::new, |pid| pid.to_string()),
        printable(&summary.state),
        known(Period(Duration::from_nanos(summary.lasted_ns)).to_string()),
        known(count(summary.threads as u64)),
        known(count(summary.events)),
        // What the agent of one that is not finished has not sent is not known yet.
        known(if summary.is_finished { count(summary.missing) } else { format!("≥ {}", count(summary.missing)) }),
        Size(session.bytes).to_string(),
    ]
}
