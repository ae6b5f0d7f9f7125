//! A connection to a receiver, made anew when it is gone.

use std::{fs, io, io::Write as _, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use flate2::{Compression, write::GzEncoder};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    HeaderMap, Request, Version,
    body::{Bytes, Incoming},
    client::conn::{http1, http2},
    header,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, crypto::ring::default_provider, pki_types::ServerName};
use tokio::{net::TcpStream, runtime::Runtime, time::timeout};
use tokio_rustls::TlsConnector;

use super::{
    answer::{self, Answer, Trouble},
    endpoint::Endpoint,
    environment::Environment,
};
use crate::door;

/// The most of an answer that is read.
const MOST_ANSWER_BYTES: usize = 64 << 10;

/// Where systems keep the certificates of those whom they trust.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Speaks to a receiver.
pub(super) struct Client {
    endpoint: Endpoint,
    target: String,
    headers: HeaderMap,
    gzip: bool,
    timeout: Duration,
    tls: Option<TlsConnector>,
    runtime: Runtime,
    connection: Option<Connection>,
}

enum Connection {
    Http(http1::SendRequest<Full<Bytes>>),
    Grpc(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    pub(super) fn new(endpoint: &Endpoint, environment: Environment) -> Result<Self> {
        let Environment { headers, certificate, timeout, gzip } = environment;
        let tls = if endpoint.is_tls { Some(connector(endpoint, certificate.as_deref())?) } else { None };
        // Its tasks run while somebody waits for an answer, and no longer.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start a runtime")?;
        let (endpoint, target) = (endpoint.clone(), endpoint.target());
        Ok(Self { endpoint, target, headers, gzip, timeout, tls, runtime, connection: None })
    }

    /// A request as it is sent, however often.
    pub(super) fn encode(&self, request: &[u8]) -> Bytes {
        let packed = match self.gzip {
            true => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                // Into memory, which cannot fail.
                encoder.write_all(request).and_then(|()| encoder.finish()).unwrap_or_default()
            }
            false => request.to_vec(),
        };
        if !self.endpoint.is_grpc {
            return packed.into();
        }
        let length = u32::try_from(packed.len()).unwrap_or(u32::MAX);
        let head = [&[u8::from(self.gzip)], &length.to_be_bytes()[..]].concat();
        [head, packed].concat().into()
    }

    /// Sends a request, and waits for the answer.
    pub(super) fn send(&mut self, body: Bytes) -> Answer {
        let (runtime, connection) = (&self.runtime, self.connection.take());
        let had_one = connection.is_some();
        let exchange = |connection| {
            let exchange = self.exchange(connection, body.clone());
            runtime.block_on(async { timeout(self.timeout, exchange).await })
        };
        let mut result = exchange(connection);
        // A connection that was idle may have been closed by then, which says nothing of the receiver.
        if had_one && matches!(result, Ok(Err(_))) {
            result = exchange(None);
        }
        match result {
            Ok(Ok((answer, connection))) => {
                self.connection = connection;
                answer
            }
            Ok(Err(trouble)) => Answer::Later { after: None, trouble },
            Err(_) => {
                let what = format!("{} has not answered within {:?}; spans wait", self.target, self.timeout);
                Answer::Later { after: None, trouble: Trouble::new("silent", what) }
            }
        }
    }

    /// One request and its answer, over this connection or a new one.
    async fn exchange(
        &self,
        connection: Option<Connection>,
        body: Bytes,
    ) -> Result<(Answer, Option<Connection>), Trouble> {
        let connection = match connection {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let broken = |error: &dyn std::error::Error| {
            let why = innermost(error);
            Trouble::new(
                "broken",
                format!("{} does not answer as an OTLP receiver does: {why}; spans wait", self.target),
            )
        };
        let request = self.request(body).map_err(|error| broken(&error))?;
        let (response, connection) = match connection {
            Connection::Http(mut sender) => {
                let response = match sender.ready().await {
                    Ok(()) => sender.send_request(request).await,
                    Err(error) => Err(error),
                };
                (response, Connection::Http(sender))
            }
            Connection::Grpc(mut sender) => {
                let response = match sender.ready().await {
                    Ok(()) => sender.send_request(request).await,
                    Err(error) => Err(error),
                };
                (response, Connection::Grpc(sender))
            }
        };
        let response = response.map_err(|error| broken(&error))?;
        let (head, body): (_, Incoming) = response.into_parts();
        let collected = Limited::new(body, MOST_ANSWER_BYTES).collect().await.map_err(|error| broken(&*error))?;
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let bytes = collected.to_bytes();
        let answer = match self.endpoint.is_grpc {
            true => answer::of_grpc(&self.target, head.status, &head.headers, &trailers, &bytes),
            false => answer::of_http(&self.target, head.status, &head.headers, &bytes),
        };
        Ok((answer, Some(connection)))
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let endpoint = &self.endpoint;
        let mut request = match endpoint.is_grpc {
            true => Request::post(&self.target)
                .version(Version::HTTP_2)
                .header(header::CONTENT_TYPE, "application/grpc")
                .header(header::TE, "trailers"),
            false => Request::post(&endpoint.path)
                .header(header::HOST, endpoint.authority())
                .header(header::CONTENT_TYPE, "application/x-protobuf"),
        };
        request = request.header(header::USER_AGENT, concat!("spoor/", env!("CARGO_PKG_VERSION")));
        if self.gzip {
            request = request.header(if endpoint.is_grpc { "grpc-encoding" } else { "content-encoding" }, "gzip");
        }
        let mut request = request.body(Full::new(body))?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }

    async fn connect(&self) -> Result<Connection, Trouble> {
        let (endpoint, target) = (&self.endpoint, &self.target);
        let unreachable = |error: &dyn std::error::Error| {
            Trouble::new("unreachable", format!("cannot reach {target}: {}; spans wait", innermost(error)))
        };
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await;
        let stream = stream.map_err(|error| unreachable(&error))?;
        // A request is written at once.
        _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return handshake(stream, endpoint.is_grpc).await.map_err(|error| unreachable(&error));
        };
        let untrusted = |error: io::Error| {
            let what = format!(
                "TLS with {target} fails: {}; spans wait. OTEL_EXPORTER_OTLP_CERTIFICATE has the file of whom to trust",
                innermost(&error)
            );
            Trouble::new("tls", what)
        };
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| untrusted(io::Error::other(error)))?;
        let stream = tls.connect(name, stream).await.map_err(untrusted)?;
        handshake(stream, endpoint.is_grpc).await.map_err(|error| unreachable(&error))
    }
}

/// Begins to speak, on a task that goes on for as long as the connection does.
async fn handshake<S>(stream: S, is_grpc: bool) -> hyper::Result<Connection>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(stream);
    // Whoever waits for an answer is told if the connection fails.
    Ok(match is_grpc {
        true => {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(connection);
            Connection::Grpc(sender)
        }
        false => {
            let (sender, connection) = http1::handshake(stream).await?;
            tokio::spawn(connection);
            Connection::Http(sender)
        }
    })
}

/// Trusts the authorities in a file, or those whom the system trusts.
fn connector(endpoint: &Endpoint, file: Option<&Path>) -> Result<TlsConnector> {
    let system = || SYSTEM_ROOTS.iter().map(Path::new).find(|file| fs::exists(file).unwrap_or(false));
    let Some(file) = file.or_else(system) else {
        bail!("OTEL_EXPORTER_OTLP_CERTIFICATE has no file of whom to trust, and the system has none either");
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(door::certificates(file)?);
    let config =
        ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    let protocol: &[u8] = if endpoint.is_grpc { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// What an error comes from, which says most.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
