//! `collector tree`: what called what, what caused what, and which process made which.

mod callers;
mod printer;

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use answers::{
    birth_call::thread_of,
    calls::{Calls, Form},
    family::{Family, how_and_when},
    filter::Filter,
    loss::Loss,
    trace::Trace,
    turned_down::TurnedDown,
};
use anyhow::{Result, bail};
use codec::StreamId;
use sinks::tree::{BirthPlace, Node, Owner};

use self::printer::{Call, Place, Printer, Standing};
use super::{printable, quiet, screen::Style};
use crate::{args::TreeArgs, quantity::counted};

/// How many processes may be below one another. What those beyond called is not shown: somebody may have made them up.
const MOST_NESTED: usize = 100;

pub(crate) fn run(args: &TreeArgs) -> Result<ExitCode> {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    if let Some(function) = &args.callers {
        let printed = callers::print(args, function, &mut out);
        let flushed = out.flush();
        quiet(printed.and(flushed.map_err(Into::into)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = super::choose(&args.session.dir, &args.filter)?;
    let is_alone = args.alone || args.filter.thread.is_some() || args.filter.task.is_some();
    let is_family = !is_alone && chosen.all().len() > 1;
    let printer = Printer::new(args, is_family, &mut out);
    let left = args.filter.limit.unwrap_or(usize::MAX);
    let mut walk = Walk { args, family: &chosen.family, is_alone, is_whole: true, left, printer };
    let printed = chosen.first.iter().try_for_each(|first| walk.first(*first));
    let (is_whole, is_nothing) = (walk.is_whole, walk.left == left && left > 0);
    if is_nothing && printed.is_ok() && args.filter.any().is_some() {
        super::say_nothing(chosen.dir());
    }
    let flushed = out.flush();
    quiet(printed.and(flushed.map_err(Into::into)))?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says above the numbers what they lack.
fn say_what_is_missing(
    printer: &mut Printer<'_, impl Write>,
    args: &TreeArgs,
    loss: &Loss,
    turned_down: &TurnedDown,
) -> Result<()> {
    if loss.is_any() && !args.json {
        let line = format!("{loss}; `≥` stands before times that lack those of calls without an end");
        printer.line(&line, Style::Alarm)?;
    }
    let down = turned_down.count() as u64;
    if down > 0 && !args.json {
        let line = format!(
            "{} turned down: `≥` stands before their counts and times, which lack the calls that were not followed, and `≤` \
             before own times that contain those",
            counted(down, "function")
        );
        printer.line(&line, Style::Dim)?;
    }
    Ok(())
}

/// Goes through the processes of a family.
struct Walk<'a, W> {
    args: &'a TreeArgs,
    family: &'a Family,
    /// Whether children are left out.
    is_alone: bool,
    /// Whether all could be read.
    is_whole: bool,
    /// How many calls may still be printed.
    left: usize,
    printer: Printer<'a, W>,
}

/// A process that was read.
struct Process {
    trace: Trace,
    calls: Calls,
    turned_down: TurnedDown,
    /// Its children, each with the number of its birth in the tree, where its thread is known.
    children: Vec<(usize, Option<usize>)>,
}

impl<W: Write> Walk<'_, W> {
    /// Prints a process that nothing is above, with all that came from it.
    fn first(&mut self, member: usize) -> Result<()> {
        let Some(known) = self.family.members.get(member) else { return Ok(()) };
        let process = self.read(member)?;
        let loss = Loss::of(&process.trace);
        self.printer.head(known)?;
        say_what_is_missing(&mut self.printer, self.args, &loss, &process.turned_down)?;
        self.calls(&process, Place::default(), 0)
    }

    /// Reads a process and makes its tree.
    fn read(&self, member: usize) -> Result<Process> {
        let known = self.family.members.get(member);
        let trace = Trace::open(known.map_or(&self.args.session.dir, |known| &known.dir))?.named();
        let filter = Filter::new(&trace, &self.args.filter.wanted())?;
        let mut calls = Calls::new(&filter, Form::Tree);
        let places = known.filter(|_| !self.is_alone).map_or(&[][..], |known| &known.children);
        let threads = trace.threads();
        let mut children = Vec::with_capacity(places.len());
        for place in places {
            let birth = self.family.members.get(*place).and_then(|child| child.birth);
            let thread = birth.and_then(|birth| Some((thread_of(&threads, &birth)?.id, birth.at)));
            children.push((*place, thread.map(|(thread, at)| calls.tree.find_birth(StreamId(thread), at))));
        }
        super::say_if_unfinished(&trace);
        calls.read(&trace, self.args.session.making.config(), &filter, Form::Tree, |_| Ok(()))?;
        let turned_down = TurnedDown::of(&trace.catalog);
        Ok(Process { trace, calls, turned_down, children })
    }

    /// Prints what a process called, with the processes that it made, of which so many are above it.
    fn calls(&mut self, process: &Process, place: Place, nested: usize) -> Result<()> {
        let Process { trace, calls, children, .. } = process;
        let found = calls.roots();
        if let (Some(task), true) = (self.args.filter.task, found.is_empty()) {
            bail!("no call was made in task {task}");
        }
        self.printer.enter(trace);
        for (owner, root) in found {
            self.tree(process, owner, &root, place, nested)?;
        }
        for (child, birth) in children {
            let words = match birth.map(|birth| calls.tree.birth_place(birth)) {
                Some(BirthPlace::Call | BirthPlace::Inside) => continue,
                Some(BirthPlace::Missing) => "; the call is missing",
                Some(BirthPlace::NoCall) if self.args.filter.any().is_some() => "; in no call that is asked for",
                Some(BirthPlace::NoCall) => "; in no call that was traced",
                None => "; the thread is not in the trace",
            };
            self.child(*child, words, place, nested)?;
            self.printer.enter(trace);
        }
        Ok(())
    }

    /// Prints what is below a root. The tree may be deeper than the stack.
    fn tree(&mut self, process: &Process, owner: Owner, root: &Node<'_>, place: Place, nested: usize) -> Result<()> {
        let tree = &process.calls.tree;
        let children = root.children();
        let whole = children.iter().map(Node::total_ns).fold(0, u64::saturating_add);
        let title = self.printer.title(&process.trace, owner, whole, place)?;
        let below = place.below_title();
        let mut rest: Vec<_> = children.into_iter().rev().map(|child| (child, 0, below, None)).collect();
        while let Some((node, level, place, caller)) = rest.pop() {
            let percent = if whole == 0 { 0.0 } else { node.total_ns() as f64 * 100.0 / whole as f64 };
            if self.args.filter.depth.is_some_and(|depth| level >= depth) {
                self.made_in(process, &tree.births_below(&node), "; deeper than what is shown", place, nested)?;
                continue;
            }
            if !process.calls.shows(&node) {
                self.made_in(process, &tree.births_below(&node), "; in a call that is not shown", place, nested)?;
                continue;
            }
            if percent < self.args.min_percent && whole > 0 && !tree.leads_to_birth(&node) {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else { return Ok(()) };
            self.left = left;
            let children = node.children();
            let is_down = |node: &Node<'_>| process.turned_down.has(node.what());
            let standing = Standing { percent, is_down: is_down(&node), has_called_down: children.iter().any(is_down) };
            let (number, module) =
                self.printer.node(&process.trace, &title, &Call::from(&node), standing, place, caller)?;
            let below = place.below(number);
            self.made_in(process, tree.births_in(&node), "", below, nested)?;
            rest.extend(children.into_iter().rev().map(|child| (child, level + 1, below, module.clone())));
        }
        Ok(())
    }

    /// Prints the processes with these births.
    fn made_in(&mut self, process: &Process, births: &[usize], words: &str, place: Place, nested: usize) -> Result<()> {
        for birth in births {
            let Some((child, _)) = process.children.iter().find(|(_, number)| *number == Some(*birth)) else {
                continue;
            };
            let words = match (process.calls.tree.birth_place(*birth), words) {
                (BirthPlace::Inside, "") => "; somewhere in this call: events are missing there",
                (_, words) => words,
            };
            self.child(*child, words, place, nested)?;
            self.printer.enter(&process.trace);
        }
        Ok(())
    }

    /// Prints a process that another made.
    fn child(&mut self, member: usize, words: &str, place: Place, nested: usize) -> Result<()> {
        let Some(known) = self.family.members.get(member) else { return Ok(()) };
        let made = known.birth.map_or_else(String::new, |birth| how_and_when(&birth, ""));
        let made = format!("{made}{words}");
        if nested >= MOST_NESTED {
            let made = format!("{made}; see `collector tree {}`", printable(&known.dir.display().to_string()));
            return self.printer.process(known, &made, place).map(drop);
        }
        match self.read(member) {
            Ok(process) => {
                let missing = match Loss::of(&process.trace).missing() {
                    0 => String::new(),
                    missing => format!("; {} missing in it", counted(missing, "event")),
                };
                let down = match process.turned_down.count() as u64 {
                    0 => String::new(),
                    down => format!("; {} turned down in it", counted(down, "function")),
                };
                let below = self.printer.process(known, &format!("{made}{missing}{down}"), place)?;
                self.calls(&process, below, nested + 1)
            }
            Err(error) => {
                self.is_whole = false;
                self.printer.process(known, &format!("{made}; it cannot be read"), place)?;
                note!("{}: {}", known.dir.display(), printable(&format!("{error:#}")));
                Ok(())
            }
        }
    }
}
