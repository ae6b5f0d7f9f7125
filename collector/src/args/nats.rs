//! Arguments about NATS.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use fleet::{Access, Keeping};

use crate::quantity::{Period, Size};

/// Credentials for NATS, and settings for streams that the collector makes.
#[derive(Debug, Args)]
#[command(next_help_heading = "NATS (nats: sinks and sources)")]
pub(crate) struct NatsArgs {
    /// Credentials: a file with a JWT and its key
    #[arg(long, value_name = "FILE", env = "NATS_CREDS", hide_env_values = true)]
    nats_creds: Option<PathBuf>,
    /// A file with the seed of an nkey
    #[arg(long, value_name = "FILE", env = "NATS_NKEY", hide_env_values = true)]
    nats_nkey: Option<PathBuf>,
    /// A user; its password is in $NATS_PASSWORD
    #[arg(long, value_name = "NAME", env = "NATS_USER", hide_env_values = true)]
    nats_user: Option<String>,
    /// Use TLS, and trust servers whose certificates were issued by one in this file, in PEM
    #[arg(long, value_name = "FILE", env = "NATS_CA", hide_env_values = true)]
    nats_ca: Option<PathBuf>,
    /// Use TLS, and show servers this certificate, in PEM
    #[arg(long, value_name = "FILE", env = "NATS_CERT", hide_env_values = true, requires = "nats_key")]
    nats_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", env = "NATS_KEY", hide_env_values = true, requires = "nats_cert")]
    nats_key: Option<PathBuf>,
    /// The JetStream domain behind a leaf node
    #[arg(long, value_name = "NAME")]
    nats_domain: Option<String>,
    /// Copies of each message, if the collector makes the stream
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    nats_replicas: u8,
    /// Maximum size of the stream, if the collector makes it
    ///
    /// When it is three quarters full, collectors publish nothing more until sessions are recorded, and agents wait.
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = stream_size)]
    nats_max_bytes: Size,
    /// Remove messages of this age, recorded or not, if the collector makes the stream
    ///
    /// By default only recorded messages are removed.
    #[arg(long, value_name = "TIME")]
    nats_max_age: Option<Period>,
    /// How long a recorder may be silent before others take over its sessions
    ///
    /// All recorders of a stream need the same value.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = lease)]
    nats_lease: Period,
}

fn stream_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if size.0 < 4 << 20 { Err("expected at least 4MiB".into()) } else { Ok(size) }
}

fn lease(text: &str) -> Result<Period, String> {
    let period: Period = text.parse()?;
    let is_good = (Duration::from_secs(1)..=Duration::from_secs(600)).contains(&period.0);
    is_good.then_some(period).ok_or_else(|| "expected from 1s to 10min".into())
}

impl NatsArgs {
    pub(crate) fn access(&self) -> Access {
        Access {
            creds: self.nats_creds.clone(),
            nkey: self.nats_nkey.clone(),
            user: self.nats_user.clone(),
            password: std::env::var("NATS_PASSWORD").ok(),
            ca: self.nats_ca.clone(),
            identity: self.nats_cert.clone().zip(self.nats_key.clone()),
            domain: self.nats_domain.clone(),
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        self.nats_lease.0
    }

    pub(crate) fn keeping(&self) -> Keeping {
        Keeping {
            replicas: self.nats_replicas.into(),
            max_bytes: self.nats_max_bytes.0,
            max_age: self.nats_max_age.map(|age| age.0),
        }
    }
}
