//! Where a receiver is.

use std::fmt;

use hyper::{Uri, http::uri::Scheme};

/// The path of a request over HTTP, behind what the user gave.
const HTTP_PATH: &str = "/v1/traces";

/// The path of a call over gRPC.
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A receiver, and how it is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(super) is_grpc: bool,
    pub(super) is_tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// The path of requests.
    pub(super) path: String,
    /// As the user gave it.
    url: String,
}

impl Endpoint {
    /// Reads `http://HOST:PORT`, or `https://…`, with a path before that of the requests over HTTP if wanted.
    pub(crate) fn parse(is_grpc: bool, url: &str) -> Result<Self, String> {
        let port = if is_grpc { 4317 } else { 4318 };
        let wrong = |why: &str| {
            let name = if is_grpc { "otlp+grpc" } else { "otlp" };
            format!("expected {name}:http://HOST:{port} or {name}:https://HOST:{port}: {why}")
        };
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("{error}")))?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(wrong("it begins with neither http:// nor https://")),
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(wrong("credentials are given in OTEL_EXPORTER_OTLP_HEADERS"));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let has_bad_port =
            authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']')) && uri.port().is_none();
        if host.is_empty() || has_bad_port || uri.query().is_some() {
            return Err(wrong("there is no host, its port is no port, or there is a `?` in it"));
        }
        let base = uri.path().trim_end_matches('/');
        if is_grpc && !base.is_empty() {
            return Err(wrong("gRPC has a path of its own"));
        }
        let path = match (is_grpc, base.ends_with(HTTP_PATH)) {
            (true, _) => GRPC_PATH.to_owned(),
            (false, true) => base.to_owned(),
            (false, false) => format!("{base}{HTTP_PATH}"),
        };
        let port = uri.port_u16().unwrap_or(port);
        Ok(Self { is_grpc, is_tls, host, port, path, url: url.into() })
    }

    /// Host and port, as they are named in requests.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Where requests go to.
    pub(super) fn target(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }
}

impl fmt::Display for Endpoint {
    /// As a sink is named.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "otlp{}:{}", if self.is_grpc { "+grpc" } else { "" }, self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_where_the_standard_says() {
        let target = |is_grpc, url| Endpoint::parse(is_grpc, url).map(|endpoint| endpoint.target());
        for (url, expected) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("http://localhost", "http://localhost:4318/v1/traces"),
            ("https://[::1]:1/otlp/", "https://[::1]:1/otlp/v1/traces"),
            ("http://10.0.0.1:4318/v1/traces", "http://10.0.0.1:4318/v1/traces"),
        ] {
            assert_eq!(target(false, url), Ok(expected.into()));
        }
        assert_eq!(target(true, "https://a"), Ok(format!("https://a:4317{GRPC_PATH}")));
        for url in
            ["", "localhost:4318", "ftp://a", "http://", "http://a:x", "http://a:99999", "http://u:p@a", "http://a?b"]
        {
            let said = target(false, url).expect_err(url);
            assert!(said.contains("expected otlp:http://HOST:4318"), "{said}");
        }
        assert!(target(true, "http://a/path").is_err());
    }
}
