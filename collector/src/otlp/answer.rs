//! What a receiver answers, and what is to be done then.

use std::time::Duration;

use hyper::{HeaderMap, StatusCode, header};

use super::fields;

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The receiver has the spans, but for some.
    Accepted { rejected: u64, trouble: Option<Trouble> },
    /// It does not take them, and would not if they were sent again.
    Refused(Trouble),
    /// They are to be sent again, after this time if it said so.
    Later { after: Option<Duration>, trouble: Trouble },
}

/// Something that people should know.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// By which it is known to have been said before.
    pub(super) kind: &'static str,
    pub(super) what: String,
}

impl Trouble {
    pub(super) fn new(kind: &'static str, what: impl Into<String>) -> Self {
        Self { kind, what: what.into() }
    }
}

/// Where credentials are given.
const CREDENTIALS: &str = "OTEL_EXPORTER_OTLP_HEADERS has the credentials, such as authorization=Bearer%20TOKEN";

/// How much of what a receiver says is shown.
const MOST_SAID: usize = 200;

/// An answer over HTTP.
pub(super) fn of_http(target: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Answer {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if status.is_success() {
        let is_otlp = kind.starts_with("application/x-protobuf") || body.is_empty();
        return match is_otlp {
            true => accepted(target, body),
            false => Answer::Refused(Trouble::new(
                "no receiver",
                format!("{target} answers {status} with {kind}: it is no OTLP receiver; spans are lost"),
            )),
        };
    }
    let said = match kind.starts_with("application/x-protobuf") {
        // A `google.rpc.Status`.
        true => shown(fields::bytes(body, 2).unwrap_or_default()),
        false => shown(body),
    };
    refused(target, status, after(headers), &said)
}

/// A status of HTTP that is no success.
fn refused(target: &str, status: StatusCode, after: Option<Duration>, said: &str) -> Answer {
    match status.as_u16() {
        429 | 502 | 503 | 504 => Answer::Later {
            after,
            trouble: Trouble::new("busy", format!("{target} takes no spans just now ({status}{said}); they wait")),
        },
        401 | 403 => Answer::Refused(credentials(target, &format!("{status}{said}"))),
        404 | 405 => Answer::Refused(Trouble::new(
            "no receiver",
            format!("{target} is not there ({status}{said}): is that an OTLP receiver? Spans are lost"),
        )),
        _ => {
            Answer::Refused(Trouble::new("refused", format!("{target} refuses spans ({status}{said}); they are lost")))
        }
    }
}

fn credentials(target: &str, said: &str) -> Trouble {
    Trouble::new("credentials", format!("{target} refuses the credentials ({said}); spans are lost. {CREDENTIALS}"))
}

/// What an `ExportTraceServiceResponse` says.
fn accepted(target: &str, response: &[u8]) -> Answer {
    let partial = fields::bytes(response, 1).unwrap_or_default();
    let (rejected, said) = (fields::number(partial, 1), shown(fields::bytes(partial, 2).unwrap_or_default()));
    let trouble = match (rejected, said.is_empty()) {
        (0, true) => None,
        (0, false) => Some(Trouble::new("warning", format!("{target} takes spans, and warns{said}"))),
        (some, _) => Some(Trouble::new(
            "rejected",
            format!("{target} has rejected some spans ({some} of a request{said}); they are lost"),
        )),
    };
    Answer::Accepted { rejected, trouble }
}

/// An answer over gRPC, with the headers that have its status: those before the message, or those behind it.
pub(super) fn of_grpc(target: &str, status: StatusCode, first: &HeaderMap, last: &HeaderMap, body: &[u8]) -> Answer {
    let kind = first.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if status != StatusCode::OK {
        return refused(target, status, after(first), "");
    }
    let find = |name: &str| last.get(name).or_else(|| first.get(name)).and_then(|value| value.to_str().ok());
    let code = find("grpc-status").and_then(|code| code.parse::<u32>().ok());
    let (Some(code), true) = (code, kind.starts_with("application/grpc")) else {
        let what = format!(
            "{target} does not answer as gRPC does (content-type {kind:?}): it is no OTLP receiver; spans are lost"
        );
        return Answer::Refused(Trouble::new("no receiver", what));
    };
    let message = decoded(find("grpc-message").unwrap_or_default());
    let said = format!("gRPC status {code}{}", shown(&message));
    let after = find("grpc-status-details-bin").and_then(retry_delay);
    match code {
        // A byte says whether the message is compressed, which was not asked for, and four how long it is.
        0 => accepted(target, body.get(5..).unwrap_or_default()),
        1 | 4 | 10 | 11 | 14 | 15 => Answer::Later { after, trouble: busy(target, &said) },
        8 if after.is_some() => Answer::Later { after, trouble: busy(target, &said) },
        7 | 16 => Answer::Refused(credentials(target, &said)),
        12 => Answer::Refused(Trouble::new(
            "no receiver",
            format!("{target} is not there ({said}): is that an OTLP receiver? Spans are lost"),
        )),
        _ => Answer::Refused(Trouble::new("refused", format!("{target} refuses spans ({said}); they are lost"))),
    }
}

fn busy(target: &str, said: &str) -> Trouble {
    Trouble::new("busy", format!("{target} takes no spans just now ({said}); they wait"))
}

/// How long a receiver wants to be left alone, in seconds.
fn after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The delay of a `google.rpc.RetryInfo` among the details of a `google.rpc.Status`, in base64.
fn retry_delay(details: &str) -> Option<Duration> {
    let status = base64(details)?;
    let detail = fields::fields(&status).find_map(|field| match field {
        (3, fields::Field::Bytes(any)) => {
            let is_retry = fields::bytes(any, 1)?.ends_with(b"google.rpc.RetryInfo");
            is_retry.then(|| fields::bytes(any, 2).unwrap_or_default())
        }
        _ => None,
    });
    let delay = fields::bytes(detail?, 1).unwrap_or_default();
    let nanos = u32::try_from(fields::number(delay, 2)).unwrap_or(0);
    Some(Duration::from_secs(fields::number(delay, 1)).saturating_add(Duration::from_nanos(nanos.into())))
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

/// A message as gRPC has it in a header, with `%XX` for bytes that a header cannot have.
fn decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(part.get(2..).unwrap_or_default().as_bytes());
            }
            None => bytes.extend_from_slice(part.as_bytes()),
        }
    }
    bytes
}

/// The first line of what a receiver says, behind a colon; nothing where it says nothing that can be shown.
fn shown(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let clean: String = line.chars().filter(|char| !char.is_control()).take(MOST_SAID).collect();
    if clean.is_empty() { clean } else { format!(": {clean}") }
}

#[cfg(test)]
mod tests;
