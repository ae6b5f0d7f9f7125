//! Asking the viewer of a collector, as a page does: over HTTP, with its token.

mod trust;

use std::{
    fmt::{self, Display, Formatter},
    io::{ErrorKind, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};
use serde_json::Value;

use crate::{args::AskingArgs, door};

/// How long a connection, and each part of an answer, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest answer that is read.
const MOST_BYTES: u64 = 64 << 20;

/// Where a viewer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Whether it is encrypted, where that is said.
    is_encrypted: Option<bool>,
    /// As it is in `Host`.
    host: String,
    port: u16,
    token: Option<String>,
}

/// A viewer that has let us in.
#[derive(Debug)]
pub(crate) struct Viewer {
    place: Place,
    tls: Option<Arc<ClientConfig>>,
    cookie: String,
}

/// What it said.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Place {
    /// The place that is meant where a directory could be: `http://…`, `https://…`, or HOST:PORT that is no directory.
    pub(crate) fn meant(text: &Path) -> Option<Self> {
        let is_there = text.exists();
        let text = text.to_str()?;
        let (is_encrypted, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(false), rest),
            Some(("https", rest)) => (Some(true), rest),
            Some(_) => return None,
            None if is_there => return None,
            None => (None, text),
        };
        // As it is printed, with the token behind `#`, and as people write it.
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, behind) = rest.split_at(end);
        if is_encrypted.is_none() && !behind.is_empty() {
            return None;
        }
        let token = behind.split(['#', '?', '&']).find_map(|part| part.strip_prefix("token="));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, if is_encrypted? { 443 } else { 80 }),
        };
        let host = crate::ui::name_of_server(host).ok()?;
        Some(Self { is_encrypted, host, port, token: token.map(ToOwned::to_owned) })
    }

    /// Whether it is this machine.
    fn is_here(&self) -> bool {
        ["127.0.0.1", "localhost", "[::1]"].contains(&self.host.as_str())
    }

    fn connect(&self) -> Result<TcpStream> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let addresses = (host, self.port).to_socket_addrs().with_context(|| format!("{self}: no such host"))?;
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if error.kind() == ErrorKind::ConnectionRefused => {
                bail!("{self}: nobody listens there (does a collector run with --ui {self}?)")
            }
            Some(error) => Err(error).with_context(|| format!("{self} cannot be reached")),
            None => bail!("{self}: no such host"),
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Viewer {
    /// Shows the token to a viewer.
    pub(crate) fn enter(mut place: Place, args: &AskingArgs) -> Result<Self> {
        let token = match (&args.token_file, place.token.take()) {
            (Some(file), _) => String::from_utf8(door::secret(file)?.bytes().to_vec()).ok(),
            (None, token) => token,
        };
        // What is in a header must not end it.
        let token = token.filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
        let token = token.with_context(|| {
            format!("{place} wants a token: give the address as its collector printed it, or --token-file FILE")
        })?;
        // As the collector does: in the open on one machine alone.
        let is_trusted = args.tls_pin.is_some() || args.tls_ca.is_some();
        let is_encrypted = place.is_encrypted.unwrap_or(is_trusted || !place.is_here());
        let tls = is_encrypted.then(|| trust::config(args)).transpose().with_context(|| format!("{place}"))?;
        if !is_encrypted && (is_trusted || !place.is_here()) {
            bail!("{place}: a token travels only encrypted: the address has to begin with https");
        }
        let mut viewer = Self { place, tls, cookie: String::new() };
        let answer = viewer.get("/api/enter", &format!("X-Spoor-Token: {token}\r\n"))?;
        let place = &viewer.place;
        let cookie = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")?.split(';').next());
        let is_welcome = answer.value().is_some_and(|value| value["welcome"] == true);
        viewer.cookie = match (answer.status, cookie.filter(|_| is_welcome)) {
            (200, Some(cookie)) => cookie.to_owned(),
            (401, _) if answer.words().is_some() => {
                bail!("{place}: this is not its token (a collector has a new one each time it starts, and prints it)")
            }
            (421, _) => {
                bail!("{place}: its collector does not go by this name (--ui-name {} there lets it)", place.host)
            }
            (status, _) => match answer.words() {
                Some(words) => bail!("{place}: {words}"),
                None => bail!("{place}: no viewer of a collector answers there, but something else (HTTP {status})"),
            },
        };
        Ok(viewer)
    }

    /// What it answers.
    pub(crate) fn ask(&self, path: &str) -> Result<Value> {
        let (answer, place) = (self.get(path, "")?, &self.place);
        match (answer.status, answer.value(), answer.words()) {
            (200, Some(value), _) => Ok(value),
            (401, ..) => bail!("{place}: its collector was started again, and has another token now"),
            (_, _, Some(words)) => bail!("{place}: {words}"),
            (status, ..) => bail!("{place}: no viewer of a collector answers any more (HTTP {status})"),
        }
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    fn get(&self, path: &str, headers: &str) -> Result<Answer> {
        let (place, cookie) = (&self.place, &self.cookie);
        let stream = place.connect()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {place}\r\nCookie: {cookie}\r\n{headers}Connection: close\r\n\r\n");
        let answer = match &self.tls {
            None => exchange(stream, &request),
            Some(config) => {
                let host = place.host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(host).with_context(|| format!("{place}"))?;
                let connection = ClientConnection::new(Arc::clone(config), name)?;
                exchange(StreamOwned::new(connection, stream), &request)
            }
        };
        answer.map_err(|error| anyhow!("{place}: {}", trust::describe(&error)))
    }
}

impl Answer {
    fn value(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Why it refused.
    fn words(&self) -> Option<String> {
        self.value()?["error"].as_str().map(answers::printable)
    }
}

/// Sends a request, and reads all of the answer.
fn exchange(mut stream: impl Read + Write, request: &str) -> std::io::Result<Answer> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n");
    let is_http = answer.starts_with(b"HTTP/1.");
    let (Some(end), true) = (end, is_http) else { return Err(std::io::Error::other("it does not speak HTTP")) };
    let body = answer.split_off(end + 4);
    let head: Vec<_> = String::from_utf8_lossy(&answer).lines().map(lower_name).collect();
    let status = head.first().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    if length.is_some_and(|length: usize| length != body.len()) {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Answer { status, head: head.join("\n"), body })
}

/// A line of a head with the name of the header in small letters.
fn lower_name(line: &str) -> String {
    match line.split_once(':') {
        Some((name, value)) => format!("{}: {}", name.to_ascii_lowercase(), value.trim()),
        None => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(text: &str) -> Option<(Option<bool>, String, u16, Option<String>)> {
        Place::meant(Path::new(text)).map(|place| (place.is_encrypted, place.host, place.port, place.token))
    }

    #[test]
    fn an_address_is_understood_as_it_was_printed_and_as_people_write_it() {
        let token = || Some("ab12".to_owned());
        for (text, wanted) in [
            ("http://127.0.0.1:7080/#token=ab12", (Some(false), "127.0.0.1", 7080, token())),
            ("https://Build.Example:7080/?token=ab12", (Some(true), "build.example", 7080, token())),
            ("https://[::1]:7080/#token=ab12", (Some(true), "[::1]", 7080, token())),
            ("https://build.example/", (Some(true), "build.example", 443, None)),
            ("http://localhost", (Some(false), "localhost", 80, None)),
            ("localhost:7080", (None, "localhost", 7080, None)),
            ("[2001:db8::1]:7080", (None, "[2001:db8::1]", 7080, None)),
        ] {
            let (is_encrypted, host, port, token) = wanted;
            assert_eq!(meant(text), Some((is_encrypted, host.to_owned(), port, token)), "{text}");
        }
        for text in ["traces", "/", "a/b:1", "traces:", "host:70800", "ftp://host:1", "http://", "localhost:1/x"] {
            assert_eq!(meant(text), None, "{text}");
        }
    }
}
