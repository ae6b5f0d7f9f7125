//! The way back to the agents.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use collector_core::{Peer, Transmit};
use tokio::{net::UdpSocket, sync::mpsc};

/// Sends replies. A reply that cannot be sent at once is left out: the next one says the same and more.
#[derive(Debug, Default)]
pub(crate) struct Post {
    sockets: Mutex<Vec<Arc<UdpSocket>>>,
    streams: Mutex<HashMap<u64, Stream>>,
}

#[derive(Debug)]
struct Stream {
    name: String,
    /// None for a file, which nothing can be told.
    replies: Option<mpsc::Sender<Bytes>>,
}

impl Post {
    /// The sockets, by the numbers that the core knows them by.
    pub(crate) fn set_sockets(&self, sockets: Vec<Arc<UdpSocket>>) {
        *self.sockets.lock().unwrap_or_else(PoisonError::into_inner) = sockets;
    }

    /// Closes all sockets, and says nothing any more over connections.
    pub(crate) fn close(&self) {
        self.set_sockets(Vec::new());
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A connection or file that bytes come from.
    pub(crate) fn add_stream(&self, number: u64, name: String, replies: Option<mpsc::Sender<Bytes>>) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Stream { name, replies });
    }

    pub(crate) fn remove_stream(&self, number: u64) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// Waits until replies to connections are on their way, for a moment: whoever has ended its session wants to know
    /// that this is known, and cannot be told once this process is gone.
    pub(crate) async fn settle(&self) {
        const GLANCE: Duration = Duration::from_millis(5);
        const PATIENCE: u32 = 50;
        for _ in 0..PATIENCE {
            // Once more after the last was taken, so that it is written.
            let waits = self.has_replies();
            tokio::time::sleep(GLANCE).await;
            if !waits {
                return;
            }
        }
    }

    fn has_replies(&self) -> bool {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams
            .values()
            .filter_map(|stream| stream.replies.as_ref())
            .any(|replies| replies.capacity() < replies.max_capacity())
    }

    /// Who a peer is, for people.
    pub(super) fn name(&self, peer: &Peer) -> String {
        match peer {
            Peer::Datagram { address, .. } => format!("udp {address}"),
            Peer::Stream(number) => {
                let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
                streams.get(number).map_or_else(String::new, |stream| stream.name.clone())
            }
        }
    }

    pub(super) fn send(&self, transmit: &Transmit) {
        match transmit.to {
            Peer::Datagram { socket, address } => {
                let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(socket) = sockets.get(socket) {
                    _ = socket.try_send_to(&transmit.packet, address);
                }
            }
            Peer::Stream(number) => {
                let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(replies) = streams.get(&number).and_then(|stream| stream.replies.as_ref()) {
                    _ = replies.try_send(transmit.packet.clone());
                }
            }
        }
    }
}
