//! The door: who gets in, and what the others are told.

mod certificate;
mod renewed;
mod token;

use std::{
    io::ErrorKind,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use codec::{
    access::{Pin, Secret},
    heph::Encode,
    profile::{ProfileOption, Refused},
};
use rustls::ServerConfig;
use subtle::ConstantTimeEq;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

pub(crate) use self::certificate::{Certificate, Files, certificates, describe_alert, describe_certificate};
use self::token::Shown;
use crate::{args::AccessArgs, notices::Notices};

/// How long a sender may take to prove who it is.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// How long somebody who was refused is listened to, so that it hears why.
const LAST_TIME: Duration = Duration::from_secs(1);

/// What plain senders are told.
pub(crate) const ENCRYPTED_ONLY: &str =
    "this collector takes encrypted connections only: use --transport tcp or quic with --tls-pin or --tls-ca";

/// What senders have to show. A door without a certificate is open to all.
#[derive(Debug, Default)]
pub(crate) struct Door {
    files: Option<Files>,
    certificate: Option<Certificate>,
    token: Option<Secret>,
    /// Whether senders have to show certificates.
    wants_certificates: bool,
}

/// Why somebody did not get in.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It did not encrypt.
    Plain,
    /// It encrypts, and the collector does not.
    Encrypted(&'static str),
    /// One side did not accept the other, or something else came of it.
    Handshake(String),
    /// It showed no token.
    NoToken,
    /// It showed another.
    WrongToken,
}

/// How many did not get in.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    pub(crate) plain: AtomicU64,
    pub(crate) encrypted: AtomicU64,
    pub(crate) handshakes: AtomicU64,
    pub(crate) tokens: AtomicU64,
    /// Who was named last, and when.
    named: Mutex<Option<(String, Instant)>>,
}

/// For how long somebody who comes again and again is not named again.
const NAMED_TIME: Duration = Duration::from_secs(10);

impl Refusals {
    /// Counts somebody, and says so.
    pub(crate) fn add(&self, refusal: &Refusal, from: &str, notices: &Notices) {
        let (counter, why) = match refusal {
            Refusal::Plain => (&self.plain, "it does not encrypt, and this collector wants TLS or QUIC"),
            Refusal::Encrypted(what) => (&self.encrypted, *what),
            Refusal::Handshake(why) => (&self.handshakes, why.as_str()),
            Refusal::NoToken => (&self.tokens, "it showed no token"),
            Refusal::WrongToken => (&self.tokens, "it showed a wrong token"),
        };
        counter.fetch_add(1, Relaxed);
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if !named.as_ref().is_some_and(|(last, at)| last == from && at.elapsed() < NAMED_TIME) {
            *named = Some((from.into(), Instant::now()));
            notices.warn(format!("refused {from}: {why}"));
        }
    }
}

impl Door {
    /// Reads, or makes, what the arguments name.
    pub(crate) fn new(args: &AccessArgs) -> Result<Self> {
        let files = Files::new(&args.certificate)?;
        let read = |files: &Files| Certificate::read(files, args.tls_ca.as_deref());
        let certificate = files.as_ref().map(read).transpose()?;
        if certificate.is_none() && args.tls_ca.is_some() {
            bail!("--tls-ca is about TLS: give --tls self, or --tls-cert and --tls-key, too");
        }
        let token = args.token_file.as_deref().map(secret).transpose()?;
        if token.is_some() && certificate.is_none() {
            bail!("a token travels only encrypted: give --tls self, or --tls-cert and --tls-key, with --token-file");
        }
        Ok(Self { files, certificate, token, wants_certificates: args.tls_ca.is_some() })
    }

    /// Whether anybody gets in who can reach it.
    pub(crate) fn is_open(&self) -> bool {
        self.token.is_none() && !self.wants_certificates
    }

    /// What agents know the collector by.
    pub(crate) fn pin(&self) -> Option<Pin> {
        self.certificate.as_ref().map(|certificate| certificate.pin)
    }

    /// What QUIC needs, where there is a certificate.
    pub(crate) fn quic(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// What TLS needs, where there is a certificate.
    pub(crate) fn tls(&self) -> Option<TlsAcceptor> {
        self.certificate.as_ref().map(|certificate| TlsAcceptor::from(Arc::clone(&certificate.config)))
    }

    /// What the viewer encrypts with, where there is a certificate. Browsers need none of their own: they have its token.
    pub(crate) fn for_pages(&self) -> Result<Option<Arc<ServerConfig>>> {
        let files = self.files.clone();
        Ok(files.map(Files::for_pages).transpose()?.map(|(config, _)| config))
    }

    /// Makes an encrypted connection of one that has sent its first bytes.
    pub(crate) async fn shake_hands(tls: TlsAcceptor, stream: TcpStream) -> Result<TlsStream<TcpStream>, Refusal> {
        match timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(Refusal::Handshake(certificate::describe(&error))),
            Err(_) => Err(Refusal::Handshake("it did not finish the TLS handshake in time".into())),
        }
    }

    /// Looks for the token in front of everything else. Returns what came behind it, or instead of it.
    pub(crate) async fn admit(&self, reader: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, Refusal> {
        let mut first = Vec::new();
        // What is not there in time, or not at all, is not there.
        let shown = timeout(HANDSHAKE_TIME, token::read(reader, &mut first)).await.unwrap_or(Shown::Nothing);
        let Some(token) = &self.token else {
            return Ok(if let Shown::Token { end, .. } = shown { first.split_off(end) } else { first });
        };
        let Shown::Token { value, end } = shown else { return Err(Refusal::NoToken) };
        let right = first.get(value).unwrap_or_default().ct_eq(token.bytes());
        if bool::from(right) { Ok(first.split_off(end)) } else { Err(Refusal::WrongToken) }
    }
}

/// Tells somebody why it did not get in, and waits for a moment until it has heard that.
pub(crate) async fn turn_away(
    refusal: &Refusal,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
) {
    let reason = match refusal {
        Refusal::Plain => ENCRYPTED_ONLY,
        Refusal::NoToken => "the collector wants a token: give --token-file",
        Refusal::WrongToken => "the token of --token-file is not the collector's",
        Refusal::Encrypted(_) | Refusal::Handshake(_) => return,
    };
    let mut rest = [0; 4096];
    // Where something is left unread, the system ends the connection before the reason was read.
    let last = async {
        if writer.write_all(&packet(reason)).await.is_ok() && writer.shutdown().await.is_ok() {
            while reader.read(&mut rest).await.is_ok_and(|read| read > 0) {}
        }
    };
    _ = timeout(LAST_TIME, last).await;
}

/// The packet that says why.
pub(crate) fn packet(reason: &str) -> Vec<u8> {
    let mut packet = Vec::new();
    // It is short.
    _ = ProfileOption::from(Refused { reason }).encode(&mut packet);
    packet
}

/// The token in a file.
pub(crate) fn secret(file: &Path) -> Result<Secret> {
    let read = std::fs::read(file).and_then(|contents| Ok((contents, file.metadata()?.permissions().mode())));
    let hint = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => " (make it with `umask 077; openssl rand -hex 32 > FILE`)",
        _ => "",
    };
    let (contents, mode) = read.map_err(|error| {
        let hint = hint(&error);
        anyhow::Error::new(error).context(format!("--token-file {}{hint}", file.display()))
    })?;
    Secret::from_file(&contents, mode)
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("--token-file {}", file.display()))
}
