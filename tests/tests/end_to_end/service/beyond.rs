//! The viewer for other machines: over TLS, to who has the token.

use std::{
    fs,
    io::{BufRead, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustls::{ClientConnection, StreamOwned, pki_types::CertificateDer};
use tests::{Agent, Collector, Folder, Identity, Settings, Transport, collector::run};

use crate::service::{
    LONG,
    browser::{Browser, trust},
    eventually, finish,
    ui::beyond,
};

#[test]
fn only_who_uses_its_name_and_knows_the_token_is_answered() {
    let identity = Identity::new();
    let (_folder, collector) = beyond(&identity, "beyond");
    let mut browser = Browser::open_tls(&collector, &identity);
    let (host, port, cookie) = (browser.host.clone(), browser.port(), browser.cookie.clone());
    assert!(browser.url.starts_with(&format!("https://127.0.0.1:{port}/#token=")), "{}", browser.url);
    assert_eq!(browser.get("/api/sessions").status, 200);
    let said = browser.entered();
    assert!(said.starts_with(&format!("__Host-spoor-{port}=")), "{said}");
    for part in ["; Secure", "; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(said.contains(part) && !said.contains("Domain"), "{said}");
    }
    let status = |headers: &str| browser.raw(&format!("GET /api/sessions HTTP/1.1\r\n{headers}\r\n")).status;
    let with = |host: &str| status(&format!("host: {host}\r\ncookie: {cookie}\r\n"));
    assert_eq!([with(&host), with(&format!("LOCALHOST:{port}"))], [200, 200]);
    let others = ["0.0.0.0", "evil.example", "127.0.0.1.evil.example", "127.0.0.2"];
    for other in others.map(|name| format!("{name}:{port}")).iter().chain(&["127.0.0.1".into(), "127.0.0.1:1".into()]) {
        assert_eq!(with(other), 421, "{other}");
    }
    let from = |origin: &str| status(&format!("host: {host}\r\ncookie: {cookie}\r\norigin: {origin}\r\n"));
    assert_eq!(from(&format!("https://{host}")), 200);
    for origin in [&format!("http://{host}"), "https://evil.example", "null"] {
        assert_eq!(from(origin), 403, "{origin}");
    }
    // A cookie from before, one under the name that plain servers use, and none.
    let (name, token) = cookie.split_once('=').expect("a cookie");
    for wrong in [format!("{name}={}", "0".repeat(64)), format!("spoor-{port}={token}"), String::new()] {
        browser.cookie = wrong;
        let answer = browser.get("/api/sessions");
        assert_eq!(answer.status, 401, "{}", browser.cookie);
        assert!(answer.json()["error"].is_string());
    }
    collector.stop().success();
}

#[test]
fn who_does_not_encrypt_is_told_so() {
    let identity = Identity::new();
    let (_folder, collector) = beyond(&identity, "beyond-plain");
    let browser = Browser::open_tls(&collector, &identity);
    let said = |request: &[u8]| {
        let mut stream = TcpStream::connect(&browser.host).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        stream.write_all(request).expect("it is heard");
        let mut said = Vec::new();
        // It may be ended before all is read.
        _ = stream.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    };
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", browser.host);
    let told = said(request.as_bytes());
    assert!(told.starts_with("HTTP/1.1 400 ") && told.contains("https"), "{told}");
    assert!(!said(b"\x16\x03\x01\x00\x05hello").contains("HTTP"), "what only begins like TLS is ended");
    assert_eq!(browser.get("/api/sessions").status, 200);
}

#[test]
fn connections_that_are_half_open_keep_nobody_out() {
    let identity = Identity::new();
    let (_folder, collector) = beyond(&identity, "beyond-half");
    let browser = Browser::open_tls(&collector, &identity);
    let mut told = browser.get("/api/live");
    let mut line = String::new();
    told.body.read_line(&mut line).expect("it is told");
    // Those who say nothing, who begin to encrypt, and who encrypt and ask for nothing.
    let config = trust(&identity);
    let mut silent: Vec<_> = (0..200).map(|_| TcpStream::connect(&browser.host).expect("a connection")).collect();
    for stream in silent.iter_mut().step_by(2) {
        stream.write_all(b"\x16\x03\x01\x02\x00\x01").expect("it is heard");
    }
    let idle: Vec<_> = (0..100)
        .map(|_| {
            let name = "127.0.0.1".try_into().expect("a name");
            let connection = ClientConnection::new(Arc::clone(&config), name).expect("TLS");
            let stream = TcpStream::connect(&browser.host).expect("a connection");
            let mut stream = StreamOwned::new(connection, stream);
            stream.conn.complete_io(&mut stream.sock).expect("a handshake");
            stream
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(browser.get("/api/sessions").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(5), "nobody waits for others: {:?}", begun.elapsed());
    // There are more than may be: the first have left, and who is known has not.
    silent[0].set_read_timeout(Some(LONG)).expect("a socket");
    assert!(matches!(silent[0].read(&mut [0; 1]), Ok(0) | Err(_)), "the first had to leave");
    let settings = Settings::encrypted(collector.address(Transport::Tls), &identity.setup(Transport::Tls), 5);
    crate::service::trace(settings, 1_000);
    eventually("it is told of the session", || {
        line.clear();
        told.body.read_line(&mut line).expect("it is told still") > 0 && line.starts_with("data: ")
    });
    drop((silent, idle));
    collector.stop().success();
}

#[test]
fn a_certificate_that_is_renewed_is_shown() {
    let identity = Identity::new();
    let folder = Folder::new("beyond-renewed");
    let place = |from: &str| {
        for end in ["pem", "key"] {
            fs::copy(identity.file(&format!("{from}.{end}")), folder.join(&format!("own.{end}"))).expect("copied");
        }
    };
    place("collector");
    let [certificate, key] = ["own.pem", "own.key"].map(|name| folder.join(name).display().to_string());
    let arguments = ["--tls-cert", &certificate, "--tls-key", &key, "--ui", "0.0.0.0:0", "--ui-name", "127.0.0.1"];
    let (_traces, collector) = Collector::in_folder("beyond-renewed-traces", &arguments);
    let browser = Browser::open_tls(&collector, &identity);
    let shown = || -> CertificateDer<'static> {
        let name = "127.0.0.1".try_into().expect("a name");
        // What is resumed shows the one from before.
        let mut connection = ClientConnection::new(trust(&identity), name).expect("TLS");
        let mut stream = TcpStream::connect(&browser.host).expect("a connection");
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).expect("a handshake");
        }
        connection.peer_certificates().and_then(|all| all.first()).expect("a certificate").clone().into_owned()
    };
    let before = shown();
    // Half of it is of no use, and it stays as it was.
    fs::write(folder.join("own.pem"), "nothing").expect("written");
    eventually("it is told", || {
        assert_eq!(shown(), before);
        collector.said().contains("the viewer's certificate stays as it was")
    });
    place("agent");
    eventually("the new one is shown", || shown() != before);
    assert_eq!(browser.get("/api/sessions").status, 200, "the token is the same");
    collector.stop().success();
}

/// What `top --live` prints with these arguments.
fn top(arguments: &[&str]) -> tests::process::Exit {
    run(&[&["top", "--live", "--json", "--last", "60s"], arguments].concat())
}

#[test]
fn a_session_is_watched_over_the_network_as_in_its_directory() {
    let identity = Identity::new();
    let (folder, collector) = beyond(&identity, "beyond-top");
    let browser = Browser::open_tls(&collector, &identity);
    let setup = identity.setup(Transport::Tls);
    let mut agent =
        Agent::start(Settings::encrypted(collector.address(Transport::Tls), &setup, 6)).expect("it is heard");
    agent.work(1_000).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    let session = tests::trace::folders(folder.path()).remove(0);
    let name = session.file_name().expect("a name").to_string_lossy().into_owned();
    browser.wait_live(&name, "events have come", |session| session["events"] == 1_000);
    let (ca, url) = (identity.path("ca.pem"), browser.url.clone());
    let watching = {
        let (ca, url) = (ca.clone(), url.clone());
        thread::spawn(move || run(&["top", "--live", &url, "--tls-ca", &ca, "--every", "100ms"]))
    };
    agent.drop_events(0, 7, "ring-full");
    agent.work(1_000).expect("it is taken");
    finish(&mut agent);
    let watched = watching.join().expect("it ends").success();
    assert!(watched.stderr.contains("the session has ended (exited)"), "{}", watched.stderr);
    assert!(watched.text().contains("events/s") && watched.text().contains("7 events missing"), "{}", watched.text());
    let path = session.display().to_string();
    for options in [&[][..], &["--sort", "self"], &["--limit", "3", "--thread", "1"], &["--function", "function_1*"]] {
        let here = top(&[&[path.as_str()], options].concat()).success();
        let there = top(&[&[url.as_str(), "--tls-ca", &ca], options].concat()).success();
        assert!(!here.text().is_empty());
        assert_eq!(here.text(), there.text(), "{options:?}");
    }
    // By its fingerprint, and with the token in a file.
    let pin = identity.pin().to_string();
    let (_, token) = url.split_once("#token=").expect("a token");
    let file = folder.join("token");
    fs::write(&file, token).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let file = file.display().to_string();
    let pinned = top(&[&browser.host, "--token-file", &file, "--tls-pin", &pin, "--process", &name]).success();
    assert_eq!(pinned.text(), top(&[&path]).success().text());
    collector.stop().success();
}

#[test]
fn what_is_wrong_with_an_address_is_said_in_a_line() {
    let identity = Identity::new();
    let (_folder, collector) = beyond(&identity, "beyond-wrong");
    let browser = Browser::open_tls(&collector, &identity);
    let (url, host, ca, other) = (&browser.url, &browser.host, identity.path("ca.pem"), identity.path("other-ca.pem"));
    let (_plain_folder, plain) =
        Collector::in_folder("beyond-none", &["--ui", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    let plain_url = Browser::open(&plain).url;
    let metrics = plain.wait_for("metrics http://")["metrics ".len()..].replace("/metrics", "/?token=1");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it has one");
    let nobody = format!("http://{free}/#token=1");
    let (bare, wrong) = (format!("https://{host}"), format!("https://{host}/#token=0"));
    let (port, pin) = (browser.port(), format!("sha256:{}", "0".repeat(64)));
    let named = url.replace("127.0.0.1", "127.0.0.2");
    for (arguments, words) in [
        (&[nobody.as_str()][..], "nobody listens there"),
        (&[&bare, "--tls-ca", &ca], "wants a token"),
        (&[&wrong, "--tls-ca", &ca], "this is not its token"),
        (&[url], "whom to trust?"),
        (&[url, "--tls-ca", &other], "its certificate is refused"),
        (&[url, "--tls-pin", &pin], "is not that of --tls-pin"),
        (&[&named, "--tls-pin", &identity.pin().to_string()], "does not go by this name"),
        (&[&url.replace("https", "http")], "this port is encrypted"),
        (&[&plain_url.replace("http", "https"), "--tls-ca", &ca], "does not speak TLS"),
        (&["http://192.0.2.1:1/#token=1"], "travels only encrypted"),
        (&[&metrics], "no viewer of a collector answers there"),
        (&[&plain_url], "no session is in it"),
        (&[&plain_url, "--process", "nobody"], "nobody"),
    ] {
        let exit = run(&[&["top", "--live"], arguments].concat());
        assert_eq!((exit.code, exit.stderr.lines().count()), (Some(1), 1), "{arguments:?}: {}", exit.stderr);
        assert!(exit.stderr.contains(words), "{port} {words}: {}", exit.stderr);
    }
    let exit = run(&["top", &plain_url]);
    assert!(exit.code == Some(2) && exit.stderr.contains("--live"), "{}", exit.stderr);
}
