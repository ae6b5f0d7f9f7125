//! Accepting connections and reading them.

mod connections;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::{Notify, OwnedSemaphorePermit, mpsc},
    time::timeout,
};
use tracing::debug;

pub(crate) use self::connections::Connections;
use crate::{listen, receiver::Receiver};

/// What a connection reads into at first.
const SMALL_BUFFER: usize = 64 << 10;

/// What it reads into when it sends much.
const LARGE_BUFFER: usize = 256 << 10;

/// How many replies may wait for a connection.
const REPLIES: usize = 64;

/// How long a peer may take to read one before it gets no more.
const REPLY_TIME: Duration = Duration::from_secs(10);

/// Accepts connections for ever.
pub(crate) async fn accept(receiver: Arc<Receiver>, listener: TcpListener, connections: Arc<Connections>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                receiver.ledger.connections.fetch_add(1, Relaxed);
                if let Err(error) = listen::prepare(&stream) {
                    // It can be read all the same.
                    receiver.notices.warn(format!("connection from {address}: {error}"));
                }
                connections.start(&receiver, stream, address);
            }
            Err(error) => {
                // Too many open files, or a connection that was gone already. Others will come.
                receiver.ledger.receive_errors.fetch_add(1, Relaxed);
                receiver.notices.warn(format!("accepting a connection: {error}"));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// What a connection has to go by.
struct Connection {
    receiver: Arc<Receiver>,
    connections: Arc<Connections>,
    number: u64,
    /// Told when it has to make room for another. It is never just dropped: what it has received may be on its way to
    /// the sinks.
    leave: Arc<Notify>,
}

impl Connection {
    async fn serve(self, stream: TcpStream, address: SocketAddr) {
        debug!(peer = %address, "connection from {address}");
        let (reader, writer) = stream.into_split();
        let (replies, outgoing) = mpsc::channel(REPLIES);
        self.receiver.post.add_stream(self.number, format!("tcp {address}"), Some(replies));
        let writer = tokio::spawn(write(writer, outgoing));
        self.read(reader).await;
        self.receiver.post.remove_stream(self.number);
        self.receiver.disconnected(self.number);
        writer.abort();
        self.connections.ended(self.number);
        debug!(peer = %address, "connection from {address} ended");
        self.receiver.ledger.connections_open.fetch_sub(1, Relaxed);
    }

    /// Reads to the end, or until nothing whole has come for too long.
    async fn read(&self, mut reader: OwnedReadHalf) {
        let mut buffer = vec![0; SMALL_BUFFER];
        let mut filled = 0;
        let mut room: Option<OwnedSemaphorePermit> = None;
        let mut progressed = Instant::now();
        loop {
            let Some(free) = buffer.get_mut(filled..) else { return };
            let patience = self.connections.patience().saturating_sub(progressed.elapsed());
            // However it ends, what came is what there is.
            let read = tokio::select! {
                read = reader.read(free) => read.unwrap_or(0),
                () = tokio::time::sleep(patience) => {
                    self.receiver.ledger.connections_refused.fetch_add(1, Relaxed);
                    0
                }
                () = self.leave.notified() => 0,
            };
            self.receiver.ledger.tcp_bytes.fetch_add(read as u64, Relaxed);
            filled += read;
            let input = buffer.get(..filled).unwrap_or_default();
            self.connections.begin_work(self.number);
            let consumed = self.receiver.bytes(self.number, input, read == 0);
            // While the recorders have no room, the peer has to wait.
            self.receiver.room().await;
            self.connections.end_work(self.number, consumed > 0);
            if read == 0 {
                return;
            }
            if consumed > 0 {
                buffer.copy_within(consumed..filled, 0);
                progressed = Instant::now();
            }
            let was_full = filled == buffer.len();
            filled -= consumed;
            if was_full && !self.grow(&mut buffer, filled, &mut room) {
                self.receiver.ledger.connections_refused.fetch_add(1, Relaxed);
                return;
            }
        }
    }

    /// Makes a buffer larger that was filled. Returns whether it can go on.
    fn grow(&self, buffer: &mut Vec<u8>, filled: usize, room: &mut Option<OwnedSemaphorePermit>) -> bool {
        let wanted = match buffer.len() {
            length if length < LARGE_BUFFER => LARGE_BUFFER,
            // A packet that does not fit is at most as large as packets may be.
            length if filled == length => length * 2,
            _ => return true,
        };
        if let Some(more) = self.connections.room(wanted - buffer.len()) {
            match room {
                Some(room) => room.merge(more),
                None => *room = Some(more),
            }
            buffer.resize(wanted, 0);
            return true;
        }
        // Without more room it goes on as it is, unless a packet does not fit.
        filled < buffer.len()
    }
}

/// Writes replies. A peer that does not read them gets fewer.
async fn write(mut writer: OwnedWriteHalf, mut outgoing: mpsc::Receiver<Bytes>) {
    while let Some(packet) = outgoing.recv().await {
        if !matches!(timeout(REPLY_TIME, writer.write_all(&packet)).await, Ok(Ok(()))) {
            return;
        }
    }
}
