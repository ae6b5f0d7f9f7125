//! What the calls of a part of the time come to: the tree of calls, callers and callees.

use std::collections::{BinaryHeap, HashMap};

use answers::overview::{Sums, TreeNode};
use serde_json::{Value, json};

use crate::{asked::Asked, loaded::Loaded, refusal::Refusal};

/// How many functions, or places of a tree, are told.
pub(crate) const MOST: usize = 20_000;

/// What the calls of the part that is asked for come to.
pub(crate) fn sums(loaded: &Loaded, asked: &Asked) -> Result<Sums, Refusal> {
    let (from, to) = asked.range(loaded.overview.range())?;
    let rows = asked.rows()?;
    loaded.check_rows(rows.as_deref().unwrap_or_default())?;
    loaded.overview.sums(from, to, rows.as_deref()).map_err(|error| Refusal::Broken(format!("{error:#}")))
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
