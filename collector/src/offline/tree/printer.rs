//! The lines of call trees.

use std::{io::Write, sync::Arc};

use answers::{duration, family::Member, trace::Trace};
use anyhow::Result;
use codec::{
    SessionNs,
    span::{SpanKind, What},
    text::printable_json,
};
use serde_json::{Value, json};
use sinks::{
    NameCache, file_name, source_at,
    tree::{Node, Owner},
};

use crate::{
    args::TreeArgs,
    offline::{
        printable,
        screen::{Screen, Style},
    },
    quantity::count,
};

/// Prints trees.
pub(super) struct Printer<'a, W> {
    args: &'a TreeArgs,
    /// Whether there are several processes.
    is_family: bool,
    names: NameCache,
    /// The session whose calls are printed.
    session: String,
    /// The number of the next node.
    next: u64,
    screen: Screen,
    out: &'a mut W,
}

/// Where a line is in the whole.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    level: usize,
    /// The number of the node above.
    above: Option<u64>,
    /// Whether it is in a process that another made.
    is_inner: bool,
}

/// What a line says of the calls of a function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) what: &'a What,
    pub(super) kind: SpanKind,
    pub(super) count: u64,
    pub(super) total_ns: u64,
    pub(super) self_ns: u64,
    pub(super) untimed: u64,
}

impl<'a> From<&Node<'a>> for Call<'a> {
    fn from(node: &Node<'a>) -> Self {
        Self {
            what: node.what(),
            kind: node.kind(),
            count: node.count(),
            total_ns: node.total_ns(),
            self_ns: node.self_ns(),
            untimed: node.untimed(),
        }
    }
}

/// How a node stands in its tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// Its part of the time of the whole.
    pub(super) percent: f64,
    /// Its function was turned down, so that there were more calls.
    pub(super) is_down: bool,
    /// It called such a function, and its own time has the calls that were not followed.
    pub(super) has_called_down: bool,
}

impl Place {
    /// Below the node with this number.
    pub(super) fn below(self, number: u64) -> Self {
        Self { level: self.level + 1, above: Some(number), ..self }
    }

    /// Below a title, which has a line of its own and no number. That of a first process stands at the edge.
    pub(super) fn below_title(self) -> Self {
        Self { level: self.level + usize::from(self.is_inner), ..self }
    }

    fn indent(self) -> usize {
        self.level.min(60) * 2
    }
}

impl<'a, W: Write> Printer<'a, W> {
    pub(super) fn new(args: &'a TreeArgs, is_family: bool, out: &'a mut W) -> Self {
        let (names, session) = (NameCache::new(), String::new());
        Self { args, is_family, names, session, next: 0, screen: Screen::of_stdout(), out }
    }

    /// What is printed from here on is of this session.
    pub(super) fn enter(&mut self, trace: &Trace) {
        let session = trace.name();
        if self.session != session {
            (self.session, self.names) = (session, NameCache::new());
        }
    }

    pub(super) fn line(&mut self, line: &str, style: Style) -> Result<()> {
        Ok(writeln!(self.out, "{}", self.screen.paint(line, style))?)
    }

    /// Prints which process comes, if there are several.
    pub(super) fn head(&mut self, member: &Member) -> Result<()> {
        if !self.is_family || self.args.json {
            return Ok(());
        }
        self.line(&format!("{}, {}", member.label(), printable(&member.name())), Style::Head)
    }

    /// Prints what a tree is of, and returns that.
    pub(super) fn title(&mut self, trace: &Trace, owner: Owner, whole: u64, place: Place) -> Result<String> {
        let title = match owner {
            Owner::Thread(stream) => {
                let name = trace.catalog.thread(stream).map_or("", |thread| &thread.name);
                format!("thread {} {}", stream.0, printable(name)).trim_end().to_owned()
            }
            Owner::Task(task) => format!("task {}", task.0),
        };
        let head = format!("{title}: {}", duration(whole));
        match (self.args.json, place.is_inner) {
            (true, _) => {}
            (false, false) => self.line(&head, Style::Head)?,
            (false, true) => self.beside_numbers(&head, "", place)?,
        }
        Ok(title)
    }

    /// Prints a process that another made, and returns where its calls are.
    pub(super) fn process(&mut self, member: &Member, made: &str, place: Place) -> Result<Place> {
        let number = self.next;
        self.next += 1;
        if self.args.json {
            let birth = member.birth.as_ref();
            let object = json!({
                "node": number,
                "parent": place.above,
                "level": place.level,
                "kind": "process",
                "function": member.label().to_string(),
                "session": member.name(),
                "id": member.head.session,
                "pid": member.pid(),
                "how": birth.map(|birth| birth.how.name()),
                "tid": birth.map(|birth| birth.tid).filter(|tid| *tid != 0),
                "at_ns": birth.map(|birth| birth.at.0),
                "made": made,
            });
            writeln!(self.out, "{}", printable_json(&object.to_string()))?;
        } else {
            let name = printable(&member.name());
            self.beside_numbers(&format!("[process] {}", member.label()), &format!(", {name}: {made}"), place)?;
        }
        Ok(Place { is_inner: true, ..place.below(number) })
    }

    /// A line without numbers, as far to the right as those that have some.
    fn beside_numbers(&mut self, text: &str, rest: &str, place: Place) -> Result<()> {
        let width = self.numbers(0.0, "", "", "").chars().count();
        let indent = width + self.screen.indent(place.indent(), width);
        Ok(writeln!(self.out, "{}", self.screen.line(&format!("{:indent$}", ""), text, rest, Style::Dim))?)
    }

    /// Prints a node, and its module's file where that is another than the caller's. Returns its number and the module.
    pub(super) fn node(
        &mut self,
        trace: &Trace,
        title: &str,
        node: &Call<'_>,
        standing: Standing,
        place: Place,
        caller: Option<Arc<str>>,
    ) -> Result<(u64, Option<Arc<str>>)> {
        let number = self.next;
        self.next += 1;
        let name = self.names.name(&trace.catalog, node.what, SessionNs(0));
        if self.args.json {
            let source = source_at(&trace.catalog, node.what, SessionNs(0));
            let mut object = json!({
                "tree": title,
                "node": number,
                "parent": place.above,
                "level": place.level,
                "kind": node.kind.name(),
                "function": &*name.pretty,
                "module": name.module.as_deref(),
                "source": source.map(|(file, line)| format!("{file}:{line}")),
                "count": node.count,
                "total_ns": node.total_ns,
                "self_ns": node.self_ns,
                "untimed": node.untimed,
                "turned_down": standing.is_down,
                "self_has_turned_down": standing.has_called_down,
                "percent": (standing.percent * 1000.0).round() / 1000.0,
            });
            if let (true, Value::Object(object)) = (self.is_family, &mut object) {
                object.insert("session".into(), self.session.as_str().into());
            }
            writeln!(self.out, "{}", printable_json(&object.to_string()))?;
            return Ok((number, None));
        }
        let mark = match node.kind {
            // What is missing says so.
            SpanKind::Frame | SpanKind::Gap => String::new(),
            kind => format!("[{kind}] "),
        };
        let marked = |mark: &str, so: bool, text: String| if so { format!("{mark} {text}") } else { text };
        let total = marked("≥", node.untimed > 0 || standing.is_down, duration(node.total_ns));
        let own = marked("≤", standing.has_called_down, duration(node.self_ns));
        let calls = marked("≥", standing.is_down, count(node.count));
        let module = name.module.clone();
        // What has no name is called after its module already.
        let is_named = name.raw.is_some();
        let entered = module.as_deref().filter(|module| is_named && caller.as_deref() != Some(*module));
        let entered = entered.map_or_else(String::new, |path| format!("  [{}]", printable(file_name(path))));
        let name = printable(&name.pretty);
        let numbers = self.numbers(standing.percent, &total, &own, &calls);
        let indent = self.screen.indent(place.indent(), numbers.chars().count() + mark.chars().count());
        let line = format!("{numbers}{:indent$}{mark}", "");
        writeln!(self.out, "{}", self.screen.line(&line, &name, &entered, Style::Dim))?;
        Ok((number, module))
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
