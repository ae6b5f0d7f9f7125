//! Shows traces in a browser: a server, and its page, which is in the program.
//!
//! ```text
//! page ─▶ guard ─▶ server ─▶ library (which sessions) ─▶ shelf (their overviews) ─▶ boxes, tables, looks
//! ```

#![forbid(unsafe_code)]

mod asked;
mod assets;
mod boxes;
mod detail;
mod exact;
mod export;
mod functions;
mod guard;
mod hot;
mod library;
mod live;
mod loaded;
mod looks;
mod refusal;
mod server;
mod shelf;
mod tables;
#[cfg(test)]
mod tests;
mod token;

use std::{io, path::PathBuf};

use collector_core::spans::SpanConfig;
use tokio::net::TcpListener;

pub use self::token::Token;

/// What is shown, and to whom.
#[derive(Debug)]
pub struct Options {
    /// A directory of sessions, or one session.
    pub dir: PathBuf,
    /// What browsers have to show.
    pub token: Token,
    /// How spans are made.
    pub config: SpanConfig,
}

/// Answers browsers on this machine until it is dropped. Whoever connects from elsewhere is refused: the listener should be
/// on loopback.
pub async fn serve(listener: TcpListener, options: Options) -> io::Result<()> {
    server::serve(listener, options).await
}
