//! `collector tree`: what called what, and what caused what.

mod narrative;

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use anyhow::{Result, bail};
use codec::{
    StreamId, SubstreamId,
    span::{SpanKind, What},
};
use serde_json::json;
use sinks::{
    Catalog, NameCache,
    tree::{CallTree, Grouping, Owner},
};

use self::narrative::Narrative;
use super::{duration, events::wanted_threads, printable, quiet, spanning, trace::Trace};
use crate::{args::TreeArgs, quantity::count};

pub(crate) fn run(args: &TreeArgs) -> Result<ExitCode> {
    let trace = Trace::open(&args.session.dir)?;
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let printed = print(&trace, args, &mut out);
    let flushed = out.flush();
    quiet(printed.and(flushed.map_err(Into::into)))?;
    Ok(ExitCode::SUCCESS)
}

/// A node of a tree.
trait Branch: Sized {
    fn view(&self) -> View<'_>;

    /// What is below it, that which took longest first.
    fn children(&self) -> Vec<Self>;
}

/// What there is to see of a node.
struct View<'a> {
    what: &'a What,
    kind: SpanKind,
    count: u64,
    total_ns: u64,
    self_ns: u64,
}

impl Branch for sinks::tree::Node<'_> {
    fn view(&self) -> View<'_> {
        let (count, total_ns, self_ns) = (self.count(), self.total_ns(), self.self_ns());
        View { what: self.what(), kind: SpanKind::Frame, count, total_ns, self_ns }
    }

    fn children(&self) -> Vec<Self> {
        self.children()
    }
}

fn print(trace: &Trace, args: &TreeArgs, out: &mut impl Write) -> Result<()> {
    let catalog = Catalog::from_manifest(&trace.manifest);
    let engine = spanning::engine(trace, &catalog, args.session.making.config());
    let mut printer = Printer { args, catalog: &catalog, names: NameCache::new(), next: 0, out };
    let owners: Vec<Owner> = match (&args.thread, args.task) {
        (Some(thread), _) => {
            let threads = wanted_threads(trace, Some(thread))?;
            threads.iter().map(|thread| Owner::Thread(StreamId(thread.id))).collect()
        }
        (None, Some(task)) => vec![Owner::Task(SubstreamId(task))],
        (None, None) => {
            let mut narrative = Narrative::default();
            spanning::spans(trace, engine, |spans| {
                spans.iter().for_each(|span| narrative.add(span));
                Ok(())
            })?;
            narrative.finish();
            return narrative.roots().try_for_each(|(stream, root)| printer.tree(&Owner::Thread(stream), &root));
        }
    };
    let mut tree = CallTree::new(if args.task.is_some() { Grouping::Tasks } else { Grouping::Threads });
    spanning::spans(trace, engine, |spans| {
        spans.iter().for_each(|span| tree.add(span));
        Ok(())
    })?;
    tree.finish();
    let found: Vec<_> = owners.iter().filter_map(|owner| Some((owner, tree.root(*owner)?))).collect();
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
    out: &'a mut W,
}

impl<W: Write> Printer<'_, W> {
    /// Prints what is below a root. The tree may be deeper than the stack.
    fn tree<B: Branch>(&mut self, owner: &Owner, root: &B) -> Result<()> {
        let children = root.children();
        let whole = children.iter().map(|child| child.view().total_ns).fold(0, u64::saturating_add);
        let title = match owner {
            Owner::Thread(stream) => {
                let name = self.catalog.thread(*stream).map_or("", |thread| &thread.name);
                format!("thread {} {}", stream.0, printable(name)).trim_end().to_owned()
            }
            Owner::Task(task) => format!("task {}", task.0),
        };
        if !self.args.json {
            writeln!(self.out, "{title}: {}", duration(whole))?;
        }
        let mut rest: Vec<_> = children.into_iter().rev().map(|child| (child, 0, None)).collect();
        while let Some((node, level, above)) = rest.pop() {
            let view = node.view();
            let percent = if whole == 0 { 0.0 } else { view.total_ns as f64 * 100.0 / whole as f64 };
            if self.args.depth.is_some_and(|depth| level >= depth) || percent < self.args.min_percent && whole > 0 {
                continue;
            }
            let number = self.next;
            self.next += 1;
            self.node(&title, &view, (number, above, level), percent)?;
            let children = node.children();
            rest.extend(children.into_iter().rev().map(|child| (child, level + 1, Some(number))));
        }
        Ok(())
    }

    fn node(
        &mut self,
        title: &str,
        view: &View<'_>,
        (number, above, level): (u64, Option<u64>, usize),
        percent: f64,
    ) -> Result<()> {
        let name = self.names.name(self.catalog, view.what, codec::SessionNs(0));
        if self.args.json {
            let object = json!({
                "tree": title,
                "node": number,
                "parent": above,
                "level": level,
                "kind": view.kind.name(),
                "function": &*name.pretty,
                "module": name.module.as_deref(),
                "count": view.count,
                "total_ns": view.total_ns,
                "self_ns": view.self_ns,
                "percent": (percent * 1000.0).round() / 1000.0,
            });
            writeln!(self.out, "{object}")?;
            return Ok(());
        }
        let mark = match view.kind {
            SpanKind::Frame => String::new(),
            kind => format!("[{kind}] "),
        };
        let indent = level.min(60) * 2;
        let (total, own, calls) = (duration(view.total_ns), duration(view.self_ns), count(view.count));
        let name = printable(&name.pretty);
        writeln!(self.out, "{percent:>6.1} % {total:>12} self {own:>12} {calls:>11}×  {:indent$}{mark}{name}", "")?;
        Ok(())
    }
}
