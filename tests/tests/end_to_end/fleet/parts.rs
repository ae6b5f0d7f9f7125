//! Edges and recorders.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tests::{Collector, Folder, collector::disk, process::Stdout, trace, wait::eventually};

use crate::fleet::jetstream::Server;

/// How long recorders hold their sessions: less than usual, so that tests need not wait.
const LEASE: [&str; 2] = ["--nats-lease", "2s"];

/// The same on a machine that has no time for them.
const LONG_LEASE: [&str; 2] = ["--nats-lease", "6s"];

/// The collectors around a stream, and the folder that recorders share.
pub(crate) struct Parts {
    pub(crate) folder: Folder,
    stream: String,
    lease: [&'static str; 2],
    /// What collectors that are started find in their environment.
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Parts {
    pub(crate) fn new(server: &Server) -> Self {
        Self::around(server.stream("TEST"))
    }

    pub(crate) fn around(stream: String) -> Self {
        Self { folder: Folder::new("fleet"), stream, lease: LEASE, variables: Vec::new() }
    }

    /// Parts that work all the time.
    pub(crate) fn at_full_speed(stream: String) -> Self {
        Self { lease: LONG_LEASE, ..Self::around(stream) }
    }

    /// A collector that hands on what it receives.
    pub(crate) fn edge(&self, arguments: &[&str]) -> Collector {
        self.edge_at(SocketAddr::from(([127, 0, 0, 1], 0)), arguments)
    }

    /// The same at this address.
    pub(crate) fn edge_at(&self, address: SocketAddr, arguments: &[&str]) -> Collector {
        let address = address.to_string();
        let own = ["--listen", &address, "--sink", &self.stream];
        self.start(&[&own, size(arguments), arguments].concat())
    }

    /// A recorder that writes to the folder that all share.
    pub(crate) fn recorder(&self, arguments: &[&str]) -> Collector {
        self.recorder_to(self.folder.path(), arguments)
    }

    /// A recorder that writes to this folder.
    pub(crate) fn recorder_to(&self, folder: &Path, arguments: &[&str]) -> Collector {
        let disk = disk(folder);
        let own = ["--source", &self.stream, "--sink", &disk];
        self.start(&[&own, &self.lease[..], size(arguments), arguments].concat())
    }

    fn start(&self, arguments: &[&str]) -> Collector {
        let variables: Vec<_> = self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Collector::start_in(&variables, arguments, Stdout::Collect)
    }

    /// Returns when so many sessions are being recorded.
    pub(crate) fn wait_for_start(&self, count: usize) {
        let has_events = |folder: &PathBuf| trace::indexed(folder, 0) > 0;
        eventually("sessions are recorded", || {
            trace::folders(self.folder.path()).iter().filter(|folder| has_events(folder)).count() >= count
        });
    }

    /// Returns when so many sessions are finished.
    pub(crate) fn wait_for(&self, count: usize) {
        self.wait_for_in(self.folder.path(), count);
    }

    /// Returns when so many sessions are finished in this folder, each in time.
    pub(crate) fn wait_for_in(&self, folder: &Path, count: usize) {
        let is_finished = |folder: &PathBuf| {
            let manifest = fs::read_to_string(folder.join("manifest.json")).unwrap_or_default();
            !folder.join("journal.heph").exists() && !manifest.is_empty() && !manifest.contains("lost contact")
        };
        for count in 1..=count {
            eventually("sessions are finished", || {
                trace::folders(folder).iter().filter(|folder| is_finished(folder)).count() >= count
            });
        }
    }
}

/// A stream that fits on any disk, unless the arguments say how large it may get.
fn size(arguments: &[&str]) -> &'static [&'static str] {
    if arguments.contains(&"--nats-max-bytes") { &[] } else { &["--nats-max-bytes", "64MiB"] }
}
