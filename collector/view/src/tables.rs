//! What the calls of a part of the time come to: functions, the tree of calls, callers and callees, and differences.

use std::collections::{BinaryHeap, HashMap};

use answers::{
    loss::Loss,
    overview::{Sum, Sums, TreeNode},
};
use serde_json::{Value, json};

use crate::{asked::Asked, loaded::Loaded, refusal::Refusal};

/// How many functions, or places of a tree, are told.
const USUAL: usize = 500;
const MOST: usize = 20_000;

/// An order of functions.
type Order = fn(&Sum) -> u64;

/// What the calls of the part that is asked for come to.
fn sums(loaded: &Loaded, asked: &Asked) -> Result<Sums, Refusal> {
    let (from, to) = asked.range(loaded.overview.range())?;
    let rows = asked.rows()?;
    loaded.check_rows(rows.as_deref().unwrap_or_default())?;
    loaded.overview.sums(from, to, rows.as_deref()).map_err(|error| Refusal::Broken(format!("{error:#}")))
}

fn order(asked: &Asked) -> Result<Order, Refusal> {
    Ok(match asked.text("sort") {
        None | Some("total") => |sum| sum.total_ns,
        Some("self") => |sum| sum.self_ns,
        Some("count") => |sum| sum.count,
        Some("max") => |sum| sum.max_ns,
        Some(_) => return Err(Refusal::Wrong("`sort` is total, self, count or max".into())),
    })
}

/// `top`: functions, those with most first.
pub(crate) fn top(loaded: &Loaded, asked: &Asked) -> Result<Value, Refusal> {
    let (limit, order) = (asked.limit(USUAL, MOST)?, order(asked)?);
    let filter = asked.text("filter").map(str::to_lowercase);
    let mut all = sums(loaded, asked)?.top(&loaded.overview);
    all.retain(|(what, _)| filter.as_deref().is_none_or(|filter| loaded.name(*what).to_lowercase().contains(filter)));
    all.sort_by(|(a, first), (b, second)| order(second).cmp(&order(first)).then_with(|| a.cmp(b)));
    let shown = all.iter().take(limit).map(|(what, sum)| {
        let function = loaded.function(*what);
        json!({
            "what": what,
            "function": loaded.name(*what),
            "symbol": function.and_then(|function| function.symbol.as_deref()),
            "module": function.and_then(|function| function.module.as_deref()),
            "source": function.and_then(|function| function.source.as_deref()),
            "down": function.is_some_and(|function| function.is_down),
            "counted": function.map_or(0, |function| function.counted),
            "count": sum.count,
            "total_ns": sum.total_ns,
            "self_ns": sum.self_ns,
            "max_ns": sum.max_ns,
            "untimed": sum.untimed,
            "unsure_ns": sum.unsure_ns,
        })
    });
    let shown: Vec<_> = shown.collect();
    Ok(json!({ "generation": loaded.generation, "of": all.len(), "rows": shown }))
}

/// `tree`, `callers` and `callees`.
pub(crate) fn tree(loaded: &Loaded, asked: &Asked, which: &str) -> Result<Value, Refusal> {
    let limit = asked.limit(2_000, MOST)?;
    let overview = &loaded.overview;
    let nodes = match which {
        "tree" => sums(loaded, asked)?.tree(overview),
        _ => {
            let name = asked.needed("what")?;
            let what = loaded.number(name, asked.text("module"));
            let what = what.ok_or_else(|| Refusal::Missing(format!("there is no function {name}")))?;
            let sums = sums(loaded, asked)?;
            if which == "callers" { sums.callers(overview, what) } else { sums.callees(overview, what) }
        }
    };
    let (kept, of) = (largest(&nodes, limit), nodes.len());
    let places: HashMap<usize, usize> = kept.iter().enumerate().map(|(place, node)| (*node, place)).collect();
    let shown = kept.iter().filter_map(|at| nodes.get(*at)).map(|node| {
        let parent = node.parent.and_then(|parent| places.get(&parent));
        let TreeNode { what, sum, .. } = node;
        json!([parent, what, sum.count, sum.total_ns, sum.self_ns, sum.max_ns])
    });
    let shown: Vec<_> = shown.collect();
    let columns = ["parent", "what", "count", "total_ns", "self_ns", "max_ns"];
    Ok(json!({ "generation": loaded.generation, "of": of, "columns": columns, "nodes": shown }))
}

/// The nodes that took most, each behind its parent, which is there, too.
fn largest(nodes: &[TreeNode], limit: usize) -> Vec<usize> {
    let mut children: Vec<Vec<usize>> = nodes.iter().map(|_| Vec::new()).collect();
    let mut next = BinaryHeap::new();
    for (at, node) in nodes.iter().enumerate() {
        match node.parent.and_then(|parent| children.get_mut(parent)) {
            Some(siblings) => siblings.push(at),
            None => next.push((node.sum.total_ns, std::cmp::Reverse(at))),
        }
    }
    let mut kept = Vec::new();
    while let Some((_, std::cmp::Reverse(at))) = next.pop() {
        if kept.len() == limit {
            break;
        }
        kept.push(at);
        let below = children.get_mut(at).map(std::mem::take).unwrap_or_default();
        next.extend(below.into_iter().filter_map(|at| Some((nodes.get(at)?.sum.total_ns, std::cmp::Reverse(at)))));
    }
    kept
}

/// `diff`: functions of two sessions, those that differ most first.
pub(crate) fn diff(a: &Loaded, b: &Loaded, asked: &Asked) -> Result<Value, Refusal> {
    let (limit, order) = (asked.limit(USUAL, MOST)?, order(asked)?);
    let mut both: HashMap<(&str, Option<&str>), [Option<Sum>; 2]> = HashMap::new();
    for (side, loaded) in [a, b].into_iter().enumerate() {
        let (from, to) = loaded.overview.range();
        let sums = loaded.overview.sums(from, to.saturating_add(1), None);
        let sums = sums.map_err(|error| Refusal::Broken(format!("{error:#}")))?;
        for (what, sum) in sums.top(&loaded.overview) {
            // Paths of modules differ where machines do.
            let sides = both.entry((loaded.name(what), loaded.module_name(what))).or_default();
            let Some(place) = sides.get_mut(side) else { continue };
            let known = place.unwrap_or_default();
            *place = Some(Sum {
                count: known.count.saturating_add(sum.count),
                total_ns: known.total_ns.saturating_add(sum.total_ns),
                self_ns: known.self_ns.saturating_add(sum.self_ns),
                max_ns: known.max_ns.max(sum.max_ns),
                ..known
            });
        }
    }
    let of = both.len();
    let mut rows: Vec<_> = both.into_iter().collect();
    let apart = |sides: &[Option<Sum>; 2]| {
        let [a, b] = sides.map(|side| order(&side.unwrap_or_default()));
        a.abs_diff(b)
    };
    rows.sort_by(|(a, first), (b, second)| apart(second).cmp(&apart(first)).then_with(|| a.cmp(b)));
    let sum = |sum: &Sum| json!({ "count": sum.count, "total_ns": sum.total_ns, "self_ns": sum.self_ns, "max_ns": sum.max_ns });
    let rows = rows.iter().take(limit).map(|((name, module), [a, b])| {
        json!({ "function": name, "module": module, "a": a.as_ref().map(sum), "b": b.as_ref().map(sum) })
    });
    let warning = |(side, loaded): (&str, &Loaded)| {
        let text = answers::diff::warning(&loaded.trace, &Loss::of(&loaded.trace))?;
        Some(format!("{side}: {text}"))
    };
    let warnings: Vec<_> = [("A", a), ("B", b)].into_iter().filter_map(warning).collect();
    Ok(json!({ "of": of, "rows": rows.collect::<Vec<_>>(), "warnings": warnings }))
}
