//! Accepting QUIC connections. Each has one stream, with the same bytes as a TCP connection.

use std::{
    fmt,
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};

use codec::heph::{MAX_PACKET_BYTES, Packets};
use quinn::{
    AsyncUdpSocket, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, Incoming, Runtime, ServerConfig,
    TokioRuntime, TransportConfig, UdpPoller, VarInt,
    crypto::rustls::QuicServerConfig,
    rustls::AlertDescription,
    udp::{RecvMeta, Transmit},
};
use quinn_proto::HashedConnectionIdGenerator;
use ring::hmac::{self, HMAC_SHA256};
use tokio::time::timeout;

use crate::{
    door::{self, Certificate, Door, HANDSHAKE_TIME, Refusal},
    receiver::Receiver,
    tcp::{Carrier, Connection, Connections},
};

/// What a connection may have sent before it was read.
const WINDOW_BYTES: u32 = 1 << 20;

/// After how much silence a connection is gone.
const SILENCE: Duration = Duration::from_secs(10);

/// An endpoint on a socket.
pub(crate) fn listen(receiver: &Arc<Receiver>, socket: UdpSocket, certificate: &Certificate) -> io::Result<Endpoint> {
    let crypto = QuicServerConfig::try_from(Arc::clone(&certificate.config)).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(1)).max_concurrent_uni_streams(VarInt::from_u32(0));
    transport.receive_window(VarInt::from_u32(WINDOW_BYTES)).stream_receive_window(VarInt::from_u32(WINDOW_BYTES));
    transport.datagram_receive_buffer_size(None).max_idle_timeout(IdleTimeout::try_from(SILENCE).ok());
    config.transport_config(Arc::new(transport));
    // With the same secrets as the collector before it, agents learn at once that their connections are gone.
    let secret = certificate.secret.as_ref();
    let ids = secret.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    let mut endpoint = EndpointConfig::new(Arc::new(hmac::Key::new(HMAC_SHA256, secret)));
    endpoint.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
    let runtime = Arc::new(TokioRuntime);
    let socket = Arc::new(Socket { inner: runtime.wrap_udp_socket(socket)?, receiver: Arc::clone(receiver) });
    Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, runtime)
}

/// Accepts connections until the endpoint is closed.
pub(crate) async fn accept(
    receiver: Arc<Receiver>,
    endpoint: Endpoint,
    connections: Arc<Connections>,
    door: Arc<Door>,
) {
    while let Some(incoming) = endpoint.accept().await {
        // An address that can be forged takes no room.
        if !incoming.remote_address_validated() {
            // Only one that has been asked already cannot be asked again.
            _ = incoming.retry();
            continue;
        }
        let Some(buffers) = connections.room(WINDOW_BYTES as usize) else {
            receiver.ledger.connections_refused.fetch_add(1, Relaxed);
            receiver.notices.warn("no memory for another QUIC connection; see --memory");
            incoming.refuse();
            continue;
        };
        let door = Arc::clone(&door);
        connections.start(&receiver, |connection| async move {
            serve(connection, incoming, &door).await;
            drop(buffers);
        });
    }
}

async fn serve(connection: Connection, incoming: Incoming, door: &Door) {
    let address = incoming.remote_address();
    let peer = format!("quic {address}");
    let connecting = async { incoming.accept()?.await };
    let quic = match timeout(HANDSHAKE_TIME, connecting).await {
        Ok(Ok(quic)) => quic,
        Ok(Err(error)) => return connection.refuse(&Refusal::Handshake(describe(&error)), &peer),
        Err(_) => {
            return connection.refuse(&Refusal::Handshake("it did not finish the handshake in time".into()), &peer);
        }
    };
    match timeout(HANDSHAKE_TIME, quic.accept_bi()).await {
        Ok(Ok((mut writer, mut reader))) => match door.admit(&mut reader).await {
            Ok(first) => connection.serve(reader, writer, first, Carrier::Quic, address).await,
            Err(refusal) => {
                connection.refuse(&refusal, &peer);
                door::turn_away(&refusal, &mut reader, &mut writer).await;
            }
        },
        Ok(Err(error)) => connection.refuse(&Refusal::Handshake(describe(&error)), &peer),
        Err(_) => connection.refuse(&Refusal::Handshake("it opened no stream".into()), &peer),
    }
    quic.close(VarInt::from_u32(0), b"");
}

/// Why a connection was not made.
fn describe(error: &ConnectionError) -> String {
    // A code for each alert of TLS.
    const ALERTS: u64 = 0x100;
    match error {
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            code @ ALERTS..=0x1ff => door::describe_alert(AlertDescription::from((code - ALERTS) as u8)),
            _ => format!("it closed the connection ({close})"),
        },
        other => format!("the QUIC handshake failed: {other}"),
    }
}

/// Whether a datagram starts with a packet that is not encrypted.
fn is_heph(datagram: &[u8]) -> bool {
    matches!(Packets::new(datagram, MAX_PACKET_BYTES).next_with(Ok), Some(Ok(_)))
}

/// A socket that sorts out datagrams of senders that do not encrypt.
struct Socket {
    inner: Arc<dyn AsyncUdpSocket>,
    receiver: Arc<Receiver>,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(context, buffers, metas);
        if let Poll::Ready(Ok(count)) = received {
            for (buffer, meta) in buffers.iter().zip(metas).take(count) {
                if is_heph(buffer.get(..meta.len).unwrap_or_default()) {
                    self.receiver.refuse(&Refusal::Plain, &format!("udp {}", meta.addr));
                    let contents = &door::packet(door::ENCRYPTED_ONLY);
                    let answer =
                        Transmit { destination: meta.addr, ecn: None, contents, segment_size: None, src_ip: None };
                    // It is told again if it goes on.
                    _ = self.inner.try_send(&answer);
                    // Nothing is left of it.
                    meta.len = 0;
                }
            }
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
