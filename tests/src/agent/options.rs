//! The options of a session, and which of them the collector has.

use std::collections::HashMap;

use codec::{
    ModuleId, SessionNs,
    heph::{Encode, List},
    profile::{Fingerprint, FunctionName, FunctionTableHasher, Functions, Module, ProfileOption},
};

/// How many bytes of options are repeated at once.
const BURST_BYTES: usize = 32 << 10;

/// Every option that was sent, in order.
#[derive(Debug, Default)]
pub(super) struct Options {
    sent: Vec<Sent>,
    by_fingerprint: HashMap<u64, usize>,
    /// All before this are acknowledged.
    first_open: usize,
    open: usize,
}

#[derive(Debug)]
struct Sent {
    packet: Vec<u8>,
    acknowledged: bool,
}

impl Options {
    pub(super) fn add(&mut self, packet: Vec<u8>) {
        let place = self.sent.len();
        let before = self.by_fingerprint.insert(Fingerprint::of(&packet).0, place);
        // The same packet once more needs to be acknowledged once.
        match before.map(|place| &self.sent[place]) {
            Some(same) if same.packet == packet => {
                self.by_fingerprint.insert(Fingerprint::of(&packet).0, before.unwrap_or(place));
            }
            _ => {
                self.sent.push(Sent { packet, acknowledged: false });
                self.open += 1;
            }
        }
    }

    /// The packet that says who the session is.
    pub(super) fn first(&self) -> &[u8] {
        self.sent.first().map_or(&[], |sent| &sent.packet)
    }

    pub(super) fn acknowledge(&mut self, fingerprints: List<'_, Fingerprint>) {
        for Fingerprint(fingerprint) in fingerprints {
            let place = self.by_fingerprint.get(&fingerprint);
            if let Some(sent) = place.and_then(|place| self.sent.get_mut(*place))
                && !sent.acknowledged
            {
                sent.acknowledged = true;
                self.open -= 1;
            }
        }
        while self.sent.get(self.first_open).is_some_and(|sent| sent.acknowledged) {
            self.first_open += 1;
        }
    }

    pub(super) fn all_acknowledged(&self) -> bool {
        self.open == 0
    }

    pub(super) fn count_unacknowledged(&self) -> usize {
        self.open
    }

    /// The first of the packets that are not acknowledged, as datagrams.
    pub(super) fn unacknowledged(&self, datagram_bytes: usize) -> Vec<Vec<u8>> {
        let mut datagrams: Vec<Vec<u8>> = Vec::new();
        let mut total = 0;
        for sent in self.sent[self.first_open..].iter().filter(|sent| !sent.acknowledged) {
            if total > BURST_BYTES {
                break;
            }
            total += sent.packet.len();
            match datagrams.last_mut() {
                Some(last) if last.len() + sent.packet.len() <= datagram_bytes => last.extend_from_slice(&sent.packet),
                _ => datagrams.push(sent.packet.clone()),
            }
        }
        datagrams
    }
}

/// The packets that tell of a module and its functions, each fit for a datagram where a single name is.
pub(super) fn module(id: u32, path: &str, names: &[String], datagram_bytes: usize) -> Vec<Vec<u8>> {
    let functions = (0_u64..).zip(names).map(|(index, name)| FunctionName { offset: index * 16, name });
    let functions: Vec<_> = functions.collect();
    let mut hasher = FunctionTableHasher::new();
    functions.iter().for_each(|function| hasher.add(function.offset, function.name));
    let id = ModuleId(id);
    let module = Module {
        id,
        base: 0x40_0000,
        size: 0x10_0000,
        loaded: SessionNs(0),
        unloaded: None,
        function_count: functions.len() as u32,
        table_hash: hasher.finish(),
        build_id: &[0xAB; 20],
        path,
    };
    let mut packets = vec![encoded(module.into())];
    let (mut first_index, mut rest) = (0, functions.as_slice());
    while !rest.is_empty() {
        // Head, name and the two numbers of the packet come before the list.
        let (part, behind) = rest.split_at(List::fitting(rest, datagram_bytes.saturating_sub(32)).max(1));
        packets.push(encoded(Functions { module: id, first_index, functions: part.into() }.into()));
        first_index += part.len() as u32;
        rest = behind;
    }
    packets
}

fn encoded(option: ProfileOption<'_>) -> Vec<u8> {
    let mut packet = Vec::new();
    option.encode(&mut packet).expect("the option fits a packet");
    packet
}
