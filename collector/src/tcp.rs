//! Accepting connections and reading them, whatever carries them.

mod connections;

use std::{
    fmt::Display,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, mpsc},
    time::timeout,
};
use tracing::debug;

pub(crate) use self::connections::Connections;
use crate::{
    door::{self, Door, HANDSHAKE_TIME, Refusal},
    listen,
    receiver::{Ledger, Receiver},
};

/// What a connection reads into at first.
const SMALL_BUFFER: usize = 64 << 10;

/// What it reads into when it sends much.
const LARGE_BUFFER: usize = 256 << 10;

/// How many replies may wait for a connection.
const REPLIES: usize = 64;

/// How long a peer may take to read one before it gets no more.
const REPLY_TIME: Duration = Duration::from_secs(10);

/// What a TLS connection starts with. No packet does.
const TLS_START: [u8; 2] = [0x16, 0x03];

/// Accepts connections for ever.
pub(crate) async fn accept(
    receiver: Arc<Receiver>,
    listener: TcpListener,
    connections: Arc<Connections>,
    door: Arc<Door>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                receiver.ledger.connections.fetch_add(1, Relaxed);
                if let Err(error) = listen::prepare(&stream) {
                    // It can be read all the same.
                    receiver.notices.warn(format!("connection from {address}: {error}"));
                }
                let door = Arc::clone(&door);
                connections.start(&receiver, |connection| connection.enter(stream, address, door));
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

/// What carries a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    Tcp,
    Tls,
    Quic,
    Stdin,
}

impl Carrier {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Quic => "quic",
            Self::Stdin => "socket",
        }
    }

    /// Where its bytes are counted.
    fn bytes(self, ledger: &Ledger) -> &AtomicU64 {
        match self {
            // The same bytes as over TCP.
            Self::Tcp | Self::Stdin => &ledger.tcp_bytes,
            Self::Tls => &ledger.tls_bytes,
            Self::Quic => &ledger.quic_bytes,
        }
    }
}

/// What a connection has to go by.
pub(crate) struct Connection {
    receiver: Arc<Receiver>,
    connections: Arc<Connections>,
    number: u64,
    /// Told when it has to make room for another. It is never just dropped: what it has received may be on its way to
    /// the sinks.
    leave: Arc<Notify>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.ended(self.number);
        self.receiver.ledger.connections_open.fetch_sub(1, Relaxed);
    }
}

impl Connection {
    /// Serves a sender that shows what the door wants to see.
    async fn enter(self, mut stream: TcpStream, address: SocketAddr, door: Arc<Door>) {
        let tls = door.tls();
        let patience = if tls.is_some() { HANDSHAKE_TIME } else { self.connections.patience() };
        let Some(starts_as_tls) = self.starts_as_tls(&stream, patience).await else { return };
        let tls = match (tls, starts_as_tls) {
            (Some(tls), true) => tls,
            (None, false) => {
                let (reader, writer) = stream.into_split();
                return self.serve(reader, writer, Vec::new(), Carrier::Tcp, address).await;
            }
            (Some(_), false) => {
                self.refuse(&Refusal::Plain, &format!("tcp {address}"));
                let (mut reader, mut writer) = stream.split();
                return door::turn_away(&Refusal::Plain, &mut reader, &mut writer).await;
            }
            (None, true) => {
                let why = Refusal::Encrypted("it speaks TLS, and this collector has no --tls");
                return self.refuse(&why, &format!("tcp {address}"));
            }
        };
        let entered = match Door::shake_hands(tls, stream).await {
            Ok(mut stream) => match door.admit(&mut stream).await {
                Ok(first) => Ok((stream, first)),
                Err(refusal) => Err((refusal, Some(stream))),
            },
            Err(refusal) => Err((refusal, None)),
        };
        match entered {
            Ok((stream, first)) => {
                let (reader, writer) = tokio::io::split(stream);
                self.serve(reader, writer, first, Carrier::Tls, address).await;
            }
            Err((refusal, stream)) => {
                self.refuse(&refusal, &format!("tls {address}"));
                if let Some(stream) = stream {
                    let (mut reader, mut writer) = tokio::io::split(stream);
                    door::turn_away(&refusal, &mut reader, &mut writer).await;
                }
            }
        }
    }

    /// Whether it starts as TLS does, once its first bytes are there: not after so long, and not when it has to leave.
    async fn starts_as_tls(&self, stream: &TcpStream, patience: Duration) -> Option<bool> {
        let mut start = [0; 2];
        tokio::select! {
            peeked = stream.peek(&mut start) => peeked.is_ok_and(|read| read > 0).then_some(start == TLS_START),
            () = tokio::time::sleep(patience) => {
                self.receiver.ledger.connections_refused.fetch_add(1, Relaxed);
                None
            }
            () = self.leave.notified() => None,
        }
    }

    /// Counts and names a sender that does not get in.
    pub(crate) fn refuse(&self, refusal: &Refusal, from: &str) {
        self.receiver.refuse(refusal, from);
    }

    /// Serves a sender to its end. `first` is what was read of it already.
    pub(crate) async fn serve(
        self,
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin + Send + 'static,
        first: Vec<u8>,
        carrier: Carrier,
        address: impl Display,
    ) {
        debug!(peer = %address, "connection from {address}");
        let (replies, outgoing) = mpsc::channel(REPLIES);
        self.receiver.post.add_stream(self.number, format!("{} {address}", carrier.name()), Some(replies));
        let writer = tokio::spawn(write(writer, outgoing));
        self.read(reader, first, carrier).await;
        self.receiver.post.remove_stream(self.number);
        self.receiver.disconnected(self.number);
        writer.abort();
        debug!(peer = %address, "connection from {address} ended");
    }

    /// Reads to the end, or until nothing whole has come for too long.
    async fn read(&self, reader: impl AsyncRead + Unpin, first: Vec<u8>, carrier: Carrier) {
        let mut reader = std::io::Cursor::new(first).chain(reader);
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
            carrier.bytes(&self.receiver.ledger).fetch_add(read as u64, Relaxed);
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
async fn write(mut writer: impl AsyncWrite + Unpin, mut outgoing: mpsc::Receiver<Bytes>) {
    while let Some(packet) = outgoing.recv().await {
        let written = async {
            writer.write_all(&packet).await?;
            // What encrypts may hold it back.
            writer.flush().await
        };
        if !matches!(timeout(REPLY_TIME, written).await, Ok(Ok(()))) {
            return;
        }
    }
}
