//! What is known of one span beside its place: what was captured with the call, what made it, and where it ran.

use answers::overview::{RowKind, Slice};
use codec::StreamId;
use serde_json::{Map, Value, json};

use crate::loaded::Loaded;

/// How many words of the stack are told, and how many logical spans of one moment are looked at.
const MOST_WORDS: usize = 64;
const MOST_SPANS: usize = 16;

/// The largest number that a page reads as it is.
const MOST_EXACT: u64 = (1 << 53) - 1;

/// What is told of logical spans that is said elsewhere, or means something to the trace alone.
const LEFT_OUT: [&str; 15] = [
    "type",
    "session",
    "function",
    "symbol",
    "module",
    "source",
    "start_ns",
    "end_ns",
    "duration_ns",
    "id",
    "parent",
    "twin",
    "origin",
    "resumed_by",
    "depth",
];

/// All that is known: `registers`, `words`, `more`, `causes` and `effects`.
pub(crate) fn of(loaded: &Loaded, row: u32, slice: &Slice) -> Map<String, Value> {
    let mut detail = Map::new();
    let kind = usize::try_from(row).ok().and_then(|row| loaded.overview.rows().get(row)).map(|row| row.kind);
    match kind {
        Some(RowKind::Thread(stream) | RowKind::Lane(stream, _)) => {
            captured(loaded, stream, slice, &mut detail);
            let logical = logical_at(loaded, stream, slice.start);
            let causes = logical.iter().flat_map(|(_, _, told)| causes(loaded, told));
            let runs = logical.iter().map(|(row, slice, _)| place(loaded, *row, slice, slice.start, "Runs"));
            detail.insert("causes".into(), causes.chain(runs).collect());
        }
        Some(RowKind::Logical(_)) => {
            if let Some(told) = told(loaded, slice) {
                let causes: Value = causes(loaded, &told).into();
                let thread = told["thread"].as_u64().and_then(|id| u32::try_from(id).ok());
                let ran = thread.and_then(|thread| frame_at(loaded, StreamId(thread), slice.start));
                let ran = ran.filter(|(_, frame)| frame.start == slice.start);
                let effects = ran.map(|(row, frame)| place(loaded, row, &frame, frame.start, "Runs as"));
                detail.insert("causes".into(), causes);
                detail.insert("effects".into(), effects.into_iter().collect());
                detail.insert("more".into(), more(told));
            }
        }
        None => {}
    }
    detail
}

/// The registers and the stack, where they were captured.
fn captured(loaded: &Loaded, stream: StreamId, slice: &Slice, detail: &mut Map<String, Value>) {
    // What cannot be read is not there.
    let Ok(Some(one)) = loaded.trace.call_at(stream, slice.start, slice.depth) else { return };
    let hex = |word: u64| format!("{word:#x}");
    if let Some(registers) = one.registers {
        let is_arm = loaded.trace.manifest.process.as_ref().is_some_and(|process| process.arch == "arm64");
        let names: [&str; 8] = match is_arm {
            true => ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"],
            false => ["rdi", "rsi", "rdx", "rcx", "r8", "r9", "", ""],
        };
        let general = names.iter().zip(registers.general).filter(|(name, _)| !name.is_empty());
        let mut told: Vec<_> = general.map(|(name, word)| json!([name, hex(word)])).collect();
        let others = [
            ("return address", registers.return_address),
            ("frame pointer", registers.frame_pointer),
            ("stack pointer", registers.stack_pointer),
        ];
        told.extend(others.map(|(name, word)| json!([name, hex(word)])));
        detail.insert("registers".into(), told.into());
    }
    if !one.stack.is_empty() {
        let words = one.stack.iter().take(MOST_WORDS).map(|word| Value::from(hex(*word)));
        detail.insert("words".into(), words.collect());
    }
}

/// The logical spans that began on a thread at a moment, with where they are drawn.
fn logical_at(loaded: &Loaded, stream: StreamId, start: u64) -> Vec<(u32, Slice, Value)> {
    let rows = (0_u32..).zip(loaded.overview.rows()).filter(|(_, row)| matches!(row.kind, RowKind::Logical(_)));
    let slices = rows.flat_map(|(row, _)| {
        let boxes = loaded.overview.boxes(row, start, start.saturating_add(1), 1).unwrap_or_default();
        boxes.into_iter().map(move |slice| (row, slice))
    });
    let begun = slices.filter(|(_, slice)| slice.start == start && slice.count == 1).take(MOST_SPANS);
    let told = begun.filter_map(|(row, slice)| Some((row, slice, told(loaded, &slice)?)));
    told.filter(|(.., told)| told["thread"] == stream.0).collect()
}

/// What is told of a logical span.
fn told(loaded: &Loaded, slice: &Slice) -> Option<Value> {
    let lines = loaded.overview.told(slice.start, loaded.what(slice.node)).ok()?;
    let mut all: Vec<Value> =
        lines.iter().take(MOST_SPANS).filter_map(|line| serde_json::from_str(line).ok()).collect();
    let same = all.iter().position(|one| one["end_ns"].as_u64() == Some(slice.end)).unwrap_or(0);
    (same < all.len()).then(|| all.swap_remove(same))
}

/// What created a logical span, and what resumed it.
fn causes(loaded: &Loaded, told: &Value) -> Vec<Value> {
    let ways = [("creator", "created_ns", "Created by"), ("resumer", "resumed_ns", "Resumed by")];
    let found = ways.iter().filter_map(|(thread, time, how)| {
        let (thread, at) = (u32::try_from(told[*thread].as_u64()?).ok()?, told[*time].as_u64()?);
        let (row, frame) = frame_at(loaded, StreamId(thread), at)?;
        Some(place(loaded, row, &frame, at, how))
    });
    found.collect()
}

/// The innermost frame of a thread at a moment.
fn frame_at(loaded: &Loaded, stream: StreamId, at: u64) -> Option<(u32, Slice)> {
    let is_it = |kind: &RowKind| matches!(kind, RowKind::Thread(one) if *one == stream);
    let row = u32::try_from(loaded.overview.rows().iter().position(|row| is_it(&row.kind))?).ok()?;
    let boxes = loaded.overview.boxes(row, at, at.saturating_add(1), 1).ok()?;
    let open = boxes.into_iter().filter(|slice| slice.start <= at && slice.end >= at);
    open.max_by_key(|slice| slice.depth).map(|slice| (row, slice))
}

fn place(loaded: &Loaded, row: u32, slice: &Slice, at: u64, how: &str) -> Value {
    json!({
        "row": row, "start": slice.start, "end": slice.end, "depth": slice.depth, "at": at, "how": how,
        "name": loaded.name(loaded.what(slice.node)),
    })
}

/// What else is told, with numbers that are too large for a page as text.
fn more(told: Value) -> Value {
    let Value::Object(told) = told else { return Value::Null };
    let told = told.into_iter().filter(|(key, _)| !LEFT_OUT.contains(&key.as_str()));
    let read = told.map(|(key, value)| match value.as_u64() {
        Some(number) if number > MOST_EXACT => (key, format!("{number:#x}").into()),
        _ => (key, value),
    });
    Value::Object(read.collect())
}
