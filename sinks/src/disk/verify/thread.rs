//! Whether the two files of a thread are what was written, and fit together.

use std::collections::HashSet;

use codec::{
    FunctionId, ModuleId,
    atf::{DetailBody, DetailReader, FileChecksum, IndexReader, Integrity, Manifest, ThreadEntry, ThreadReader},
    profile::Runtime,
};

use super::{
    super::{directory::read_if_there, room::MANIFEST},
    Verified,
};

/// What stands for events of no function and no runtime: these come in any order.
pub(super) struct PlainEvents(HashSet<u64>);

impl PlainEvents {
    pub(super) fn of(manifest: &Manifest) -> Self {
        let functions = manifest.functions.iter().filter(|function| FunctionId(function.id).module() == ModuleId(0));
        Self(functions.filter(|function| Runtime::of(&function.name).is_none()).map(|function| function.id).collect())
    }

    #[inline]
    fn contains(&self, function: FunctionId) -> bool {
        function.module() == ModuleId(0) && self.0.contains(&function.0)
    }
}

/// Checks the two files of a thread, and tells how many events it has.
pub(super) fn verify_thread(
    found: &mut Verified,
    thread: &ThreadEntry,
    manifest: &Manifest,
    plain: &PlainEvents,
) -> Result<u64, String> {
    let dir = found.dir.join(format!("thread_{}", thread.id));
    let read = |name: &str| read_if_there(&dir.join(name)).map_err(|error| format!("{name}: {error}"));
    let index_file = read("index.atf")?.ok_or("index.atf is not there")?;
    let detail_file = read("detail.atf")?;
    if detail_file.is_some() != thread.has_detail {
        let (there, said) = (detail_file.is_some(), thread.has_detail);
        return Err(format!("detail.atf is there: {there}, by {MANIFEST}: {said}"));
    }
    let index = IndexReader::open(&index_file).map_err(|error| format!("index.atf: {error}"))?;
    intact("index.atf", index.check())?;
    let detail = detail_file.as_deref().map(DetailReader::open).transpose();
    let detail = detail.map_err(|error| format!("detail.atf: {error}"))?;
    if let Some(detail) = &detail {
        intact("detail.atf", detail.check())?;
    }
    // Last what would say of everything above only that it is not so.
    unchanged("index.atf", &index_file, thread.index_checksum.as_deref())?;
    if let Some(file) = &detail_file {
        unchanged("detail.atf", file, thread.detail_checksum.as_deref())?;
    }
    let events = u64::from(index.len());
    if let Some(written) = thread.written.filter(|written| *written != events) {
        return Err(format!("{MANIFEST} says {written} events, index.atf has {events}"));
    }
    let backward = check_times(&index, manifest, plain)?;
    let reader = ThreadReader { index, detail };
    reader.check_links().map_err(|error| error.to_string())?;
    let (details, contexts) = check_details(&reader)?;
    found.details = found.details.saturating_add(details);
    found.contexts = found.contexts.saturating_add(contexts);
    if let Some((sequence, times)) = backward {
        let said = format!("time runs backward {times} times, first at event {sequence}");
        // Only an agent promises that its events come in the order of time.
        if manifest.process.is_some() {
            return Err(said);
        }
        found.unchecked.push(format!("thread_{}: the order of time: {said}, as plain Heph may", thread.id));
    }
    found.events = found.events.saturating_add(events);
    Ok(events)
}

fn intact(name: &str, integrity: Integrity) -> Result<(), String> {
    match integrity {
        Integrity::Intact => Ok(()),
        Integrity::Unfinished { events } => Err(format!("{name} is unfinished, with {events} events")),
        Integrity::Corrupt(corrupt) => Err(format!("{name}: {corrupt}")),
    }
}

fn unchanged(name: &str, file: &[u8], expected: Option<&str>) -> Result<(), String> {
    let Some(expected) = expected else { return Ok(()) };
    let found = FileChecksum::of(file).to_string();
    match found == expected {
        true => Ok(()),
        false => Err(format!("{name} was changed: its checksum is {found}, by {MANIFEST} {expected}")),
    }
}

/// Checks that all events are within the times of the manifest. Tells where time runs backward, and how often.
fn check_times(
    index: &IndexReader<'_>,
    manifest: &Manifest,
    plain: &PlainEvents,
) -> Result<Option<(u64, u64)>, String> {
    let times = manifest.time_start_ns..=manifest.time_end_ns;
    let (mut last, mut backward) = (0, None);
    for (sequence, event) in (0_u64..).zip(index.events()) {
        let event = event.map_err(|error| format!("index.atf: {error}"))?;
        let at = event.timestamp.0;
        if !times.contains(&at) {
            let (start, end) = times.into_inner();
            return Err(format!("event {sequence} is at {at}, by {MANIFEST} all are from {start} to {end}"));
        }
        if plain.contains(event.function) {
            continue;
        }
        if at < last {
            backward.get_or_insert((sequence, 0)).1 += 1;
        }
        last = at;
    }
    Ok(backward)
}

/// Checks that details say of their events what the index does. Tells how many events have registers, a stack or keys, and
/// how many have what only says where the event belongs.
fn check_details(thread: &ThreadReader<'_>) -> Result<(u64, u64), String> {
    let (mut details, mut contexts, mut counted) = (0, 0, None);
    for (position, detail) in (0_u64..).zip(thread.detail.iter().flat_map(DetailReader::events)) {
        let detail = detail.map_err(|error| format!("detail.atf: {error}"))?;
        let Some(Ok(event)) = thread.index.get(detail.index) else { continue };
        let function = match detail.body {
            DetailBody::Call(function) | DetailBody::Return(function) => function.function,
            DetailBody::Keys(keys) => keys.function,
            DetailBody::Context(_) | DetailBody::Other { .. } => event.function,
        };
        let same = (detail.timestamp, detail.thread, function) == (event.timestamp, event.thread, event.function);
        if !same {
            let index = detail.index;
            return Err(format!("detail event {position} has another time, thread or function than event {index}"));
        }
        match detail.body {
            DetailBody::Context(_) => contexts += 1,
            // The details of an event lie one behind the other.
            _ => details += u64::from(counted.replace(detail.index) != Some(detail.index)),
        }
    }
    Ok((details, contexts))
}
