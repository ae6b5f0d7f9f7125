//! The functions of a session, and those of two side by side: the numbers that `collector top` and `collector diff` print.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use answers::{
    diff::{self, Compared, Measure},
    loss::Loss,
    overview::{RowKind, Sum},
    top::{self, Bursts},
};
use codec::{FunctionId, profile::CountedCalls, span::What};
use serde_json::{Value, json};

use crate::{
    asked::Asked,
    loaded::{Function, Loaded},
    refusal::Refusal,
    server::Server,
    tables::{MOST, sums},
};

/// How many functions are told where nobody says.
const USUAL: usize = 500;

/// How long an answer waits for what is read from all events.
const PATIENCE: Duration = Duration::from_millis(400);

/// A function of the table.
struct Line<'a> {
    known: &'a Function,
    max_ns: u64,
    calls: Cow<'a, top::Function>,
}

/// An order of functions.
type Order = fn(&Line<'_>) -> u64;

fn order(asked: &Asked) -> Result<Order, Refusal> {
    Ok(match asked.text("sort") {
        None | Some("total") => |line| line.calls.total_ns.saturating_add(line.calls.brief_ns),
        Some("self") => |line| line.calls.self_ns,
        Some("count") => |line| line.calls.all_calls(),
        Some("max") => |line| line.max_ns,
        Some(_) => return Err(Refusal::Wrong("`sort` is total, self, count or max".into())),
    })
}

/// `top`: functions, those with most first. How long calls took that were not followed is told of whole sessions that are
/// finished, and as soon as it is known. So are exact times where events are missing, also of a part of the time: what overlaps
/// behind a gap is drawn where there is room for it, and so counts in the overview where it is not inside of what `collector top`
/// counts it in.
pub(crate) async fn top(server: &Server, name: &str, asked: Asked) -> Result<Value, Refusal> {
    let loaded = server.shelf.get(name, PATIENCE).await?;
    let range = (asked.number("from")?, asked.number("to")?);
    let is_whole = range == (None, None);
    let is_any_down = loaded.functions.iter().any(|function| function.is_down) || !loaded.unfollowed.is_empty();
    let (from, to) = asked.range(loaded.overview.range())?;
    let is_lossy = Loss::of(&loaded.trace).is_any();
    let is_doubtful =
        if is_whole { is_any_down || is_lossy } else { is_lossy && loaded.overview.is_doubtful(from, to) };
    let exact = match is_doubtful && asked.text("rows").is_none() && !loaded.trace.is_unfinished {
        true => server.exact.get(name, range, PATIENCE).await.map(Some),
        false => Ok(None),
    };
    server.read(move || list(&loaded, &asked, exact)).await
}

fn list(loaded: &Loaded, asked: &Asked, exact: Result<Option<Arc<Compared>>, Refusal>) -> Result<Value, Refusal> {
    let (limit, order) = (asked.limit(USUAL, MOST)?, order(asked)?);
    let filter = asked.text("filter").map(str::to_lowercase);
    // What is still being read is told later.
    let estimating = if let Err(Refusal::Making(percent)) = exact { Some(percent) } else { None };
    let exact = exact.ok().flatten();
    let mut lines = match &exact {
        Some(exact) => exact_lines(loaded, exact),
        None => lines(loaded, asked)?,
    };
    lines.retain(|line| filter.as_deref().is_none_or(|filter| line.known.name.to_lowercase().contains(filter)));
    lines.sort_by_cached_key(|line| {
        (Reverse(order(line)), Reverse(line.calls.count), line.known.name.clone(), line.known.module.clone())
    });
    let shown = lines.iter().take(limit).map(|line| {
        let Line { known, max_ns, calls } = line;
        let in_all = calls.in_all.filter(|_| calls.is_in_part());
        json!({
            "function": known.name,
            "symbol": known.symbol,
            "module": known.module,
            "source": known.source,
            "down": calls.is_in_part(),
            "calls": calls.all_calls(),
            "bound": calls.bound(),
            "count": calls.count,
            "counted": calls.counted,
            "brief": calls.brief,
            "brief_ns": calls.brief_ns,
            "was_off": calls.was_off(),
            "self_has_turned_down": calls.has_called_down,
            "has_others": calls.has_others,
            "estimated_total_ns": in_all.map(|all| all.ns),
            "estimated_total_error_ns": in_all.and_then(|all| all.error_ns),
            "total_ns": calls.total_ns,
            "self_ns": calls.self_ns,
            "max_ns": max_ns,
            "untimed": calls.untimed,
            "unsure_ns": calls.unsure_ns,
        })
    });
    let shown: Vec<_> = shown.collect();
    Ok(json!({ "generation": loaded.generation, "of": lines.len(), "rows": shown, "estimating": estimating }))
}

/// The functions that were read from all events.
fn exact_lines<'a>(loaded: &'a Loaded, exact: &'a Compared) -> Vec<Line<'a>> {
    let functions = by_what(loaded);
    let line = |row: &'a top::Row| {
        let known = functions.get(&row.what).copied()?;
        Some(Line { known, max_ns: row.function.calls.max(), calls: Cow::Borrowed(&row.function) })
    };
    exact.rows.iter().filter_map(line).collect()
}

/// All functions, by what they are in the session.
fn by_what(loaded: &Loaded) -> HashMap<What, &Function> {
    let followed =
        loaded.overview.whats().iter().zip(&loaded.functions).map(|((what, _), known)| (what.clone(), known));
    let unfollowed = loaded.unfollowed.iter().map(|(id, known)| (What::Function(*id), known));
    followed.chain(unfollowed).collect()
}

/// The functions that ran in the part that is asked for, and those that were only counted: when, nobody knows.
fn lines<'a>(loaded: &'a Loaded, asked: &Asked) -> Result<Vec<Line<'a>>, Refusal> {
    let (overview, sums) = (&loaded.overview, sums(loaded, asked)?);
    let mut counted = counted(loaded, asked.rows()?.as_deref());
    let is_part = Loss::of(&loaded.trace).left_out().is_some();
    let is_filtered = asked.number("from")?.is_some_and(|from: u64| from > 0) || asked.text("to").is_some();
    let whats = overview.whats();
    let what_of = |number: u32| usize::try_from(number).ok().and_then(|number| whats.get(number)).map(|(what, _)| what);
    let is_down = |what: &What| matches!(what, What::Function(function) if loaded.down.contains_key(function));
    // Who has called functions that were turned down.
    let nodes = sums.nodes.iter().filter_map(|(node, _)| overview.node(*node));
    let down = nodes.filter(|node| what_of(node.what).is_some_and(is_down));
    let callers: HashSet<u32> = down.filter_map(|node| overview.node(node.parent?)).map(|node| node.what).collect();
    let line = |what: &What, known: &'a Function, sum: Sum, more: Option<CountedCalls>, has_called_down: bool| {
        let function = if let What::Function(function) = what { Some(function) } else { None };
        let (counted, brief, brief_ns) = more.map_or((0, 0, 0), |more| (more.count, more.brief, more.brief_ns));
        let calls = top::Function {
            count: sum.count,
            counted,
            brief,
            brief_ns,
            untimed: sum.untimed,
            total_ns: sum.total_ns,
            self_ns: sum.self_ns,
            unsure_ns: sum.unsure_ns,
            bursts: function.and_then(|function| loaded.down.get(function)).map(|down| Bursts::new(down.clone())),
            has_others: is_part && counted > 0 || is_filtered && counted.saturating_add(brief) > 0,
            has_called_down,
            ..top::Function::default()
        };
        Line { known, max_ns: sum.max_ns, calls: Cow::Owned(calls) }
    };
    let mut lines = Vec::new();
    for (number, sum) in sums.top(overview) {
        let (Some(what), Some(known)) = (what_of(number), loaded.function(number)) else { continue };
        let more = if let What::Function(function) = what { counted.remove(function) } else { None };
        lines.push(line(what, known, sum, more, callers.contains(&number)));
    }
    // What did not run there, as far as that is known.
    let functions = by_what(loaded);
    for (id, more) in counted {
        let what = What::Function(id);
        lines.extend(functions.get(&what).map(|known| line(&what, known, Sum::default(), Some(more), false)));
    }
    lines.retain(|line| line.calls.all_calls() > 0);
    Ok(lines)
}

/// How many calls of each function were counted on the threads of these rows, or on all.
fn counted(loaded: &Loaded, rows: Option<&[u32]>) -> HashMap<FunctionId, CountedCalls> {
    let all = (0_u32..).zip(loaded.overview.rows());
    let streams: Option<HashSet<_>> = rows.map(|rows| {
        let wanted = all.filter(|(number, _)| rows.contains(number)).map(|(_, row)| row.kind);
        wanted.filter_map(|kind| if let RowKind::Thread(stream) = kind { Some(stream) } else { None }).collect()
    });
    let mut found: HashMap<FunctionId, CountedCalls> = HashMap::new();
    for (stream, calls) in loaded.trace.catalog.counted() {
        if streams.as_ref().is_none_or(|streams| streams.contains(&stream)) {
            let none = CountedCalls { count: 0, brief: 0, brief_ns: 0, ..calls };
            let known = found.entry(calls.function).or_insert(none);
            known.count = known.count.saturating_add(calls.count);
            known.brief = known.brief.saturating_add(calls.brief);
            known.brief_ns = known.brief_ns.saturating_add(calls.brief_ns);
        }
    }
    found
}

/// `diff`: functions of two sessions, those that differ most first.
pub(crate) async fn diff(server: &Server, asked: Asked) -> Result<Value, Refusal> {
    let limit = asked.limit(USUAL, MOST)?;
    let sort = asked.text("sort").unwrap_or("total");
    let by = Measure::ALL.iter().find(|(name, _)| *name == sort).map(|(_, by)| *by);
    let by = by.ok_or_else(|| Refusal::Wrong("`sort` is total, self or calls".into()))?;
    let all = asked.text("all") == Some("1");
    let (a, b) = (asked.needed("a")?, asked.needed("b")?);
    let all_time = (None, None);
    let read = |name| server.exact.get(name, all_time, PATIENCE);
    let (a, b) = match tokio::join!(read(a), read(b)) {
        (Err(Refusal::Making(a)), Err(Refusal::Making(b))) => return Err(Refusal::Making((a + b) / 2)),
        (Err(Refusal::Making(one)), Ok(_)) | (Ok(_), Err(Refusal::Making(one))) => {
            return Err(Refusal::Making(one.midpoint(100)));
        }
        (a, b) => (a?, b?),
    };
    let compare = move || {
        let mut changes = diff::changes(&a.rows, &b.rows);
        let of = changes.len();
        diff::rank(&mut changes, by, all, usize::MAX);
        let rows: Vec<_> = changes.iter().take(limit).map(|change| change.object(by)).collect();
        let mut warnings = Vec::new();
        for (side, one) in [("A", &a), ("B", &b)] {
            let unfinished = "it is not finished: what its collector has not written yet is not in it";
            let said = one.is_unfinished.then_some(unfinished).into_iter().chain(one.warning.as_deref());
            warnings.extend(said.map(|text| format!("{side}: {text}")));
        }
        Ok(json!({ "of": of, "differ": changes.len(), "rows": rows, "warnings": warnings }))
    };
    server.read(compare).await
}
