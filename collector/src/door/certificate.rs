//! The collector's certificate: read, or made once and kept.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use codec::access::Pin;
use ring::{
    digest::{SHA256, digest},
    hmac::{self, HMAC_SHA256},
};
use rustls::{
    AlertDescription, RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    version::TLS13,
};

/// What a stream is said to carry, so that nobody takes it for something else.
const PROTOCOL: &[u8] = b"spoor";

/// The file of a certificate that the collector made, with its key.
const OWN: &str = "collector.pem";

/// A certificate, and how it is used.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) pin: Pin,
    pub(crate) config: Arc<ServerConfig>,
    /// A secret that is the same as long as the key is.
    pub(crate) secret: hmac::Tag,
}

impl Certificate {
    /// Reads a certificate and its key, and the authorities that issue those of senders.
    pub(super) fn read(certificate: &Path, key: &Path, authorities: Option<&Path>) -> Result<Self> {
        let chain = certificates(certificate)?;
        let key_der = PrivateKeyDer::from_pem_file(key).with_context(|| format!("{}: no key in PEM", key.display()))?;
        let secret = hmac::sign(&hmac::Key::new(HMAC_SHA256, key_der.secret_der()), b"spoor connection ids");
        let pin = chain.first().map(|first| digest(&SHA256, first));
        let pin = pin.and_then(|hash| <[u8; 32]>::try_from(hash.as_ref()).ok()).map(Pin);
        let pin = pin.with_context(|| format!("{}: no certificate", certificate.display()))?;
        let provider = Arc::new(default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13])?;
        let config = match authorities {
            None => config.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(file)? {
                    roots.add(root).with_context(|| format!("{}", file.display()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                config.with_client_cert_verifier(verifier.with_context(|| format!("{}", file.display()))?)
            }
        };
        let config = config.with_single_cert(chain, key_der);
        let mut config = config.with_context(|| format!("{} and {}", certificate.display(), key.display()))?;
        config.alpn_protocols = vec![PROTOCOL.into()];
        // QUIC wants all or nothing; there is nothing to send early.
        config.max_early_data_size = 0;
        Ok(Self { pin, config: Arc::new(config), secret })
    }

    /// The certificate that the collector made, now or before.
    pub(super) fn own(authorities: Option<&Path>) -> Result<Self> {
        let file =
            state_folder().context("--tls self: no place to keep the certificate (set HOME or XDG_STATE_HOME)")?;
        let file = file.join(OWN);
        match make(&file) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.with_context(|| format!("--tls self: cannot make {}", file.display()))?,
        }
        Self::read(&file, &file, authorities)
    }
}

/// Where the collector keeps what is to last.
fn state_folder() -> Option<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(base.join("spoor"))
}

/// Makes a certificate, unless there is one. Nobody sees half of it, and nobody else reads it.
fn make(file: &Path) -> io::Result<()> {
    if file.exists() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let names = vec!["spoor-collector".into(), "localhost".into()];
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let folder = file.parent().unwrap_or(file);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let partial = folder.join(format!("{OWN}.{}", std::process::id()));
    let linked = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial).and_then(|mut out| {
        out.write_all(made.cert.pem().as_bytes())?;
        out.write_all(made.signing_key.serialize_pem().as_bytes())?;
        out.sync_all()?;
        fs::hard_link(&partial, file)
    });
    fs::remove_file(&partial)?;
    linked
}

/// The certificates in a file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read.with_context(|| format!("{}: no certificates in PEM", file.display()))? {
        none if none.is_empty() => bail!("{}: there is no certificate in it (expected PEM)", file.display()),
        some => Ok(some),
    }
}

/// Why a TLS handshake failed.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => describe_tls(error),
        None => format!("it ended the TLS handshake ({error})"),
    }
}

fn describe_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::AlertReceived(alert) => describe_alert(*alert),
        rustls::Error::NoCertificatesPresented => "it showed no certificate, which --tls-ca demands".into(),
        rustls::Error::InvalidCertificate(wrong) => format!("its certificate is not accepted: {wrong}"),
        other => format!("the TLS handshake failed: {other}"),
    }
}

/// What the other side did not like.
pub(crate) fn describe_alert(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::AccessDenied
        | Alert::BadCertificate
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA => {
            format!("it does not accept this collector's certificate ({alert:?})")
        }
        other => format!("it ended the TLS handshake ({other:?})"),
    }
}
