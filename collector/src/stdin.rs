//! A connection that is standard input: whoever starts a collector like this is the only one who sends to it, and takes it
//! along when it ends.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixStream,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use anyhow::{Context, Result, bail};
use rustix::net::{SocketType, sockopt::socket_type};
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

/// Serves it. What is returned is canceled when it has ended.
pub(crate) fn serve(
    receiver: &Arc<Receiver>,
    connections: &Arc<Connections>,
    socket: UnixStream,
) -> Result<CancellationToken> {
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UnixStream::from_std(socket)?;
    info!("listening to standard input");
    receiver.ledger.connections.fetch_add(1, Relaxed);
    let over = CancellationToken::new();
    let ended = over.clone().drop_guard();
    connections.start(receiver, |connection| async move {
        let (reader, writer) = socket.into_split();
        connection.serve(reader, writer, Vec::new(), Carrier::Stdin, "stdin").await;
        drop(ended);
    });
    Ok(over)
}
