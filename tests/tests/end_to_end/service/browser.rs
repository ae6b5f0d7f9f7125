//! A browser, as far as it matters to a viewer.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::Instant,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde_json::Value;
use tests::{Collector, Identity, collector, process::Process, wait::answer};

use crate::service::LONG;

/// What carries requests.
pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A browser that has opened the address of a viewer.
#[derive(Clone)]
pub(crate) struct Browser {
    /// The address that was printed.
    pub(crate) url: String,
    /// What is in `Host`.
    pub(crate) host: String,
    pub(crate) cookie: String,
    token: String,
    tls: Option<Arc<ClientConfig>>,
}

/// An answer, as far as its headers are read.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: BufReader<Box<dyn Stream>>,
}

impl Answer {
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        let length = self.headers.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut bytes = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
        self.body.read_exact(&mut bytes).expect("all of it");
        bytes
    }

    pub(crate) fn json(self) -> Value {
        serde_json::from_slice(&self.bytes()).expect("JSON")
    }
}

/// Trusts the authority of an identity.
pub(crate) fn trust(identity: &Identity) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(identity.file("ca.pem")).expect("a certificate")).expect("an authority");
    let config =
        ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions();
    Arc::new(config.expect("TLS").with_root_certificates(roots).with_no_client_auth())
}

/// Starts `collector view` on a folder, and opens what it prints.
pub(crate) fn view(folder: &Path, arguments: &[&str]) -> (Process, Browser) {
    let (process, address) = collector::view(folder, arguments);
    (process, Browser::enter(&address, None))
}

impl Browser {
    /// Opens the address that a collector has printed.
    pub(crate) fn open(collector: &Collector) -> Self {
        Self::enter(&collector.wait_for("viewer http://")["viewer ".len()..], None)
    }

    /// The same of one that encrypts, with a certificate of this identity.
    pub(crate) fn open_tls(collector: &Collector, identity: &Identity) -> Self {
        Self::enter(&collector.wait_for("viewer https://")["viewer ".len()..], Some(trust(identity)))
    }

    /// Exchanges the token of an address for a cookie.
    pub(crate) fn enter(url: &str, tls: Option<Arc<ClientConfig>>) -> Self {
        let (address, token) = url.split_once("/#token=").expect("a token");
        let (_, host) = address.split_once("://").expect("an address");
        let (cookie, token) = (String::new(), token.to_owned());
        let mut browser = Self { url: url.into(), host: host.into(), cookie, token, tls };
        assert_eq!(browser.get("/api/sessions").status, 401, "without the token nobody looks");
        let cookie = browser.entered();
        browser.cookie = cookie.split(';').next().expect("a cookie").into();
        browser
    }

    /// Shows the token, and returns the cookie with all that is said of it.
    pub(crate) fn entered(&self) -> String {
        let answer = self.ask("/api/enter", &format!("x-spoor-token: {}\r\n", self.token));
        let cookie = answer.headers.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        cookie.expect("a cookie").to_owned()
    }

    pub(crate) fn port(&self) -> u16 {
        self.host.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> Box<dyn Stream> {
        let stream = TcpStream::connect(&self.host).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        match &self.tls {
            None => Box::new(stream),
            Some(config) => {
                let name = "127.0.0.1".try_into().expect("a name");
                let connection = ClientConnection::new(Arc::clone(config), name).expect("TLS");
                Box::new(StreamOwned::new(connection, stream))
            }
        }
    }

    /// Sends a request as it is.
    pub(crate) fn raw(&self, request: &str) -> Answer {
        let mut body = BufReader::new(self.connect());
        body.get_mut().write_all(request.as_bytes()).expect("it is heard");
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") {
            assert!(body.read_line(&mut headers).expect("an answer") > 0, "{request}: {headers}");
        }
        let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answer { status, headers, body }
    }

    pub(crate) fn ask(&self, path: &str, more: &str) -> Answer {
        let (host, cookie) = (&self.host, &self.cookie);
        self.raw(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\n{more}\r\n"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(path, "")
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        let status = answer.status;
        let bytes = answer.bytes();
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Listens to what is told of a session until that is so.
    pub(crate) fn wait_live(&self, session: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
        let mut told = self.get(&format!("/api/live?session={session}"));
        assert_eq!(told.status, 200);
        let deadline = Instant::now() + LONG;
        let mut line = String::new();
        while Instant::now() < deadline {
            line.clear();
            match told.body.read_line(&mut line) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                read => assert!(read.expect("it goes on") > 0, "the feed ended"),
            }
            let value = line.strip_prefix("data: ").and_then(|json| serde_json::from_str::<Value>(json).ok());
            if value.is_some_and(|value| is_so(&value["session"])) {
                return;
            }
        }
        panic!("nobody was told that {what}: {line}");
    }

    /// What is told of a session once its overview is made.
    pub(crate) fn meta(&self, session: &str) -> Value {
        answer("the overview is made", || {
            let meta = self.json(&format!("/api/s/{session}/meta"));
            (meta["ready"] == true).then_some(meta)
        })
    }

    /// Looks at a session as a page does, and returns how many events of it are shown.
    pub(crate) fn look(&self, session: &str) -> u64 {
        let meta = self.meta(session);
        let time = |place: usize| meta["range"][place].as_u64().expect("a time");
        let (from, to) = (time(0), time(1));
        let step = ((to - from) / 1000).max(1);
        let boxes = self.get(&format!("/api/s/{session}/boxes?rows=0&from={from}&to={to}&step={step}"));
        assert_eq!(boxes.status, 200, "{}", boxes.headers);
        assert!(boxes.bytes().starts_with(b"SPB1"));
        let top = self.json(&format!("/api/s/{session}/top?limit=1000"));
        let rows = top["rows"].as_array().unwrap_or_else(|| panic!("rows: {top}"));
        rows.iter().map(|row| row["count"].as_u64().expect("a number")).sum()
    }
}
