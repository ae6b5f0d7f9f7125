//! `collector diff`: what differs between two sessions.

mod table;

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    process::ExitCode,
};

use answers::{
    diff::{self, Compared, Stacks},
    filter::Filter,
    top::Row,
};
use anyhow::{Context, Result};

use super::quiet;
use crate::{args::DiffArgs, quantity::counted};

/// How many functions are printed where nobody says.
const FUNCTIONS: usize = 50;

pub(crate) fn run(args: &DiffArgs) -> Result<ExitCode> {
    let mut stacks = args.flame.as_ref().map(|_| Stacks::default());
    let (a, a_name) = read(args, &args.a, 'A', stacks.as_mut())?;
    let (b, b_name) = read(args, &args.b, 'B', stacks.as_mut())?;
    if let (Some(stacks), Some(file)) = (&stacks, &args.flame) {
        let count = write(stacks, file).with_context(|| format!("cannot write {}", file.display()))?;
        note!("{}: {}", file.display(), counted(count, "stack"));
    }
    let mut changes = diff::changes(&a, &b);
    let compared = changes.len();
    diff::rank(&mut changes, args.sort.into(), args.all, usize::MAX);
    let differ = changes.len();
    changes.truncate(args.filter.limit.unwrap_or(FUNCTIONS));
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = table::print(args, [&a_name, &b_name], (compared, differ), &changes, &mut out);
    let printed = printed.and_then(|()| out.flush());
    quiet(printed.map_err(Into::into))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a session: its functions, and the stacks where they are asked for. Says what its numbers lack.
fn read(args: &DiffArgs, dir: &Path, side: char, stacks: Option<&mut Stacks>) -> Result<(Vec<Row>, String)> {
    let trace = super::open_wanted(dir, &args.filter)?.named();
    let filter = Filter::new(&trace, &args.filter.wanted()).with_context(|| format!("{side}, {}", dir.display()))?;
    super::say_if_unfinished(&trace);
    let Compared { rows, warning, .. } = Compared::read(&trace, args.making.config(), &filter, &mut |_| Ok(()))?;
    if let Some(warning) = warning {
        note!("{side}, {}: {warning}", trace.dir.display());
    }
    super::say_if_nothing(&trace.dir, &filter, rows.is_empty());
    if let Some(stacks) = stacks {
        stacks.add(&trace, args.making.config(), &filter, side == 'B')?;
    }
    Ok((rows, trace.dir.display().to_string()))
}

fn write(stacks: &Stacks, file: &Path) -> io::Result<u64> {
    let mut out = BufWriter::new(File::create(file)?);
    let mut count = 0;
    for (stack, [a, b]) in stacks.iter() {
        writeln!(out, "{stack} {a} {b}")?;
        count += 1;
    }
    out.flush()?;
    Ok(count)
}
