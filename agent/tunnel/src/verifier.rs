//! Whether a collector is who it should be.

use std::sync::{Arc, Mutex, PoisonError};

use codec::access::Pin;
use ring::digest::{SHA256, digest};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::{Trust, certificates};

/// Checks certificates, and remembers what was wrong with the last.
#[derive(Debug)]
pub(crate) struct Verifier {
    trusted: Trusted,
    provider: Arc<CryptoProvider>,
    wrong: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Trusted {
    Pin(Pin),
    Authority(Arc<WebPkiServerVerifier>),
}

impl Verifier {
    pub(crate) fn new(trust: &Trust, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let trusted = match trust {
            Trust::Pin(pin) => Trusted::Pin(*pin),
            Trust::Authority(file) => {
                let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
                let mut roots = RootCertStore::empty();
                for certificate in certificates(file)? {
                    roots.add(certificate).map_err(|error| wrong(&error))?;
                }
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
                Trusted::Authority(verifier.build().map_err(|error| wrong(&error))?)
            }
        };
        Ok(Self { trusted, provider: Arc::clone(provider), wrong: Mutex::default() })
    }

    /// What was wrong with the certificate that was seen last.
    pub(crate) fn take_wrong(&self) -> Option<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn refuse(&self, why: String, error: CertificateError) -> Error {
        *self.wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        Error::InvalidCertificate(error)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trusted {
            Trusted::Pin(pin) => {
                let found = digest(&SHA256, certificate);
                if found.as_ref() == pin.0 {
                    return Ok(ServerCertVerified::assertion());
                }
                let found = <[u8; 32]>::try_from(found.as_ref()).map(Pin).unwrap_or(Pin([0; 32]));
                let why = format!(
                    "its certificate is {found}, which is not that of --tls-pin: is it the right collector? It prints \
                     its own when it starts"
                );
                Err(self.refuse(why, CertificateError::ApplicationVerificationFailure))
            }
            Trusted::Authority(verifier) => {
                let verified = verifier.verify_server_cert(certificate, intermediates, name, ocsp, now);
                verified.map_err(|error| match error {
                    Error::InvalidCertificate(wrong) => {
                        let name = name.to_str();
                        self.refuse(format!("its certificate is refused: {}", describe(&wrong, &name)), wrong)
                    }
                    other => other,
                })
            }
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

/// What is wrong with a certificate, and what to do.
fn describe(error: &CertificateError, name: &str) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired, and the collector needs a new one".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet (are both clocks right?)".into()
        }
        CertificateError::UnknownIssuer => "it was not issued by an authority of --tls-ca".into(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("it is not for {name} (--tls-name says what else to expect)")
        }
        CertificateError::Other(OtherError(error)) => error.to_string(),
        other => other.to_string(),
    }
}
