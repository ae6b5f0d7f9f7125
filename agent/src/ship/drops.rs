//! Events that the agent did not keep, until they are told.

use std::collections::{BTreeMap, HashMap};

use codec::{
    Position, StreamId,
    heph::{Encode, List},
    profile::{Dropped, Drops as DropsOption, ProfileOption},
};

use super::HEAD_BYTES;

/// Ranges that have not been told yet, and how many events were dropped in all.
#[derive(Debug, Default)]
pub(super) struct Drops {
    ranges: Vec<Dropped<'static>>,
    /// The last range of each stream.
    last: HashMap<StreamId, usize>,
    counts: BTreeMap<&'static str, u64>,
}

/// A packet with drops, and where the ranges in it end.
pub(super) type DropsPacket = (Vec<u8>, Vec<(StreamId, Position)>);

impl Drops {
    /// Notes that events were dropped. Where they follow those before, the two are told as one.
    pub(super) fn add(&mut self, stream: StreamId, first: Position, count: u64, reason: &'static str) {
        if count == 0 {
            return;
        }
        *self.counts.entry(reason).or_default() += count;
        if let Some(last) = self.last.get(&stream).and_then(|last| self.ranges.get_mut(*last))
            && last.reason == reason
            && last.first.0 + last.count == first.0
        {
            last.count += count;
            return;
        }
        self.last.insert(stream, self.ranges.len());
        self.ranges.push(Dropped { stream, first, count, reason });
    }

    /// Tells of events that were not dropped, but cannot be had here any more.
    pub(super) fn tell(&mut self, stream: StreamId, first: Position, count: u64, reason: &'static str) {
        self.last.remove(&stream);
        self.ranges.push(Dropped { stream, first, count, reason });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many events were dropped, by reason.
    pub(super) fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// Takes what has not been told, as packets that fit a datagram each.
    pub(super) fn take(&mut self, datagram_bytes: usize) -> Vec<DropsPacket> {
        self.last.clear();
        let ranges = std::mem::take(&mut self.ranges);
        let mut told = Vec::new();
        for part in List::parts(&ranges, datagram_bytes.saturating_sub(HEAD_BYTES)) {
            let mut packet = Vec::new();
            // Reasons are short words, so that nothing here can be too large.
            if ProfileOption::from(DropsOption { drops: part.into() }).encode(&mut packet).is_ok() {
                let end = |drop: &Dropped<'_>| (drop.stream, Position(drop.first.0.saturating_add(drop.count)));
                told.push((packet, part.iter().map(end).collect()));
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use codec::{heph::Packet, profile::Known};

    use super::*;

    fn told(drops: &mut Drops, datagram_bytes: usize) -> Vec<(u32, u64, u64, String)> {
        let mut all = Vec::new();
        for (packet, ends) in drops.take(datagram_bytes) {
            assert!(packet.len() <= datagram_bytes);
            let Ok(Packet::Metadata(metadata)) = Packet::decode(&packet) else { panic!("no option") };
            let Ok(Some(Known { option: ProfileOption::Drops(drops), .. })) = Known::decode(&metadata) else {
                panic!("no drops")
            };
            assert!(drops.drops.iter().map(|drop| (drop.stream, Position(drop.first.0 + drop.count))).eq(ends));
            all.extend(drops.drops.iter().map(|drop| (drop.stream.0, drop.first.0, drop.count, drop.reason.into())));
        }
        all
    }

    #[test]
    fn neighbours_are_told_as_one() {
        let mut drops = Drops::default();
        for (stream, first, count, reason) in [
            (0, 5, 2, "ring-full"),
            (1, 7, 1, "ring-full"),
            (0, 7, 3, "ring-full"),
            (0, 10, 1, "other"),
            (0, 12, 1, "other"),
            (0, 13, 0, "other"),
        ] {
            drops.add(StreamId(stream), Position(first), count, reason);
        }
        let expected = [(0, 5, 5, "ring-full"), (1, 7, 1, "ring-full"), (0, 10, 1, "other"), (0, 12, 1, "other")];
        assert_eq!(told(&mut drops, 1_200), expected.map(|(a, b, c, d)| (a, b, c, d.to_string())));
        assert!(drops.is_empty());
        // What was told is not changed any more.
        drops.add(StreamId(0), Position(13), 1, "other");
        assert_eq!(told(&mut drops, 1_200), [(0, 13, 1, "other".to_string())]);
        assert_eq!(drops.counts().iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>(), [("other", 3), ("ring-full", 6)]);
    }

    #[test]
    fn many_are_split_over_packets() {
        let mut drops = Drops::default();
        (0..500).for_each(|number| drops.add(StreamId(0), Position(2 * number), 1, "ring-full"));
        let all = told(&mut drops, 1_200);
        assert_eq!(all.len(), 500);
        assert!(all.iter().map(|drop| drop.1).eq((0..500).map(|number| 2 * number)));
    }
}
