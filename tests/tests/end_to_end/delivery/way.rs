//! The ways to a collector.

use std::{net::SocketAddr, path::Path, sync::Arc};

use real_agent::ship::{Settings, Transport};
use tests::{Collector, Identity, collector::disk, process::Stdout};
use tunnel::Encrypted;

/// A transport, and what both sides show each other if it is encrypted.
pub(crate) struct Way {
    pub(crate) transport: Transport,
    identity: Option<Identity>,
}

impl Way {
    pub(crate) fn new(transport: Transport) -> Self {
        let is_encrypted = matches!(transport, Transport::Tls | Transport::Quic);
        Self { transport, identity: is_encrypted.then(Identity::new) }
    }

    /// A collector that listens there and writes to this folder.
    #[track_caller]
    pub(crate) fn collector(&self, at: &str, folder: &Path, arguments: &[&str]) -> Collector {
        let guard = self.identity.as_ref().map(Identity::guarded).unwrap_or_default();
        let sink = disk(folder);
        let mut all = vec!["--listen", at, "--sink", &sink];
        all.extend(guard.iter().map(String::as_str).chain(arguments.iter().copied()));
        Collector::start(&all, Stdout::Collect)
    }

    /// An agent that sends there.
    #[track_caller]
    pub(crate) fn settings(&self, to: SocketAddr) -> Settings {
        let tunnel = self.identity.as_ref().map(|identity| Encrypted::new(&identity.setup(self.transport)));
        let tunnel = tunnel.map(|tunnel| Arc::new(tunnel.unwrap_or_else(|wrong| panic!("{wrong}"))) as _);
        Settings { tunnel, ..crate::delivery::settings(to, self.transport) }
    }
}
