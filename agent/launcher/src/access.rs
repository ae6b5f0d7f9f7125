//! From arguments to an encrypted connection.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use agent::ship;
use codec::access::Secret;
use tunnel::{Encrypted, Setup, Trust};

use crate::{
    args::{AccessArgs, Transport},
    settings::SettingsError,
};

/// How packets travel, and through what; or what is wrong with the arguments.
pub(crate) fn way(
    args: &AccessArgs,
    transport: Transport,
    host: &str,
) -> Result<(ship::Transport, Option<Encrypted>), SettingsError> {
    let trust = match (&args.tls_pin, &args.tls_ca) {
        (Some(pin), _) => Some(Trust::Pin(*pin)),
        (None, Some(file)) => Some(Trust::Authority(file.clone())),
        (None, None) => None,
    };
    let transport = match (transport, &trust) {
        (Transport::Udp, Some(_)) => {
            return usage(
                "plain UDP is not encrypted: --tls-pin and --tls-ca need --transport tcp or --transport quic",
            );
        }
        (Transport::Quic, None) => {
            return usage("QUIC is encrypted: --tls-pin or --tls-ca has to say which collector to trust");
        }
        (Transport::Udp, None) => ship::Transport::Udp,
        (Transport::Tcp, None) => ship::Transport::Tcp,
        (Transport::Tcp, Some(_)) => ship::Transport::Tls,
        (Transport::Quic, Some(_)) => ship::Transport::Quic,
    };
    let Some(trust) = trust else {
        return match (&args.token_file, &args.tls_cert) {
            (Some(_), _) => usage(
                "a token travels only encrypted: --token-file needs --transport tcp or quic, and --tls-pin or --tls-ca",
            ),
            (None, Some(_)) => usage("--tls-cert is shown only encrypted: it needs --tls-pin or --tls-ca"),
            (None, None) => Ok((transport, None)),
        };
    };
    let setup = Setup {
        transport,
        trust,
        name: args.tls_name.clone().unwrap_or_else(|| host.trim_matches(['[', ']']).into()),
        identity: args.tls_cert.clone().zip(args.tls_key.clone()),
        token: args.token_file.as_deref().map(token).transpose().map_err(SettingsError::Machine)?,
    };
    Ok((transport, Some(Encrypted::new(&setup).map_err(SettingsError::Machine)?)))
}

fn usage<T>(message: &str) -> Result<T, SettingsError> {
    Err(SettingsError::Usage(message.into()))
}

fn token(file: &Path) -> Result<Secret, String> {
    let read = fs::read(file).and_then(|contents| Ok((contents, file.metadata()?.permissions().mode())));
    let (contents, mode) = read.map_err(|error| format!("--token-file {}: {error}", file.display()))?;
    Secret::from_file(&contents, mode).map_err(|wrong| format!("--token-file {}: {wrong}", file.display()))
}
