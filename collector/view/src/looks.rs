//! One span, and the next one that is looked for.

use answers::overview::Slice;
use codec::text::Glob;
use serde_json::{Value, json};

use crate::{asked::Asked, detail, loaded::Loaded, refusal::Refusal};

/// The longest text that is looked for.
const LONGEST: usize = 4096;

/// `span`: what is known of the span of a row that begins at `start` and is `depth` deep.
pub(crate) fn span(loaded: &Loaded, asked: &Asked) -> Result<Value, Refusal> {
    let (row, start, depth): (u32, u64, u32) =
        (asked.needed_number("row")?, asked.needed_number("start")?, asked.needed_number("depth")?);
    loaded.check_rows(&[row])?;
    let boxes = loaded.overview.boxes(row, start, start.saturating_add(1), 1);
    let boxes = boxes.map_err(|error| Refusal::Broken(format!("{error:#}")))?;
    let found = boxes.iter().find(|one| one.start == start && one.depth == depth);
    let found = found.ok_or_else(|| Refusal::Missing("there is no span that begins there".into()))?;
    let mut described = describe(loaded, row, found);
    if let Some(object) = described.as_object_mut() {
        object.append(&mut detail::of(loaded, row, found));
    }
    Ok(described)
}

/// `find`: the next span of a function with this in its name, or with a name that matches where it has `*` or `?`.
pub(crate) fn find(loaded: &Loaded, asked: &Asked) -> Result<Value, Refusal> {
    let text = asked.needed("q")?;
    if text.is_empty() || text.len() > LONGEST {
        return Err(Refusal::Wrong(format!("`q` has 1 to {LONGEST} bytes")));
    }
    let forward = match asked.text("forward") {
        None | Some("1" | "true") => true,
        Some("0" | "false") => false,
        Some(_) => return Err(Refusal::Wrong("`forward` is 1 or 0".into())),
    };
    let from = asked.number("from")?.unwrap_or(if forward { 0 } else { u64::MAX });
    let rows = asked.rows()?.unwrap_or_else(|| (0..).zip(loaded.overview.rows()).map(|(number, _)| number).collect());
    loaded.check_rows(&rows)?;
    let glob = text.contains(['*', '?']).then(|| Glob::new(text));
    let small = text.to_lowercase();
    let fits = |name: &str| match &glob {
        Some(glob) => glob.matches(name),
        None => name.to_lowercase().contains(&small),
    };
    let wanted: Vec<bool> = loaded
        .functions
        .iter()
        .map(|function| fits(&function.name) || function.symbol.as_deref().is_some_and(&fits))
        .collect();
    let functions = wanted.iter().filter(|wanted| **wanted).count();
    let is_wanted = |what: u32| usize::try_from(what).ok().and_then(|what| wanted.get(what)).copied().unwrap_or(false);
    let found = match functions {
        0 => None,
        _ => loaded
            .overview
            .find(&is_wanted, from, forward, Some(&rows))
            .map_err(|error| Refusal::Broken(format!("{error:#}")))?,
    };
    let found = found.map(|(row, slice)| describe(loaded, row, &slice));
    Ok(json!({ "functions": functions, "found": found }))
}

fn describe(loaded: &Loaded, row: u32, slice: &Slice) -> Value {
    let path = loaded.path(slice.node);
    let what = path.last().copied().unwrap_or(u32::MAX);
    let function = loaded.function(what);
    let stack: Vec<_> = path.iter().map(|what| json!([what, loaded.name(*what)])).collect();
    json!({
        "generation": loaded.generation,
        "row": row,
        "depth": slice.depth,
        "start": slice.start,
        "end": slice.end,
        "what": what,
        "count": slice.count,
        "flags": slice.flags,
        "name": loaded.name(what),
        "symbol": function.and_then(|function| function.symbol.as_deref()),
        "module": function.and_then(|function| function.module.as_deref()),
        "source": function.and_then(|function| function.source.as_deref()),
        "kind": function.map(|function| function.kind.name()),
        "down": function.is_some_and(|function| function.is_down),
        "counted": function.map_or(0, |function| function.counted),
        "stack": stack,
    })
}
