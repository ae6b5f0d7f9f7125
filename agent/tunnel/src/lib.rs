//! Encrypted connections from an agent to a collector: TLS over TCP, and QUIC.
//!
//! The shipper knows nothing of them: it writes to a socket, at whose other end a thread encrypts and sends. The library
//! in the target has none of this.

#![forbid(unsafe_code)]

mod connection;
mod failure;
mod verifier;

use std::{io, net::SocketAddr, os::unix::net::UnixStream, path::PathBuf, sync::Arc, thread};

use agent::ship::{Transport, Tunnel, TunnelState, Tunnelled};
use codec::access::{Pin, Secret};
use rustls::{
    ClientConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::TLS13,
};

use self::verifier::Verifier;

/// What a stream is said to carry, so that nobody takes it for something else.
pub const PROTOCOL: &[u8] = b"spoor";

/// Which collectors are trusted.
#[derive(Debug, Clone)]
pub enum Trust {
    /// The one with this certificate.
    Pin(Pin),
    /// Those with a certificate that was issued by one in this file.
    Authority(PathBuf),
}

/// What an encrypted connection needs.
#[derive(Debug, Clone)]
pub struct Setup {
    /// TLS or QUIC.
    pub transport: Transport,
    /// Whom to trust.
    pub trust: Trust,
    /// The name that the collector's certificate has to have; a pinned one may have any.
    pub name: String,
    /// The files of a certificate to show, and of its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// What to show before anything else.
    pub token: Option<Secret>,
}

/// A tunnel that encrypts.
#[derive(Debug, Clone)]
pub struct Encrypted(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    transport: Transport,
    config: Arc<ClientConfig>,
    verifier: Arc<Verifier>,
    name: ServerName<'static>,
    token: Option<Secret>,
}

impl Encrypted {
    /// Reads the files, or says what is wrong with them.
    pub fn new(setup: &Setup) -> Result<Self, String> {
        let provider = Arc::new(default_provider());
        let verifier = Arc::new(Verifier::new(&setup.trust, &provider)?);
        let name = ServerName::try_from(setup.name.clone())
            .map_err(|_| format!("{:?} cannot be the name in a certificate: --tls-name gives another", setup.name))?;
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let config = config.map_err(|error| error.to_string())?.dangerous();
        let config = config.with_custom_certificate_verifier(Arc::clone(&verifier) as _);
        let mut config = match &setup.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let wrong = |error| format!("{}: {error}", key.display());
                let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(error.to_string()))?;
                config
                    .with_client_auth_cert(certificates(certificate)?, key_der)
                    .map_err(|error| wrong(error.to_string()))?
            }
        };
        config.alpn_protocols = vec![PROTOCOL.into()];
        let (transport, token) = (setup.transport, setup.token.clone());
        Ok(Self(Arc::new(Parts { transport, config: Arc::new(config), verifier, name, token })))
    }
}

impl Tunnel for Encrypted {
    fn open(&self, to: SocketAddr) -> io::Result<Tunnelled> {
        let (socket, far_end) = UnixStream::pair()?;
        far_end.set_nonblocking(true)?;
        let state = Arc::new(TunnelState::default());
        let (parts, told) = (Arc::clone(&self.0), Arc::clone(&state));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("tunnel".into()).spawn(move || {
            let result = runtime.block_on(async {
                let mut far_end = tokio::net::UnixStream::from_std(far_end)?;
                let result = parts.carry(to, &mut far_end, &told).await;
                // Before the end of the socket is seen.
                if let Err(error) = &result {
                    told.fail(io::Error::new(error.kind(), error.to_string()));
                }
                result
            });
            drop(result);
        })?;
        Ok(Tunnelled { socket, state })
    }
}

/// The certificates in a file.
fn certificates(file: &PathBuf) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read.map_err(|error| wrong(&error))? {
        none if none.is_empty() => Err(wrong(&"there is no certificate in it (expected PEM)")),
        some => Ok(some),
    }
}
