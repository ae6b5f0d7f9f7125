//! Whether a collector that is asked is who it should be.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use codec::access::Pin;
use ring::digest::{SHA256, digest};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring::default_provider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    version::TLS13,
};

use crate::{args::AskingArgs, door};

/// Trusts what the arguments say.
pub(super) fn config(args: &AskingArgs) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13])?;
    let mut config = match (args.tls_pin, &args.tls_ca) {
        (Some(pin), _) => {
            let verifier = Arc::new(Pinned { pin, provider });
            config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
        (None, Some(file)) => {
            let mut roots = RootCertStore::empty();
            for root in door::certificates(file)? {
                roots.add(root).with_context(|| format!("{}", file.display()))?;
            }
            config.with_root_certificates(roots).with_no_client_auth()
        }
        (None, None) => bail!(
            "whom to trust? Give --tls-pin with what the collector printed behind `certificate`, or --tls-ca with a file of \
             authorities"
        ),
    };
    config.alpn_protocols = vec![b"http/1.1".into()];
    Ok(Arc::new(config))
}

/// What went wrong on the way.
pub(super) fn describe(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        Some(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
            "its certificate is not that of --tls-pin".into()
        }
        Some(Error::InvalidCertificate(wrong)) => {
            format!("its certificate is refused: {}", door::describe_certificate(wrong))
        }
        Some(Error::InvalidMessage(_)) => "it does not speak TLS: is it http, or no viewer of a collector?".into(),
        Some(other) => format!("the TLS handshake failed: {other}"),
        None => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "it does not answer in time".into(),
            ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => "it ended the connection".into(),
            _ => error.to_string(),
        },
    }
}

/// Trusts one certificate, whoever issued it and whatever name is in it.
#[derive(Debug)]
struct Pinned {
    pin: Pin,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match digest(&SHA256, certificate).as_ref() == self.pin.0 {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
