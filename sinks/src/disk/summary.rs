//! The manifest of a part that ends.

use codec::{
    StreamId,
    atf::{LimitEntry, Manifest, ThreadEntry},
};

use super::{session::OpenSession, spans::LIMIT, thread::OpenThread, volume::Volume};
use crate::{Catalog, Ended};

impl OpenSession {
    /// All that is known of the part now: options may have come after the events they describe.
    pub(super) fn manifest(&self, volume: &Volume, ended: &Ended) -> Manifest {
        let catalog = self.session.catalog();
        let known = catalog.clock();
        let zero_ns = self.zero.map_or(known.map_or(0, |clock| clock.zero_ns), |zero| zero.zero_ns);
        let mut manifest = catalog.manifest_from(zero_ns);
        if let Some(zero) = self.zero {
            manifest.clock = zero.clock.map(|clock| clock.name().into());
            manifest.clock_zero_ns = Some(zero.zero_ns).filter(|_| known.is_some());
            if let Some(late) = known.filter(|late| late.zero_ns != zero.zero_ns || zero.clock != Some(late.clock)) {
                manifest.extra.insert("late_clock_zero_ns".into(), late.zero_ns.into());
                manifest.extra.insert("late_clock".into(), late.clock.name().into());
            }
        }
        let made = self.stand_ins.entries();
        manifest.functions = made.chain(std::mem::take(&mut manifest.functions)).collect();

        let mut threads: Vec<_> = self.part.threads.iter().collect();
        threads.sort_by_key(|(stream, _)| **stream);
        manifest.threads = threads.iter().map(|(stream, thread)| entry(**stream, thread, &catalog, zero_ns)).collect();
        let times = threads.iter().filter_map(|(_, thread)| thread.times);
        let times = times.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        (manifest.time_start_ns, manifest.time_end_ns) = times.unwrap_or_default();

        manifest.gaps = self.part.gaps.entries();
        manifest.drops = self.part.gaps.drops();
        let split = self.part.number > 1 || ended.end.how == "rotated";
        manifest.part = split.then_some(self.part.number);
        manifest.end = Some(ended.end.clone());
        manifest.limits.extend(ended.limits.iter().chain(&self.limits).cloned());
        if self.part.spans.lost > 0 {
            manifest.limits.push(spans_limit(self.part.spans.lost));
        }
        if self.part.unlisted > 0 {
            manifest.extra.insert("unlisted_events".into(), self.part.unlisted.into());
        }
        manifest.seen_unix_ns = Some(self.session.seen_unix_ns).filter(|seen| *seen > 0);
        manifest.spans = Some(self.part.spans_when.name().into());
        if let Some(removed) = volume.with_room(|room| room.removed_of(&self.base)).flatten() {
            manifest.extra.insert("removed_parts".into(), removed.names.iter().cloned().collect());
            if removed.count > removed.names.len() as u64 {
                manifest.extra.insert("removed_part_count".into(), removed.count.into());
            }
        }
        manifest
    }
}

/// That so many spans are in no file.
pub(super) fn spans_limit(count: u64) -> LimitEntry {
    LimitEntry { reason: LIMIT.into(), count, ..LimitEntry::default() }
}

fn entry(stream: u32, thread: &OpenThread, catalog: &Catalog, zero_ns: u64) -> ThreadEntry {
    let written = thread.writer.len().into();
    let (index, detail) = thread.writer.file_checksums();
    ThreadEntry {
        has_detail: thread.writer.has_detail(),
        produced: Some(thread.missing.saturating_add(written)),
        written: Some(written),
        first: Some(thread.first).filter(|first| *first > 0),
        index_checksum: Some(index.to_string()),
        detail_checksum: detail.map(|detail| detail.to_string()),
        ..thread_entry(stream, catalog, zero_ns)
    }
}

/// What the catalog knows of a thread.
pub(super) fn thread_entry(stream: u32, catalog: &Catalog, zero_ns: u64) -> ThreadEntry {
    let known = catalog.thread(StreamId(stream));
    let at = |time: codec::SessionNs| zero_ns.saturating_add(time.0);
    ThreadEntry {
        id: stream,
        os_id: known.map(|thread| thread.os_id),
        name: known.map(|thread| thread.name.to_string()).filter(|name| !name.is_empty()),
        creator: known.and_then(|thread| thread.creator).map(|stream| stream.0),
        start_ns: known.map(|thread| at(thread.start)),
        end_ns: known.and_then(|thread| thread.end).map(at),
        ..ThreadEntry::default()
    }
}
