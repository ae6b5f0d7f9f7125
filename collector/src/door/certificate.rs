//! The collector's certificate: read, or made once and kept.

use std::{
    env,
    fmt::{self, Display, Formatter},
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
    AlertDescription, CertificateError, RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    version::TLS13,
};

use super::renewed::Renewed;
use crate::args::{CertificateArgs, TlsMode};

/// What a stream is said to carry, so that nobody takes it for something else.
const PROTOCOL: &[u8] = b"spoor";

/// The same of pages.
const PAGES: &[u8] = b"http/1.1";

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

/// Where a certificate and its key are.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Files {
    /// Those that the arguments name, if they do: the ones that the collector made, now or before, or others.
    pub(crate) fn new(args: &CertificateArgs) -> Result<Option<Self>> {
        match (args.tls, &args.tls_cert, &args.tls_key) {
            (_, Some(certificate), Some(key)) => Ok(Some(Self { certificate: certificate.clone(), key: key.clone() })),
            (Some(TlsMode::Own), ..) => Self::own().map(Some),
            _ => Ok(None),
        }
    }

    fn own() -> Result<Self> {
        let file =
            state_folder().context("--tls self: no place to keep the certificate (set HOME or XDG_STATE_HOME)")?;
        let file = file.join(OWN);
        match make(&file) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.with_context(|| format!("--tls self: cannot make {}", file.display()))?,
        }
        Ok(Self { certificate: file.clone(), key: file })
    }

    /// Reads them: the certificates, the key, and what the first certificate is known by.
    pub(super) fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, Pin)> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.with_context(|| format!("{}: no key in PEM", self.key.display()))?;
        let pin = chain.first().map(|first| digest(&SHA256, first));
        let pin = pin.and_then(|hash| <[u8; 32]>::try_from(hash.as_ref()).ok()).map(Pin);
        let pin = pin.with_context(|| format!("{}: no certificate", self.certificate.display()))?;
        Ok((chain, key, pin))
    }

    /// What pages are encrypted with, and what its certificate is known by. It is read again when the files have changed.
    pub(crate) fn for_pages(self) -> Result<(Arc<ServerConfig>, Pin)> {
        let provider = Arc::new(default_provider());
        let (renewed, pin) = Renewed::read(self, Arc::clone(&provider))?;
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(renewed));
        config.alpn_protocols = vec![PAGES.into()];
        Ok((Arc::new(config), pin))
    }
}

impl Certificate {
    /// Reads a certificate and its key, and the authorities that issue those of senders.
    pub(super) fn read(files: &Files, authorities: Option<&Path>) -> Result<Self> {
        let (chain, key, pin) = files.read()?;
        let secret = hmac::sign(&hmac::Key::new(HMAC_SHA256, key.secret_der()), b"spoor connection ids");
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
        let config = config.with_single_cert(chain, key);
        let mut config = config.with_context(|| files.to_string())?;
        config.alpn_protocols = vec![PROTOCOL.into()];
        // QUIC wants all or nothing; there is nothing to send early.
        config.max_early_data_size = 0;
        Ok(Self { pin, config: Arc::new(config), secret })
    }
}

impl Display for Files {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", self.certificate.display(), self.key.display())
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
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
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
        rustls::Error::InvalidCertificate(wrong) => {
            format!("its certificate is not accepted: {}", describe_certificate(wrong))
        }
        other => format!("the TLS handshake failed: {other}"),
    }
}

/// What is wrong with a certificate.
pub(crate) fn describe_certificate(wrong: &CertificateError) -> String {
    match wrong {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet (are both clocks right?)".into()
        }
        CertificateError::UnknownIssuer => "it was not issued by an authority of --tls-ca".into(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".into()
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is that of an authority, which issues certificates and has none to show itself".into()
        }
        other => other.to_string(),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_certificate_is_told_in_words() {
        let other = CertificateError::Other(OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity"))));
        assert!(describe_certificate(&other).contains("that of an authority"));
        for wrong in [CertificateError::Expired, CertificateError::UnknownIssuer, CertificateError::NotValidForName] {
            let (words, name) = (describe_certificate(&wrong), format!("{wrong:?}"));
            assert!(words.starts_with("it ") && !words.contains(&name), "{words}");
        }
    }
}
