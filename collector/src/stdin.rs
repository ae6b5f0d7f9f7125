//! Connections that come over standard input: whoever starts a collector like this is the only one who sends to it, and takes it
//! along when it ends.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixStream,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use anyhow::{Context, Result, bail};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType, recvmsg, sockopt::socket_type};
use tokio::io::Interest;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    receiver::Receiver,
    tcp::{Carrier, Connections},
};

/// The socket that standard input is.
pub(crate) fn open() -> Result<UnixStream> {
    let stdin: OwnedFd = io::stdin().as_fd().try_clone_to_owned().context("cannot use standard input")?;
    if socket_type(&stdin) != Ok(SocketType::STREAM) {
        bail!("standard input is no stream socket (--stdin is for commands that start a collector: `agent record`)");
    }
    Ok(stdin.into())
}

/// Serves the connections that come over it, each a socket. What is returned is canceled when it has ended, and they have.
pub(crate) fn serve(
    receiver: &Arc<Receiver>,
    connections: &Arc<Connections>,
    socket: UnixStream,
) -> Result<CancellationToken> {
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UnixStream::from_std(socket)?;
    info!("listening to standard input");
    let over = CancellationToken::new();
    let ended = Arc::new(over.clone().drop_guard());
    let (receiver, connections) = (receiver.clone(), connections.clone());
    tokio::spawn(async move {
        while let Some(connection) = next(&socket).await {
            receiver.ledger.connections.fetch_add(1, Relaxed);
            let ended = Arc::clone(&ended);
            connections.start(&receiver, |serving| async move {
                let (reader, writer) = connection.into_split();
                serving.serve(reader, writer, Vec::new(), Carrier::Stdin, "stdin").await;
                drop(ended);
            });
        }
    });
    Ok(over)
}

/// The next connection that comes over a socket, until that is closed.
async fn next(socket: &tokio::net::UnixStream) -> Option<tokio::net::UnixStream> {
    loop {
        socket.readable().await.ok()?;
        match socket.try_io(Interest::READABLE, || receive(socket)) {
            Ok(Some(connection)) => return tokio::net::UnixStream::from_std(connection).ok(),
            Ok(None) => return None,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

fn receive(socket: &tokio::net::UnixStream) -> io::Result<Option<UnixStream>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut received = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut received, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = received.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let Some(connection) = descriptors.flatten().next().map(UnixStream::from) else { return Ok(None) };
    connection.set_nonblocking(true)?;
    Ok(Some(connection))
}
