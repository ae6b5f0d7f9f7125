//! Who is answered: only this machine, only pages that came from here, only who knows the token.
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

use crate::{refusal::json, token::Token};

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
    token: Token,
}

/// Why somebody is not let in.
type Reason = (StatusCode, &'static str);

impl Guard {
    pub(crate) fn new(port: u16, token: Token) -> Self {
        Self { port, token }
    }

    /// Whether a request comes from this machine's browser, from a page of ours or from the address line.
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
        let is_own = |origin: &str| origin.strip_prefix("http://").is_some_and(|host| self.is_host(host));
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
        if path != ENTRANCE && !self.has_cookie(headers) {
            return Err((StatusCode::UNAUTHORIZED, "open the address that `collector view` printed"));
        }
        Ok(())
    }

    fn is_host(&self, host: &str) -> bool {
        let name = host.strip_suffix(&self.port.to_string()).and_then(|name| name.strip_suffix(':'));
        matches!(name, Some("127.0.0.1" | "localhost" | "[::1]"))
    }

    /// Cookies are the same for all ports of a name, so its name has the port.
    fn cookie(&self) -> String {
        format!("spoor-{}", self.port)
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
        let cookie = format!("{}={}; HttpOnly; SameSite=Strict; Path=/api/", self.cookie(), self.token.text());
        let mut response = json(&serde_json::json!({ "welcome": true }));
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        response
    }
}

/// Stands in front of everything.
pub(crate) async fn watch(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = match guard.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(reason) => refuse(reason),
    };
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
