//! Arguments about where a trace is sent. Environment variables can set most of them once for a device.

use std::path::PathBuf;

use clap::{ArgMatches, Args, CommandFactory, ValueEnum, error::ErrorKind, parser::ValueSource};
use codec::access::Pin;

use super::Cli;

/// Where a collector is looked for.
pub(crate) const DEFAULT_COLLECTOR: &str = "127.0.0.1:7000";

/// Where a trace goes, and how.
#[derive(Debug, Args)]
pub(crate) struct DestinationArgs {
    /// The collector: a name or an address, and a port
    #[arg(long, value_name = "HOST:PORT", default_value = DEFAULT_COLLECTOR, env = "SPOOR_TO", value_parser = host_and_port)]
    pub(crate) to: String,
    /// The transport protocol
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Transport::Udp, env = "SPOOR_TRANSPORT")]
    pub(crate) transport: Transport,
    /// How to pack calls and returns: many in a packet, or each in its own for collectors that do not know runs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Wire::Runs)]
    pub(crate) wire: Wire,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Maximum size of a datagram: 512 to 65507. By default 1400, and more on loopback
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = clap::value_parser!(u16).range(512..=65_507))]
    pub(crate) datagram_bytes: Option<u16>,
}

/// How the agent authenticates the collector, and the collector the agent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Encryption")]
pub(crate) struct AccessArgs {
    /// Encrypt, and trust only the certificate with this SHA-256, as the collector prints it
    #[arg(long, value_name = "FINGERPRINT", env = "SPOOR_TLS_PIN")]
    pub(crate) tls_pin: Option<Pin>,
    /// Encrypt, and trust certificates that were issued by one in this file, in PEM
    #[arg(long, value_name = "FILE", env = "SPOOR_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The name in the collector's certificate. By default the host of --to
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub(crate) tls_name: Option<String>,
    /// A certificate to show to the collector, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A file with the token that the collector requires; only its owner may have access to it
    #[arg(long, value_name = "FILE", env = "SPOOR_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl AccessArgs {
    /// Of a fingerprint and an authority only one can say whom to trust: the command line goes before the environment.
    /// clap would call both a conflict.
    pub(super) fn prefer_command_line(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if self.tls_pin.is_none() || self.tls_ca.is_none() {
            return Ok(());
        }
        let is_typed = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        match (is_typed("tls_pin"), is_typed("tls_ca")) {
            (true, false) => self.tls_ca = None,
            (false, true) => self.tls_pin = None,
            (true, true) => return Err(conflict("--tls-pin cannot be used with --tls-ca")),
            (false, false) => return Err(conflict("SPOOR_TLS_PIN and SPOOR_TLS_CA cannot both be set")),
        }
        Ok(())
    }
}

fn conflict(message: &str) -> clap::Error {
    Cli::command().error(ErrorKind::ArgumentConflict, message)
}

/// The transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Datagrams, retransmitted until they arrive
    Udp,
    /// One connection; encrypted with --tls-pin or --tls-ca
    Tcp,
    /// One connection over UDP, always encrypted; it survives a change of the address
    Quic,
}

/// How to pack calls and returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// Many consecutive events of a thread in one packet, about 8 bytes each
    Runs,
    /// Each event in a packet of its own
    Plain,
}

/// Checks the form of `HOST:PORT`; an IPv6 address is written in brackets. Whether there is such a host is found out later.
pub(super) fn host_and_port(text: &str) -> Result<String, String> {
    let expected = |what: &str| Err(format!("{what}, such as 127.0.0.1:7000, [::1]:7000 or workstation:7000"));
    let Some((host, port)) = text.rsplit_once(':') else { return expected("expected a host and a port") };
    if host.is_empty() {
        return expected("expected a host before the port");
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return expected("expected an IPv6 address in brackets, and a port");
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(text.into()),
        _ => expected("expected a port from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_from_other_words() {
        for name in ["127.0.0.1:7000", "[::1]:7000", "workstation:7000"] {
            assert_eq!(host_and_port(name).as_deref(), Ok(name));
        }
        for (name, why) in [
            ("workstation", "expected a host and a port"),
            (":7000", "expected a host before the port"),
            ("::1:7000", "expected an IPv6 address in brackets"),
            ("workstation:", "expected a port"),
            ("workstation:0", "expected a port"),
            ("workstation:70000", "expected a port"),
        ] {
            let error = host_and_port(name).expect_err(name);
            assert!(error.contains(why), "{error}");
        }
    }
}
