//! Shows traces in a browser: a server, and its page, which is in the program.
//!
//! ```text
//! page ─▶ visitors (who is connected) ─▶ guard ─▶ server ─▶ library (which sessions) ─▶ shelf (their overviews) ─▶ boxes, tables, looks
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
mod visitors;

use std::{convert::Infallible, path::PathBuf, sync::Arc};

use collector_core::spans::SpanConfig;
use tokio::net::TcpListener;
use tokio_rustls::rustls::ServerConfig;

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
    /// The names and addresses that browsers may reach it by, besides those of loopback: as they are in an address.
    pub names: Vec<String>,
    /// What encrypts. Without it, the listener should be on loopback.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Answers browsers until it is dropped: then all connections end.
///
/// # Errors
///
/// Where the listener has no address.
pub async fn serve(listener: TcpListener, options: Options) -> std::io::Result<Infallible> {
    server::serve(listener, options).await
}
