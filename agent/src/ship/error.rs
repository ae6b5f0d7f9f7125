//! Why nothing can be delivered.

use std::{io, net::SocketAddr, time::Duration};

use codec::heph::EncodeError;

use super::Transport;

/// Why a collector cannot be reached. Each is one line that can be shown as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum ShipError {
    /// There is nowhere to send to.
    #[error("there is no address to send to")]
    NoAddress,
    /// Somebody said that nobody is there.
    #[error("nobody listens at {to} for {transport}: is a collector running there?")]
    Refused { to: SocketAddr, transport: Transport },
    /// Datagrams are sent and nothing comes back.
    #[error(
        "no answer from {to} over {transport} within {patience:?}: is `collector --listen`{} running there, and is UDP \
         let through?", if *transport == Transport::Quic { " with --tls" } else { "" }
    )]
    NoAnswer { to: SocketAddr, transport: Transport, patience: Duration },
    /// A connection was made, and nothing comes back.
    #[error("{to} takes connections but did not answer within {patience:?}: is it a collector?")]
    Silent { to: SocketAddr, patience: Duration },
    /// The address cannot be reached.
    #[error("cannot reach {to} over {transport}: {source}")]
    Unreachable { to: SocketAddr, transport: Transport, source: io::Error },
    /// One side does not trust the other, or they do not speak the same.
    #[error("no session with {to} over {transport}: {why}")]
    Rejected { to: SocketAddr, transport: Transport, why: io::Error },
    /// The session cannot be described.
    #[error("cannot say who is traced: {0}")]
    Session(#[from] EncodeError),
}
