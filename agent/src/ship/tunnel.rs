//! A connection that somebody else makes, and perhaps encrypts on a thread of its own.

use std::{
    fmt, io,
    net::SocketAddr,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Makes connections for [`Settings::tunnel`](super::Settings::tunnel).
pub trait Tunnel: fmt::Debug + Send + Sync {
    /// Begins to connect.
    fn open(&self, to: SocketAddr) -> io::Result<Tunnelled>;
}

/// A connection through a tunnel.
#[derive(Debug)]
pub struct Tunnelled {
    /// What is written here arrives at the collector, and the other way round.
    pub socket: UnixStream,
    /// How far it is.
    pub state: Arc<TunnelState>,
}

/// How far a connection is. The tunnel closes the socket once it has [failed](Self::fail).
#[derive(Debug, Default)]
pub struct TunnelState(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Opening,
    Open,
    Failed(io::Error),
}

impl TunnelState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The collector is there, and is who it should be.
    pub fn opened(&self) {
        *self.state() = State::Open;
    }

    /// There is no connection, or no longer.
    pub fn fail(&self, error: io::Error) {
        *self.state() = State::Failed(error);
    }

    pub(super) fn is_open(&self) -> io::Result<bool> {
        match &*self.state() {
            State::Opening => Ok(false),
            State::Open => Ok(true),
            State::Failed(error) => Err(copy(error)),
        }
    }

    /// Why it failed, if it did; it explains what the socket says.
    pub(super) fn explain(&self, error: io::Error) -> io::Error {
        self.is_open().err().unwrap_or(error)
    }
}

fn copy(error: &io::Error) -> io::Error {
    match error.get_ref() {
        Some(why) => io::Error::new(error.kind(), why.to_string()),
        None => error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error),
    }
}
