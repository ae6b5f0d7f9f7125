//! `collector tree`: what called what, and what caused what.

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Result, bail};
use codec::{StreamId, SubstreamId, span::SpanKind, text::printable_json};
use serde_json::json;
use sinks::{
    Catalog, NameCache, file_name, source_at,
    tree::{CallTree, Grouping, Node, Owner},
};

use super::{
    duration,
    events::wanted_threads,
    loss::Loss,
    printable, quiet,
    screen::{Screen, Style},
    spanning,
    trace::Trace,
};
use crate::{args::TreeArgs, quantity::count};

pub(crate) fn run(args: &TreeArgs) -> Result<ExitCode> {
    let trace = Trace::open(&args.session.dir)?.named();
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let printed = print(&trace, args, &mut out);
    let flushed = out.flush();
    quiet(printed.and(flushed.map_err(Into::into)))?;
    Ok(ExitCode::SUCCESS)
}

fn print(trace: &Trace, args: &TreeArgs, out: &mut impl Write) -> Result<()> {
    let catalog = &trace.catalog;
    let engine = spanning::engine(trace, args.session.making.config());
    let screen = Screen::of_stdout();
    let mut printer = Printer { args, catalog, names: NameCache::new(), next: 0, screen, out };
    let (grouping, owners) = match (&args.thread, args.task) {
        (Some(thread), _) => {
            let threads = wanted_threads(trace, Some(thread))?;
            let owners = threads.iter().map(|thread| Owner::Thread(StreamId(thread.id))).collect();
            (Grouping::Threads, Some(owners))
        }
        (None, Some(task)) => (Grouping::Tasks, Some(vec![Owner::Task(SubstreamId(task))])),
        (None, None) => (Grouping::Causes, None),
    };
    let mut tree = CallTree::new(grouping);
    spanning::spans(trace, engine, |spans| {
        spans.iter().for_each(|span| tree.add(span));
        Ok(())
    })?;
    tree.finish();
    let loss = Loss::of(trace);
    if loss.is_any() && !args.json {
        let line = format!("{loss}; `≥` stands before times that lack those of calls without an end");
        writeln!(printer.out, "{}", printer.screen.paint(&line, Style::Alarm))?;
    }
    let found: Vec<_> = match owners {
        Some(owners) => owners.into_iter().filter_map(|owner| Some((owner, tree.root(owner)?))).collect(),
        None => tree.roots().collect(),
    };
    if let (Some(task), true) = (args.task, found.is_empty()) {
        bail!("no call was made in task {task}");
    }
    found.into_iter().try_for_each(|(owner, root)| printer.tree(owner, &root))
}

/// Prints trees.
struct Printer<'a, W> {
    args: &'a TreeArgs,
    catalog: &'a Catalog,
    names: NameCache,
    /// The number of the next node.
    next: u64,
    screen: Screen,
    out: &'a mut W,
}

impl<W: Write> Printer<'_, W> {
    /// Prints what is below a root. The tree may be deeper than the stack.
    fn tree(&mut self, owner: Owner, root: &Node<'_>) -> Result<()> {
        let children = root.children();
        let whole = children.iter().map(Node::total_ns).fold(0, u64::saturating_add);
        let title = match owner {
            Owner::Thread(stream) => {
                let name = self.catalog.thread(stream).map_or("", |thread| &thread.name);
                format!("thread {} {}", stream.0, printable(name)).trim_end().to_owned()
            }
            Owner::Task(task) => format!("task {}", task.0),
        };
        if !self.args.json {
            let head = format!("{title}: {}", duration(whole));
            writeln!(self.out, "{}", self.screen.paint(&head, Style::Head))?;
        }
        let mut rest: Vec<_> = children.into_iter().rev().map(|child| (child, 0, None, None)).collect();
        while let Some((node, level, above, caller)) = rest.pop() {
            let percent = if whole == 0 { 0.0 } else { node.total_ns() as f64 * 100.0 / whole as f64 };
            if self.args.depth.is_some_and(|depth| level >= depth) || percent < self.args.min_percent && whole > 0 {
                continue;
            }
            let number = self.next;
            self.next += 1;
            let module = self.node(&title, &node, (number, above, level), percent, caller)?;
            let children = node.children();
            rest.extend(children.into_iter().rev().map(|child| (child, level + 1, Some(number), module.clone())));
        }
        Ok(())
    }

    /// Prints a node, and its module's file where that is another than the caller's. Returns the module.
    fn node(
        &mut self,
        title: &str,
        node: &Node<'_>,
        (number, above, level): (u64, Option<u64>, usize),
        percent: f64,
        caller: Option<Arc<str>>,
    ) -> Result<Option<Arc<str>>> {
        let name = self.names.name(self.catalog, node.what(), codec::SessionNs(0));
        if self.args.json {
            let source = source_at(self.catalog, node.what(), codec::SessionNs(0));
            let object = json!({
                "tree": title,
                "node": number,
                "parent": above,
                "level": level,
                "kind": node.kind().name(),
                "function": &*name.pretty,
                "module": name.module.as_deref(),
                "source": source.map(|(file, line)| format!("{file}:{line}")),
                "count": node.count(),
                "total_ns": node.total_ns(),
                "self_ns": node.self_ns(),
                "untimed": node.untimed(),
                "percent": (percent * 1000.0).round() / 1000.0,
            });
            writeln!(self.out, "{}", printable_json(&object.to_string()))?;
            return Ok(None);
        }
        let mark = match node.kind() {
            // What is missing says so.
            SpanKind::Frame | SpanKind::Gap => String::new(),
            kind => format!("[{kind}] "),
        };
        let at_least = if node.untimed() > 0 { "≥ " } else { "" };
        let total = format!("{at_least}{}", duration(node.total_ns()));
        let (own, calls) = (duration(node.self_ns()), count(node.count()));
        let module = name.module.clone();
        // What has no name is called after its module already.
        let is_named = name.raw.is_some();
        let entered = module.as_deref().filter(|module| is_named && caller.as_deref() != Some(*module));
        let entered = entered.map_or_else(String::new, |path| format!("  [{}]", printable(file_name(path))));
        let name = printable(&name.pretty);
        let numbers = self.numbers(percent, &total, &own, &calls);
        let indent = self.screen.indent(level.min(60) * 2, numbers.chars().count() + mark.chars().count());
        let line = format!("{numbers}{:indent$}{mark}", "");
        writeln!(self.out, "{}", self.screen.line(&line, &name, &entered, Style::Dim))?;
        Ok(module)
    }

    /// What stands before a name. Where the screen is narrow, the least important is left out first.
    fn numbers(&self, percent: f64, total: &str, own: &str, calls: &str) -> String {
        let columns = [
            (format!("{percent:>6.1} % "), 0),
            (format!("{total:>12} "), 1),
            (format!("self {own:>12} "), 3),
            (format!("{calls:>11}× "), 2),
        ];
        // As wide as they are for all but huge numbers, so that all lines have the same.
        const WIDTHS: [usize; 4] = [9, 9 + 13, 9 + 13 + 13, 9 + 13 + 13 + 18];
        let most = WIDTHS.iter().rposition(|width| self.screen.has_room_for_name(width + 1)).unwrap_or(0);
        columns.into_iter().filter(|(_, rank)| *rank <= most).map(|(column, _)| column).collect::<String>() + " "
    }
}
