//! The server, asked over a socket as a browser or somebody else would.

mod scene;

use std::{fs, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use self::scene::{HOSTILE, Scene};
use crate::{Options, Token};

/// A server that shows a directory.
struct Served {
    port: u16,
    token: Token,
    scene: Scene,
}

/// What it said.
struct Said {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Why it refused.
    fn words(&self) -> String {
        self.json()["error"].as_str().expect("words").to_owned()
    }
}

impl Served {
    async fn start(scene: Scene) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        let token = Token::random().expect("random");
        let options = Options {
            dir: scene.dir.clone(),
            token: token.clone(),
            config: Default::default(),
            names: Vec::new(),
            tls: None,
        };
        tokio::spawn(crate::serve(listener, options));
        Self { port, token, scene }
    }

    /// Sends a request as it is.
    async fn raw(&self, request: &str) -> Said {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("it answers");
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Said { status, head, body: answer[end + 4..].to_vec() }
    }

    fn host(&self) -> String {
        format!("Host: 127.0.0.1:{}\r\n", self.port)
    }

    fn cookie(&self) -> String {
        format!("Cookie: other=1; spoor-{}={}\r\n", self.port, self.token.text())
    }

    async fn with(&self, path: &str, headers: &str) -> Said {
        self.raw(&format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n")).await
    }

    /// Asks as the page does.
    async fn get(&self, path: &str) -> Said {
        self.with(path, &(self.host() + &self.cookie())).await
    }

    /// Asks again while the overview is being made.
    async fn patient(&self, path: &str) -> Said {
        for _ in 0..200 {
            let said = self.get(path).await;
            let is_making = said.status == 503 || said.status == 200 && said.text().contains("\"ready\":false");
            if !is_making {
                return said;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{path} is not answered");
    }
}

#[tokio::test]
async fn only_who_uses_its_name_is_answered() {
    let served = Served::start(Scene::new(&[])).await;
    let port = served.port;
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        assert_eq!(served.with("/", &format!("Host: {host}:{port}\r\n")).await.status, 200, "{host}");
    }
    let other = port ^ 1;
    for host in [
        format!("Host: evil.example:{port}\r\n"),
        format!("Host: 127.0.0.1:{other}\r\n"),
        "Host: 127.0.0.1\r\n".into(),
        "Host: \r\n".into(),
        format!("Host: 127.0.0.1.evil.example:{port}\r\n"),
        format!("Host: 127.0.0.1:{port}\r\nHost: evil.example:{port}\r\n"),
        String::new(),
    ] {
        let said = served.with("/", &host).await;
        assert!(said.status == 421 || said.status == 400, "{host}: {}", said.status);
        assert!(!said.text().contains("<html"), "{host}");
    }
    let absolute = format!("GET http://evil.example/ HTTP/1.1\r\n{}Connection: close\r\n\r\n", served.host());
    assert_eq!(served.raw(&absolute).await.status, 421);
}

#[tokio::test]
async fn only_pages_of_its_own_are_answered() {
    let served = Served::start(Scene::new(&[])).await;
    let (host, cookie, port) = (served.host(), served.cookie(), served.port);
    let own = format!("{host}{cookie}Origin: http://127.0.0.1:{port}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(served.with("/api/sessions", &own).await.status, 200);
    for other in [
        "Origin: http://evil.example\r\n".to_owned(),
        "Origin: null\r\n".to_owned(),
        format!("Origin: https://127.0.0.1:{port}\r\n"),
        "Sec-Fetch-Site: cross-site\r\n".to_owned(),
        "Sec-Fetch-Site: same-site\r\n".to_owned(),
    ] {
        assert_eq!(served.with("/api/sessions", &format!("{host}{cookie}{other}")).await.status, 403, "{other}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        let request =
            format!("{method} /api/sessions HTTP/1.1\r\n{host}{cookie}Content-Length: 0\r\nConnection: close\r\n\r\n");
        let said = served.raw(&request).await;
        assert_eq!(said.status, 405, "{method}");
        assert!(!said.head.contains("access-control"), "{}", said.head);
    }
}

#[tokio::test]
async fn only_who_knows_the_token_is_answered() {
    let served = Served::start(Scene::new(&["s"])).await;
    let (host, port, token) = (served.host(), served.port, served.token.text().to_owned());
    for cookie in [
        String::new(),
        format!("Cookie: spoor-{port}=\r\n"),
        format!("Cookie: spoor-{port}={}\r\n", &token[1..]),
        format!("Cookie: spoor={token}\r\n"),
        format!("X-Spoor-Token: {token}\r\n"),
    ] {
        for path in ["/api/sessions", "/api/s/s/meta", "/api/live", "/api/diff?a=s&b=s", "/api/nothing"] {
            let said = served.with(path, &format!("{host}{cookie}")).await;
            assert_eq!(said.status, 401, "{path} {cookie}");
        }
    }
    let wrong = served.with("/api/enter", &format!("{host}X-Spoor-Token: {}\r\n", "0".repeat(64))).await;
    assert!(wrong.status == 401 && !wrong.head.contains("set-cookie"));
    let right = served.with("/api/enter", &format!("{host}X-Spoor-Token: {token}\r\n")).await;
    assert_eq!(right.status, 200);
    let cookie = right.head.lines().find(|line| line.starts_with("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("httponly") && cookie.contains("samesite=strict"), "{cookie}");
    assert_eq!(served.get("/api/sessions").await.status, 200);
}

#[tokio::test]
async fn every_answer_says_what_a_page_may_do() {
    let served = Served::start(Scene::new(&["s"])).await;
    for path in ["/", "/main.js", "/style.css", "/nothing", "/api/sessions", "/api/s/none/meta"] {
        let said = served.get(path).await;
        for part in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
             connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
        ] {
            assert!(said.head.contains(part), "{path}: {part} is not in {}", said.head);
        }
    }
    assert!(served.get("/").await.head.contains("content-type: text/html"));
    assert!(served.get("/main.js").await.head.contains("content-type: text/javascript"));
    assert_eq!(served.get("/../Cargo.toml").await.status, 404);
    assert_eq!(served.get("/%2e%2e/Cargo.toml").await.status, 404);
}

#[tokio::test]
async fn a_session_is_told_with_its_names_as_they_are() {
    let served = Served::start(Scene::new(&["s"])).await;
    let list = served.get("/api/sessions").await.json();
    let one = &list["sessions"][0];
    assert_eq!((one["name"].as_str(), one["events"].as_u64(), one["missing"].as_u64()), (Some("s"), Some(11), Some(3)));
    assert_eq!(one["causes"][0][0], "network");
    let said = served.patient("/api/s/s/meta").await;
    assert!(said.head.contains("content-type: application/json"), "never markup");
    let meta = said.json();
    let names = meta["functions"]["name"].as_array().expect("names");
    assert!(names.iter().any(|name| name == HOSTILE), "{names:?}");
    assert_eq!(meta["gaps"][0][3], 3);
    assert_eq!(meta["rows"].as_array().map(Vec::len), Some(1));
    let top = served.get("/api/s/s/top").await.json();
    let find =
        |name: &str| top["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["function"] == name)).cloned();
    let main = find("main").expect("it ran");
    assert_eq!((main["count"].as_u64(), main["total_ns"].as_u64()), (Some(1), Some(1000)));
    let found = served.get("/api/s/s/find?q=%3Cimg").await.json();
    let (start, depth) = (&found["found"]["start"], &found["found"]["depth"]);
    let span = served.get(&format!("/api/s/s/span?row=0&start={start}&depth={depth}")).await.json();
    assert_eq!((&span["name"], &span["stack"][0][1]), (&HOSTILE.into(), &"main".into()));
    let callers = served.get("/api/s/s/callers?what=leaf").await.json();
    assert!(callers["nodes"].as_array().is_some_and(|nodes| nodes.len() >= 2), "{callers}");
    let hot = served.get("/api/s/s/hot").await.json();
    assert!(hot["rows"].as_array().is_some_and(|rows| rows.iter().any(|row| row["function"] == "main")), "{hot}");
    let diff = served.patient("/api/diff?a=s&b=s&all=1").await.json();
    let is_same = |row: &Value| row["total_a_ns"] == row["total_b_ns"] && row["within_noise"] == true;
    assert!(diff["rows"].as_array().is_some_and(|rows| rows.len() == 3 && rows.iter().all(is_same)), "{diff}");
    assert!(diff["warnings"].as_array().is_some_and(|warnings| warnings.len() == 2), "loss of both is told: {diff}");
    assert_eq!(served.patient("/api/diff?a=s&b=s").await.json()["rows"], Value::Array(Vec::new()));
    assert_eq!(hot["missing"], 3, "what is missing was not seen to come: {hot}");
}

#[tokio::test]
async fn boxes_are_columns_of_bytes() {
    let served = Served::start(Scene::new(&["s"])).await;
    served.patient("/api/s/s/meta").await;
    let said = served.get("/api/s/s/boxes?rows=0&from=0&to=2048&step=1").await;
    let bytes = &said.body;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    let f64_at = |at: usize| f64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    assert_eq!((&bytes[..4], u32_at(4), f64_at(16), f64_at(24)), (&b"SPB1"[..], 1, 0.0, 1.0));
    let count = u32_at(36) as usize;
    assert_eq!((u32_at(32), bytes.len()), (0, 40 + count * 40));
    // The first is `main`.
    assert_eq!((f64_at(40), f64_at(40 + count * 8)), (100.0, 1000.0));
    let folded = served.get("/api/s/s/boxes?rows=0&from=0&to=4096&step=2048").await.body;
    assert!(folded.len() < bytes.len(), "narrow ones are folded");
}

#[tokio::test]
async fn what_asks_for_too_much_is_refused_with_words() {
    let served = Served::start(Scene::new(&["s"])).await;
    served.patient("/api/s/s/meta").await;
    let many = vec!["0"; 300].join(",");
    for (path, status) in [
        ("boxes", 400),
        ("boxes?rows=0&from=0&to=10", 400),
        ("boxes?rows=0&from=0&to=10&step=0", 400),
        ("boxes?rows=7&from=0&to=10&step=1", 400),
        ("boxes?rows=0&from=10&to=10&step=1", 400),
        ("boxes?rows=0&from=0&to=18446744073709551615&step=1", 413),
        (&format!("boxes?rows={many}&from=0&to=10&step=1"), 413),
        ("top?limit=99999999", 413),
        ("top?sort=colour", 400),
        ("top?from=x", 400),
        ("callers", 400),
        ("callers?what=nobody", 404),
        ("span?row=0&start=1&depth=0", 404),
        ("span?row=0", 400),
        ("find?q=", 400),
        ("find?q=a&forward=perhaps", 400),
        ("nothing", 404),
    ] {
        let said = served.get(&format!("/api/s/s/{path}")).await;
        assert_eq!(said.status, status, "{path}: {}", said.text());
        assert!(!said.words().is_empty());
    }
}

#[tokio::test]
async fn a_session_that_was_removed_is_gone_and_nothing_else() {
    let served = Served::start(Scene::new(&["s", "t"])).await;
    served.patient("/api/s/s/meta").await;
    fs::remove_dir_all(served.scene.dir.join("s")).expect("it is there");
    for path in [
        "/api/s/s/meta",
        "/api/s/s/top",
        "/api/s/s/hot",
        "/api/s/s/boxes?rows=0&from=0&to=1&step=1",
        "/api/diff?a=s&b=t",
    ] {
        let said = served.get(path).await;
        assert_eq!((said.status, said.words().as_str()), (404, "there is no session s, or not any more"), "{path}");
    }
    for name in ["..", "%2e%2e", "%2e%2e%2ft", "t%00", ".", "%ff"] {
        let said = served.get(&format!("/api/s/{name}/meta")).await;
        assert!(said.status == 404 || said.status == 400, "{name}: {}", said.status);
        assert!(!said.words().is_empty(), "{name}");
    }
    assert_eq!(served.get("/api/s/%ff").await.status, 404);
    assert!(!served.get("/api/s/%ff").await.words().is_empty());
    // The list is the same for a moment.
    tokio::time::sleep(crate::library::LASTS * 2).await;
    let list = served.get("/api/sessions").await.json();
    assert_eq!(list["sessions"].as_array().map(Vec::len), Some(1));
    assert_eq!(served.patient("/api/s/t/meta").await.json()["ready"], true);
}

#[tokio::test]
async fn what_cannot_be_read_is_said_and_keeps_nobody_from_the_others() {
    let scene = Scene::new(&["s"]);
    fs::create_dir(scene.dir.join("broken")).expect("made");
    fs::write(scene.dir.join("broken/manifest.json"), "{").expect("written");
    let served = Served::start(scene).await;
    let said = served.patient("/api/s/broken/meta").await;
    assert_eq!(said.status, 422, "{}", said.text());
    assert_eq!(said.words().matches("EOF while parsing").count(), 1, "it is said once: {}", said.words());
    assert_eq!(served.get("/api/sessions").await.json()["sessions"].as_array().map(Vec::len), Some(2));
    assert_eq!(served.patient("/api/s/s/meta").await.status, 200);
}

#[tokio::test]
async fn changes_are_told() {
    let served = Served::start(Scene::new(&["s"])).await;
    let mut stream = TcpStream::connect(("127.0.0.1", served.port)).await.expect("it listens");
    let request = format!("GET /api/live?session=s HTTP/1.1\r\n{}{}\r\n", served.host(), served.cookie());
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut heard = String::new();
    let mut hear = async |text: &str| {
        let listen = async {
            let mut buffer = [0; 4096];
            while !heard.contains(text) {
                let count = stream.read(&mut buffer).await.expect("it tells");
                assert!(count > 0, "it has hung up: {heard}");
                heard += &String::from_utf8_lossy(&buffer[..count]);
            }
        };
        tokio::time::timeout(Duration::from_secs(20), listen).await.expect("it tells in time");
    };
    hear("\"events\":11").await;
    // What is being made in it could keep it from being removed.
    assert_eq!(served.patient("/api/s/s/meta").await.status, 200);
    fs::remove_dir_all(served.scene.dir.join("s")).expect("it is there");
    hear("\"gone\"").await;
}
