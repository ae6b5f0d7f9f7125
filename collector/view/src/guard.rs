//! Who is answered: only who uses a name of the server, only pages that came from here, only who knows the token.
//!
//! A page of somebody else in the same browser can send requests to loopback, also under a name of its own that it lets
//! point here. So the name and the port in `Host` have to be those of the server, and `Origin` where there is one. Other
//! users of the machine can reach loopback, too, and do not know the token.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{refusal::json, token::Token, visitors::Visitor};

/// What a page may load and do: what comes from here, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// What every answer says beside what it is.
const HEADERS: [(header::HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Where the token is shown for the first time.
const ENTRANCE: &str = "/api/enter";

/// The header that it is in then.
const SHOWN: &str = "x-spoor-token";

/// What lets somebody in.
#[derive(Debug)]
pub(crate) struct Guard {
    port: u16,
    is_encrypted: bool,
    /// As they are in `Host`, without the port.
    names: Vec<String>,
    token: Token,
}

/// The names that loopback has always: a page of somebody else is never called like this.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Why somebody is not let in.
type Reason = (StatusCode, &'static str);

impl Guard {
    pub(crate) fn new(port: u16, is_encrypted: bool, mut names: Vec<String>, token: Token) -> Self {
        names.extend(LOOPBACK.map(Into::into));
        Self { port, is_encrypted, names, token }
    }

    /// Whether a request comes from a page of ours or from the address line, and from who knows the token.
    fn admit(&self, request: &Request) -> Result<(), Reason> {
        if request.method() != Method::GET {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "there is only GET"));
        }
        let headers = request.headers();
        let told = only(headers, header::HOST).is_some_and(|host| self.is_host(host));
        let asked = request.uri().authority().is_none_or(|authority| self.is_host(authority.as_str()));
        if !told || !asked {
            return Err((StatusCode::MISDIRECTED_REQUEST, "this server has another name"));
        }
        let scheme = if self.is_encrypted { "https://" } else { "http://" };
        let is_own = |origin: &str| origin.strip_prefix(scheme).is_some_and(|host| self.is_host(host));
        if headers.contains_key(header::ORIGIN) && !only(headers, header::ORIGIN).is_some_and(is_own) {
            return Err((StatusCode::FORBIDDEN, "only pages of this server may ask"));
        }
        let path = request.uri().path();
        if !path.starts_with("/api/") {
            return Ok(());
        }
        let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
        if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return Err((StatusCode::FORBIDDEN, "only pages of this server may ask"));
        }
        if path == ENTRANCE {
            return Ok(());
        }
        if !self.has_cookie(headers) {
            return Err((StatusCode::UNAUTHORIZED, "open the address that the collector printed when it started"));
        }
        match request.extensions().get::<Arc<Visitor>>().is_none_or(|visitor| visitor.is_known()) {
            true => Ok(()),
            false => Err((StatusCode::SERVICE_UNAVAILABLE, "too many are connected: try again")),
        }
    }

    fn is_host(&self, host: &str) -> bool {
        let name = host.strip_suffix(&self.port.to_string()).and_then(|name| name.strip_suffix(':'));
        // Browsers leave out the port that is usual.
        let usual = if self.is_encrypted { 443 } else { 80 };
        let name = name.or_else(|| (self.port == usual).then_some(host));
        name.is_some_and(|name| self.names.iter().any(|own| own.eq_ignore_ascii_case(name)))
    }

    /// Cookies are the same for all ports of a name, so its name has the port. Browsers keep one that begins with `__Host-`
    /// only as it is given here: nobody else can set it.
    fn cookie(&self) -> String {
        format!("{}spoor-{}", if self.is_encrypted { "__Host-" } else { "" }, self.port)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie();
        let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
        let mut cookies = lines.flat_map(|line| line.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        cookies.any(|(key, value)| key == name && self.token.is(value))
    }

    /// Takes the token, and gives the cookie for it.
    pub(crate) fn enter(&self, headers: &HeaderMap) -> Response {
        if !only(headers, SHOWN).is_some_and(|shown| self.token.is(shown)) {
            return refuse((StatusCode::UNAUTHORIZED, "this is not the token of this server"));
        }
        let (name, token) = (self.cookie(), self.token.text());
        let place = if self.is_encrypted { "Path=/; Secure" } else { "Path=/api/" };
        let cookie = format!("{name}={token}; HttpOnly; SameSite=Strict; {place}");
        let mut response = json(&serde_json::json!({ "welcome": true }));
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        response
    }
}

/// Stands in front of everything.
pub(crate) async fn watch(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let is_asked = request.uri().path().starts_with("/api/");
    let mut response = match guard.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(reason) => refuse(reason),
    };
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if is_asked && response.status().is_client_error() && !is_json {
        response = refuse((response.status(), "it cannot be asked like this"));
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refuse((status, words): Reason) -> Response {
    (status, json(&serde_json::json!({ "error": words }))).into_response()
}

/// The value of a header that is there once.
fn only(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next()?.to_str().ok();
    value.filter(|_| values.next().is_none())
}
