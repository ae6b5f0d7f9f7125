//! What users say of exporting in the variables that all exporters of OpenTelemetry know.

use std::{env, path::PathBuf, time::Duration};

use anyhow::{Result, anyhow, bail};
use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};
use sinks::OtlpOptions;

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How requests are sent.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) headers: HeaderMap,
    /// Whom to trust, instead of those whom the system trusts.
    pub(super) certificate: Option<PathBuf>,
    pub(super) timeout: Duration,
    pub(super) gzip: bool,
}

impl Environment {
    pub(super) fn read() -> Result<Self> {
        let timeout = match find("TIMEOUT") {
            Some((name, text)) => {
                let ms = text.parse().ok().filter(|ms| *ms > 0);
                Duration::from_millis(ms.ok_or_else(|| anyhow!("{name}: expected milliseconds, not {text}"))?)
            }
            None => TIMEOUT,
        };
        let gzip = match find("COMPRESSION") {
            Some((_, text)) if text == "none" => false,
            Some((name, text)) if text != "gzip" => bail!("{name}: expected gzip or none, not {text}"),
            _ => true,
        };
        let mut headers = HeaderMap::new();
        if let Some((name, text)) = find("HEADERS") {
            for pair in pairs(&name, &text)? {
                let header = HeaderName::try_from(&pair.0).map_err(|_| anyhow!("{name}: {} is no header", pair.0))?;
                let mut value = HeaderValue::try_from(&pair.1)
                    .map_err(|_| anyhow!("{name}: the value of {} cannot be sent in a header", pair.0))?;
                value.set_sensitive(true);
                headers.insert(header, value);
            }
        }
        Ok(Self { headers, certificate: find("CERTIFICATE").map(|(_, file)| file.into()), timeout, gzip })
    }
}

/// What is exported, and by which names.
pub(crate) fn options(min: Duration) -> Result<OtlpOptions> {
    const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
    let said = |name| env::var(name).ok().filter(|text: &String| !text.trim().is_empty());
    Ok(OtlpOptions {
        min_ns: u64::try_from(min.as_nanos()).unwrap_or(u64::MAX),
        service: said("OTEL_SERVICE_NAME"),
        attributes: said(ATTRIBUTES).map(|text| pairs(ATTRIBUTES, &text)).transpose()?.unwrap_or_default(),
    })
}

/// A setting of all exporters, or the one of exporters of traces, which goes before that.
fn find(setting: &str) -> Option<(String, String)> {
    ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"].into_iter().find_map(|prefix| {
        let name = format!("{prefix}{setting}");
        let text = env::var(&name).ok().filter(|text| !text.trim().is_empty())?;
        Some((name, text.trim().to_owned()))
    })
}

/// `NAME=VALUE,NAME=VALUE`, with `%2C` for a comma. A value may be a secret, so no error shows it.
fn pairs(variable: &str, text: &str) -> Result<Vec<(String, String)>> {
    let pair = |text: &str| {
        let (name, value) = text.split_once('=')?;
        Some((name.trim().to_owned(), decoded(value.trim())?)).filter(|(name, _)| !name.is_empty())
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    let wrong = || anyhow!("{variable}: expected NAME=VALUE,NAME=VALUE");
    parts.map(|part| pair(part).ok_or_else(wrong)).collect()
}

/// With `%XX` for a byte.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_standard_has_them() {
        let read = |text| pairs("X", text).map_err(|error| error.to_string());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read("a=b, c = d%2C%20e=f ,"), Ok(vec![pair("a", "b"), pair("c", "d, e=f")]));
        for wrong in ["secret", "a=b,=secret", "a=%secret", "a=%zz"] {
            let said = read(wrong).expect_err(wrong);
            assert!(said.starts_with("X: expected NAME=VALUE") && !said.contains("secret"), "{said}");
        }
    }
}
