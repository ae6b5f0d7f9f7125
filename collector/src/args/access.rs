//! Arguments that select who may send.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How senders and the collector authenticate each other.
#[derive(Debug, Args)]
#[command(next_help_heading = "Who may send")]
pub(crate) struct AccessArgs {
    #[command(flatten)]
    pub(crate) certificate: CertificateArgs,
    /// Accept only senders whose certificate was issued by one in this file, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Accept only senders that know the token in this file; needs TLS
    ///
    /// Only the owner may have access to the file.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// What connections are encrypted with, if they are.
#[derive(Debug, Args)]
pub(crate) struct CertificateArgs {
    /// Accept only TLS, and QUIC on UDP ports, with a certificate that the collector makes on first use
    ///
    /// The collector keeps it in $XDG_STATE_HOME/spoor and prints its fingerprint for --tls-pin. Browsers ask whether to
    /// trust it.
    #[arg(long, value_enum, value_name = "self", conflicts_with_all = ["tls_cert", "tls_key"])]
    pub(crate) tls: Option<TlsMode>,
    /// Accept only TLS and QUIC, with the certificate in this file, in PEM, followed by those of its issuers
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

/// Where a certificate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsMode {
    /// A certificate that the collector makes
    #[value(name = "self")]
    Own,
}
