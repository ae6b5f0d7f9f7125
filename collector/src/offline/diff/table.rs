//! Changes as lines.

use std::io::{self, Write};

use answers::{
    diff::{Change, Measure, Value},
    duration,
};
use codec::text::printable_json;

use crate::{
    args::DiffArgs,
    offline::{
        printable,
        screen::{Screen, Style},
        spans::field,
    },
    quantity::{count, counted},
};

/// Prints changes in the form that is asked for. So many functions were compared, and so many differ.
pub(super) fn print(
    args: &DiffArgs,
    names: [&str; 2],
    (compared, differ): (usize, usize),
    changes: &[Change],
    out: &mut impl Write,
) -> io::Result<()> {
    let by = args.sort.into();
    if args.table.json {
        return changes
            .iter()
            .try_for_each(|change| writeln!(out, "{}", printable_json(&change.object(by).to_string())));
    }
    if args.table.csv {
        return csv(changes, by, out);
    }
    let screen = Screen::of_stdout();
    for (side, name) in ['A', 'B'].into_iter().zip(names) {
        writeln!(out, "{}", screen.paint(&format!("{side}: {}", printable(name)), Style::Dim))?;
    }
    text(changes, by, screen, out)?;
    let hidden = compared.saturating_sub(differ) as u64;
    if hidden > 0 {
        let line = format!(
            "{} compared; {} of them do not differ, or no more than single calls do (--all lists them)",
            counted(compared as u64, "function"),
            count(hidden)
        );
        writeln!(out, "{}", screen.paint(&line, Style::Dim))?;
    }
    Ok(())
}

fn csv(changes: &[Change], by: Measure, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"function,module,only_in,within_noise,calls_a,calls_b,calls_change,calls_error,")?;
    out.write_all(
        b"total_a_ns,total_b_ns,total_change_ns,total_error_ns,self_a_ns,self_b_ns,self_change_ns,self_error_ns\r\n",
    )?;
    for change in changes {
        let mut line = Vec::new();
        field(&mut line, &change.name);
        line.push(b',');
        field(&mut line, change.module.as_deref().unwrap_or_default());
        let only = change.only_in().map_or_else(String::new, String::from);
        write!(line, ",{only},{}", change.value(by).is_noise())?;
        for (_, measure) in Measure::ALL {
            let value = change.value(measure);
            let error = value.error.map_or_else(String::new, |error| error.to_string());
            write!(line, ",{},{},{},{error}", value.a, value.b, value.change())?;
        }
        line.extend_from_slice(b"\r\n");
        out.write_all(&line)?;
    }
    Ok(())
}

/// The columns before the names. Where the screen is narrow, those with the largest numbers are left out first.
const COLUMNS: [(Column, usize); 8] = [
    (Column::Change, 0),
    (Column::Error, 2),
    (Column::A, 1),
    (Column::B, 1),
    (Column::Other(0), 3),
    (Column::Other(1), 3),
    (Column::Module, 4),
    (Column::Note, 0),
];

#[derive(Debug, Clone, Copy)]
enum Column {
    Change,
    Error,
    A,
    B,
    /// How another number changed.
    Other(usize),
    Module,
    Note,
}

/// A number of this measure.
fn number(measure: Measure, value: u64) -> String {
    if measure == Measure::Calls { count(value) } else { duration(value) }
}

fn signed(measure: Measure, value: Value) -> String {
    let change = value.change();
    let sign = if change < 0 { "-" } else { "+" };
    format!("{sign}{}", number(measure, change.unsigned_abs()))
}

fn name_of(measure: Measure) -> &'static str {
    Measure::ALL.iter().find(|(_, known)| *known == measure).map_or("", |(name, _)| name)
}

impl Column {
    fn head(self, by: Measure) -> String {
        match self {
            Self::Change => format!("{} B-A", name_of(by)),
            Self::Error => "±".into(),
            Self::A => format!("{} A", name_of(by)),
            Self::B => format!("{} B", name_of(by)),
            Self::Other(place) => format!("{} B-A", name_of(other(by, place))),
            Self::Module => "module".into(),
            Self::Note => String::new(),
        }
    }

    fn cell(self, change: &Change, by: Measure) -> String {
        let value = change.value(by);
        match self {
            Self::Change => signed(by, value),
            Self::Error => value.error.map_or_else(|| "?".into(), |error| number(by, error)),
            Self::A if change.a.is_none() => "-".into(),
            Self::A => number(by, value.a),
            Self::B if change.b.is_none() => "-".into(),
            Self::B => number(by, value.b),
            Self::Other(place) => signed(other(by, place), change.value(other(by, place))),
            Self::Module => printable(change.module.as_deref().unwrap_or_default()),
            Self::Note => match change.only_in() {
                Some(side) => format!("only in {side}"),
                None if value.is_noise() => "noise".into(),
                None => String::new(),
            },
        }
    }
}

/// The measures that they are not sorted by.
fn other(by: Measure, place: usize) -> Measure {
    Measure::ALL.iter().map(|(_, measure)| *measure).filter(|measure| *measure != by).nth(place).unwrap_or(by)
}

fn text(changes: &[Change], by: Measure, screen: Screen, out: &mut impl Write) -> io::Result<()> {
    let wide = |text: &str| text.chars().count();
    let width = |column: Column| {
        changes.iter().map(|change| wide(&column.cell(change, by))).fold(wide(&column.head(by)), usize::max)
    };
    let mut shown: Vec<_> = COLUMNS.into_iter().map(|(column, rank)| (column, rank, width(column))).collect();
    shown.retain(|(_, _, width)| *width > 0);
    while let Some(least) = shown.iter().map(|(_, rank, _)| *rank).max().filter(|rank| *rank > 0) {
        let taken = shown.iter().map(|(.., width)| width + 2).sum::<usize>();
        if screen.has_room_for_name(taken) {
            break;
        }
        shown.retain(|(_, rank, _)| *rank != least);
    }
    let line = |cell: &dyn Fn(Column) -> String| {
        let padded = shown.iter().map(|(column, _, width)| match column {
            Column::Module | Column::Note => format!("{:width$}  ", cell(*column)),
            _ => format!("{:>width$}  ", cell(*column)),
        });
        padded.collect::<String>()
    };
    let head = format!("{}function", line(&|column| column.head(by)));
    writeln!(out, "{}", screen.paint(&head, Style::Head))?;
    for change in changes {
        let head = line(&|column| column.cell(change, by));
        writeln!(out, "{}", screen.line(&head, &printable(&change.name), "", Style::Dim))?;
    }
    Ok(())
}
