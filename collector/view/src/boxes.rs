//! What to draw of some rows, as bytes.
//!
//! All numbers are little-endian, and each column begins at a multiple of its size:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `SPB1` |
//! | u32 | how many rows follow: R |
//! | u32 | the generation that numbers are of |
//! | u32 | 0 |
//! | f64 | `from`, in ns since the session's zero |
//! | f64 | `step` |
//! | R × (u32, u32) | the number of the row, and how many boxes it has: n |
//!
//! and then for each row in this order:
//!
//! | column | what |
//! |---|---|
//! | n × f64 | start, in ns since `from`; it may be negative |
//! | n × f64 | how long it is, in ns |
//! | n × f64 | how much of that is covered, in ns |
//! | n × u32 | what ran: its number in the table of functions |
//! | n × u32 | the place in the tree of calls |
//! | n × u32 | how many there are in it: more than one is folded, and the longest of them is named |
//! | n × u32 | how deep it is, and shifted by 24 bits the flags: 1 cut, 2 open, 4 exception, 8 waiting |

use std::{
    num::NonZero,
    panic,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

use axum::{
    http::header,
    response::{IntoResponse, Response},
};

use answers::overview::Slice;

use crate::{asked::Asked, loaded::Loaded, refusal::Refusal};

/// How many steps may be asked for, and how many boxes are given at most.
const MOST_STEPS: u64 = 1 << 14;
const MOST_BOXES: usize = 1 << 20;

/// The deepest that fits beside the flags.
const MOST_DEPTH: u32 = (1 << 24) - 1;

/// Answers with the boxes of `rows` in `from..to`, where a pixel is `step` ns.
pub(crate) fn answer(loaded: &Loaded, asked: &Asked) -> Result<Response, Refusal> {
    let rows = asked.rows()?.ok_or_else(|| Refusal::Wrong("`rows` are missing".into()))?;
    loaded.check_rows(&rows)?;
    let (from, to) = asked.range(loaded.overview.range())?;
    let step: u64 = asked.needed_number("step")?;
    if step == 0 {
        return Err(Refusal::Wrong("`step` is at least 1".into()));
    }
    if (to - from) / step > MOST_STEPS {
        return Err(Refusal::TooMuch(format!("`to` may be {MOST_STEPS} steps behind `from` at most")));
    }
    let boxes = in_rows(loaded, &rows, (from, to, step))?;
    let bytes = encode(loaded, from, step, &boxes);
    let kind = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, bytes).into_response())
}

/// The boxes of rows, which all processors look for.
fn in_rows(
    loaded: &Loaded,
    rows: &[u32],
    (from, to, step): (u64, u64, u64),
) -> Result<Vec<(u32, Vec<Slice>)>, Refusal> {
    // ORDERING: they count, and nothing else depends on them.
    let (next, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let look = || -> Result<Vec<(usize, Vec<Slice>)>, Refusal> {
        let mut found = Vec::new();
        loop {
            let place = next.fetch_add(1, Relaxed);
            let Some(row) = rows.get(place) else { return Ok(found) };
            let slices =
                loaded.overview.boxes(*row, from, to, step).map_err(|error| Refusal::Broken(format!("{error:#}")))?;
            if count.fetch_add(slices.len(), Relaxed) + slices.len() > MOST_BOXES {
                return Err(Refusal::TooMuch("there are too many boxes: ask for fewer rows".into()));
            }
            found.push((place, slices));
        }
    };
    let others = thread::available_parallelism().map_or(1, NonZero::get).min(rows.len()).saturating_sub(1);
    let mut found = thread::scope(|scope| {
        // Where no thread can be had, this one looks for all of them.
        let others: Vec<_> = (0..others)
            .map_while(|_| thread::Builder::new().name("boxes".into()).spawn_scoped(scope, look).ok())
            .collect();
        let mut found = look();
        for other in others {
            let of_other = other.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            found = found.and_then(|mut found| {
                found.append(&mut of_other?);
                Ok(found)
            });
        }
        found
    })?;
    found.sort_unstable_by_key(|(place, _)| *place);
    Ok(rows.iter().copied().zip(found.into_iter().map(|(_, slices)| slices)).collect())
}

fn encode(loaded: &Loaded, from: u64, step: u64, boxes: &[(u32, Vec<Slice>)]) -> Vec<u8> {
    const BYTES_PER_BOX: usize = 3 * size_of::<f64>() + 4 * size_of::<u32>();
    let count = |slices: &[Slice]| u32::try_from(slices.len()).unwrap_or(u32::MAX);
    let all: usize = boxes.iter().map(|(_, slices)| slices.len()).sum();
    let mut out = Vec::with_capacity(32 + 8 * boxes.len() + BYTES_PER_BOX * all);
    out.extend(b"SPB1");
    out.extend(u32::try_from(boxes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(loaded.generation.to_le_bytes());
    out.extend(0_u32.to_le_bytes());
    out.extend((from as f64).to_le_bytes());
    out.extend((step as f64).to_le_bytes());
    for (row, slices) in boxes {
        out.extend(row.to_le_bytes());
        out.extend(count(slices).to_le_bytes());
    }
    for (_, slices) in boxes {
        // Differences of times are exact where the times themselves may not be.
        let since = |time: u64| if time >= from { (time - from) as f64 } else { -((from - time) as f64) };
        column(&mut out, slices, |one| since(one.start).to_le_bytes());
        column(&mut out, slices, |one| (one.end.saturating_sub(one.start) as f64).to_le_bytes());
        column(&mut out, slices, |one| (one.busy as f64).to_le_bytes());
        column(&mut out, slices, |one| loaded.what(one.node).to_le_bytes());
        column(&mut out, slices, |one| one.node.to_le_bytes());
        column(&mut out, slices, |one| one.count.to_le_bytes());
        column(&mut out, slices, |one| (one.depth.min(MOST_DEPTH) | u32::from(one.flags) << 24).to_le_bytes());
    }
    out
}

/// Writes a number of each.
fn column<const N: usize>(out: &mut Vec<u8>, slices: &[Slice], number: impl Fn(&Slice) -> [u8; N]) {
    slices.iter().for_each(|one| out.extend_from_slice(&number(one)));
}
