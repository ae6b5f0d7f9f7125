//! Datagrams that are delivered later.

use std::{cmp::Reverse, collections::BinaryHeap, net::SocketAddr, time::Instant};

/// When it is due, its number, who sent it, and what.
type Waiting = (Instant, u64, SocketAddr, Vec<u8>);

/// Datagrams by when they are due.
#[derive(Debug, Default)]
pub(super) struct Delayed {
    heap: BinaryHeap<Reverse<Waiting>>,
    /// Keeps those that are due at the same time in order.
    pushed: u64,
}

impl Delayed {
    pub(super) fn push(&mut self, due: Instant, agent: SocketAddr, datagram: Vec<u8>) {
        self.pushed += 1;
        self.heap.push(Reverse((due, self.pushed, agent, datagram)));
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((due, ..))| *due)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        if self.next_due()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, agent, datagram))| (agent, datagram))
    }
}
