//! Receiving datagrams, as many at a time as the system can give.

use std::{
    io::{self, ErrorKind, IoSliceMut},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use tokio::{io::Interest, net::UdpSocket};
use tokio_util::sync::CancellationToken;

use crate::{door::Refusal, receiver::Receiver};

/// The largest run of datagrams that the system hands over at once.
const BUFFER_BYTES: usize = 64 << 10;

/// How long it is received at the end, if there is no end of it.
const LAST_TIME: Duration = Duration::from_millis(500);

/// Receives until `stop` says so, and then what has arrived by then.
pub(crate) async fn receive(
    receiver: Arc<Receiver>,
    number: usize,
    socket: Arc<UdpSocket>,
    stop: CancellationToken,
) -> io::Result<()> {
    let state = UdpSocketState::new(UdpSockRef::from(&*socket))?;
    let mut memory = vec![0; BATCH_SIZE * BUFFER_BYTES];
    loop {
        let stopping = tokio::select! {
            ready = socket.readable() => {
                ready?;
                false
            }
            () = stop.cancelled() => true,
        };
        // When it is to stop, what the system has received already still counts; but somebody may never stop sending.
        let deadline = Instant::now() + LAST_TIME;
        loop {
            let more = receive_some(&receiver, number, &socket, &state, &mut memory).await;
            if !more || !stopping || Instant::now() >= deadline {
                break;
            }
        }
        // A socket that always has more never waits; without this, neither signals nor timers would get their turn.
        tokio::task::yield_now().await;
        if stopping {
            return Ok(());
        }
    }
}

/// Takes what is there. Returns whether there was anything.
async fn receive_some(
    receiver: &Receiver,
    number: usize,
    socket: &UdpSocket,
    state: &UdpSocketState,
    memory: &mut [u8],
) -> bool {
    let mut metas = [RecvMeta::default(); BATCH_SIZE];
    let received = {
        let mut buffers: Vec<_> = memory.chunks_mut(BUFFER_BYTES).map(IoSliceMut::new).collect();
        socket.try_io(Interest::READABLE, || state.recv(UdpSockRef::from(socket), &mut buffers, &mut metas))
    };
    match received {
        Ok(count) => {
            let mut datagrams = Vec::with_capacity(count);
            for (index, meta) in metas.iter().take(count).enumerate() {
                let (start, end) = (index * BUFFER_BYTES, index * BUFFER_BYTES + meta.len);
                // The system may have joined several datagrams of one size.
                let starts = (start..end).step_by(meta.stride.max(1));
                if memory.get(start..end).is_some_and(is_quic) {
                    let why = Refusal::Encrypted("it speaks QUIC, and this collector has no --tls");
                    receiver.refuse(&why, &format!("udp {}", meta.addr));
                    continue;
                }
                datagrams.extend(starts.map(|from| (meta.addr, from..end.min(from + meta.stride))));
            }
            receiver.datagrams(number, memory, &datagrams);
            true
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => {
            // An unreachable sender of the past, no memory for the moment: the next datagram may be fine.
            receiver.ledger.receive_errors.fetch_add(1, Relaxed);
            receiver.notices.warn(format!("receiving over UDP: {error}"));
            tokio::time::sleep(Duration::from_millis(10)).await;
            false
        }
    }
}

/// Whether a datagram opens a QUIC connection: a long header, and version 1. No packet starts like that.
fn is_quic(datagram: &[u8]) -> bool {
    matches!(datagram, [first, 0, 0, 0, 1, ..] if first & 0xC0 == 0xC0)
}
