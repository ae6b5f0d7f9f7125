//! The viewer beside a collector that records, asked as pages ask it.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tests::{
    Agent, Collector, Folder, Settings, Trace, Transport,
    collector::{disk, run, run_on},
    wait::answer,
};

use crate::{LONG, eventually, finish, is_complete};

/// A browser, as far as it matters here.
#[derive(Clone)]
struct Browser {
    host: String,
    cookie: String,
}

/// An answer, as far as its headers are read.
struct Answer {
    status: u16,
    headers: String,
    body: BufReader<TcpStream>,
}

impl Answer {
    fn length(&self) -> usize {
        let length = self.headers.lines().find_map(|line| line.strip_prefix("content-length: "));
        length.and_then(|length| length.parse().ok()).unwrap_or(0)
    }

    fn bytes(mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.length()];
        self.body.read_exact(&mut bytes).expect("all of it");
        bytes
    }
}

impl Browser {
    /// Opens the address that the collector has printed, and exchanges the token for a cookie.
    fn open(collector: &Collector) -> Self {
        let line = collector.wait_for("viewer http://");
        let (host, token) = line["viewer http://".len()..].trim().split_once("/#token=").expect("a token");
        let mut browser = Self { host: host.into(), cookie: String::new() };
        assert_eq!(browser.get("/api/sessions").status, 401, "without the token nobody looks");
        let answer = browser.ask("/api/enter", &format!("x-spoor-token: {token}\r\n"));
        let cookie = answer.headers.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
        browser.cookie = cookie.split(';').next().expect("a cookie").into();
        browser
    }

    fn ask(&self, path: &str, more: &str) -> Answer {
        let stream = TcpStream::connect(&self.host).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        let (host, cookie) = (&self.host, &self.cookie);
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\n{more}\r\n");
        let mut body = BufReader::new(stream);
        body.get_mut().write_all(request.as_bytes()).expect("it is heard");
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") {
            assert!(body.read_line(&mut headers).expect("an answer") > 0, "{path}: {headers}");
        }
        let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answer { status, headers, body }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(path, "")
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        let status = answer.status;
        let bytes = answer.bytes();
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Listens to what is told of a session until that is so.
    fn wait_live(&self, session: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
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

    /// Looks at a session as a page does, and returns how many events of it are shown.
    fn look(&self, session: &str) -> u64 {
        let meta = answer("the overview is made", || {
            let meta = self.json(&format!("/api/s/{session}/meta"));
            (meta["ready"] == true).then_some(meta)
        });
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

#[test]
fn fifty_look_on_while_a_session_is_recorded_and_nothing_is_lost() {
    let (folder, collector) = Collector::in_folder("ui", &["--ui", "127.0.0.1:0"]);
    let browser = Browser::open(&collector);
    let mut agent = Agent::start(Settings::new(&collector, Transport::Tcp, 1)).expect("it is heard");
    agent.work(20_000).expect("it is taken");
    let session = Trace::of(folder.path(), agent.session()).folder;
    let name = session.file_name().expect("a name").to_string_lossy().into_owned();
    browser.wait_live(&name, "events have come", |session| session["events"].as_u64() > Some(0));
    let looking: Vec<_> = (0..50)
        .map(|_| {
            let (browser, name) = (browser.clone(), name.clone());
            thread::spawn(move || {
                let calls = browser.look(&name);
                browser.wait_live(&name, "it has ended", |session| session["finished"] == true);
                calls
            })
        })
        .collect();
    for _ in 0..30 {
        agent.work(10_000).expect("it is taken");
        agent.listen(Duration::from_millis(20));
    }
    finish(&mut agent);
    for page in looking {
        assert!(page.join().expect("it looks") > 0, "something was shown");
    }
    is_complete(folder.path(), &agent);
    // What is shown in the end is all of it, as the command says.
    let printed = run_on("top", &session, &["--json", "--limit", "1000"]).success();
    let count = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["count"].as_u64().expect("a number");
    let calls: u64 = printed.text().lines().map(count).sum();
    eventually("all calls are shown", || browser.look(&name) == calls);
    std::fs::remove_dir_all(&session).expect("it is there");
    browser.wait_live(&name, "it is gone", |session| session["gone"].is_string());
    assert_eq!(browser.get(&format!("/api/s/{name}/meta")).status, 404);
    collector.stop().success();
}

#[test]
fn a_viewer_needs_a_disk_and_a_place_of_this_machine() {
    let folder = Folder::new("ui-wrong");
    let wrong = |arguments: &[&str], words: &str| {
        let exit = run(arguments);
        assert!(exit.code == Some(1) && exit.stderr.contains(words), "{exit:?}");
    };
    let sink = disk(folder.path());
    wrong(&["--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0", "--sink", "stdout:events"], "--sink disk:DIR");
    wrong(&["--listen", "127.0.0.1:0", "--ui", "0.0.0.0:0", "--sink", &sink], "ssh -L");
}
