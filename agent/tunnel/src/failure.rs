//! Why an encrypted connection failed, in words.

use std::io::{self, ErrorKind};

use quinn::ConnectionError;
use rustls::AlertDescription;

/// An error that can be shown as it is.
pub(crate) fn denied(why: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why.into())
}

/// What became of a TLS connection.
pub(crate) fn of_tls(error: io::Error, shaking_hands: bool) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => denied(of_alert(*alert)),
        Some(rustls::Error::InvalidMessage(_)) => denied(NO_TLS),
        Some(other) => denied(other.to_string()),
        None if shaking_hands && matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            denied(NO_TLS)
        }
        None => error,
    }
}

const NO_TLS: &str = "it does not answer in TLS: was the collector started with --tls?";

/// What became of a QUIC connection.
pub(crate) fn of_quic(error: &ConnectionError) -> io::Error {
    // A code for each alert of TLS.
    const ALERTS: u64 = 0x100;
    match error {
        ConnectionError::TimedOut => ErrorKind::TimedOut.into(),
        ConnectionError::Reset => ErrorKind::ConnectionReset.into(),
        ConnectionError::LocallyClosed => ErrorKind::NotConnected.into(),
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            code @ ALERTS..=0x1ff => denied(of_alert(AlertDescription::from((code - ALERTS) as u8))),
            _ => io::Error::new(ErrorKind::ConnectionAborted, close.to_string()),
        },
        other => denied(other.to_string()),
    }
}

/// What the collector did not like.
fn of_alert(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired => {
            "the collector wants a certificate: --tls-cert and --tls-key give one, issued by its --tls-ca".into()
        }
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA => format!("the collector refuses the certificate of --tls-cert ({alert:?})"),
        other => format!("the collector ended the handshake ({other:?})"),
    }
}
