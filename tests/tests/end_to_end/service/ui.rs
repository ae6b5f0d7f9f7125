//! The viewer beside a collector that records, asked as pages ask it.

use std::{
    fs,
    io::BufRead,
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tests::{
    Agent, Collector, Folder, Identity, Settings, Trace, Transport,
    collector::{disk, run, run_on},
};

use crate::service::{
    LONG,
    browser::{Browser, view},
    eventually, finish, is_complete,
};

#[test]
fn fifty_look_on_while_a_session_is_recorded_and_nothing_is_lost() {
    let (folder, collector) = Collector::in_folder("ui", &["--ui", "127.0.0.1:0"]);
    let settings = Settings::new(&collector, Transport::Tcp, 1);
    fifty_look_on(&folder, Browser::open(&collector), settings);
    collector.stop().success();
}

#[test]
fn fifty_look_on_from_elsewhere_and_nothing_is_lost() {
    let identity = Identity::new();
    let (folder, collector) = beyond(&identity, "ui-far");
    let settings = Settings::encrypted(collector.address(Transport::Tls), &identity.setup(Transport::Tls), 1);
    fifty_look_on(&folder, Browser::open_tls(&collector, &identity), settings);
    collector.stop().success();
}

/// A collector whose viewer others can reach.
pub(crate) fn beyond(identity: &Identity, name: &str) -> (Folder, Collector) {
    let certificate = identity.certified("collector");
    let mut arguments: Vec<_> = certificate.iter().map(String::as_str).collect();
    arguments.extend(["--ui", "0.0.0.0:0", "--ui-name", "127.0.0.1"]);
    Collector::in_folder(name, &arguments)
}

fn fifty_look_on(folder: &Folder, browser: Browser, settings: Settings) {
    let mut agent = Agent::start(settings).expect("it is heard");
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
    fs::remove_dir_all(&session).expect("it is there");
    browser.wait_live(&name, "it is gone", |session| session["gone"].is_string());
    assert_eq!(browser.get(&format!("/api/s/{name}/meta")).status, 404);
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
    for words in ["ssh -L", "--tls self, or --tls-cert and --tls-key"] {
        wrong(&["--listen", "127.0.0.1:0", "--ui", "0.0.0.0:0", "--sink", &sink], words);
    }
}

#[test]
fn a_viewer_ends_at_once_whoever_looks_on() {
    let (folder, collector) = Collector::in_folder("ui-end", &[]);
    crate::service::trace(Settings::new(&collector, Transport::Tcp, 2), 20_000);
    collector.stop().success();
    let session = tests::trace::folders(folder.path()).remove(0);
    let name = session.file_name().expect("a name").to_string_lossy().into_owned();
    let (mut viewer, browser) = view(folder.path(), &[]);
    let mut told = browser.get(&format!("/api/live?session={name}"));
    told.body.read_line(&mut String::new()).expect("it is told");
    let begun = Instant::now();
    viewer.signal("TERM");
    let exit = viewer.exit(LONG);
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert!(begun.elapsed() < Duration::from_millis(800), "it took {:?}", begun.elapsed());
}

#[test]
fn what_is_repaired_is_finished_for_who_looks_on() {
    let (folder, collector) = Collector::in_folder("ui-repair", &[]);
    let mut agent = Agent::start(Settings::new(&collector, Transport::Tcp, 3)).expect("it is heard");
    agent.work(1_000).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    collector.kill();
    let session = tests::trace::folders(folder.path()).remove(0);
    let name = session.file_name().expect("a name").to_string_lossy().into_owned();
    let (_viewer, browser) = view(folder.path(), &[]);
    assert_eq!(browser.meta(&name)["finished"], false);
    run_on("repair", &session, &[]).success();
    assert_eq!(browser.meta(&name)["finished"], true, "asked once");
}

#[test]
fn a_collector_that_is_started_again_has_another_token() {
    let folder = Folder::new("ui-again");
    let first = Collector::to_disk(folder.path(), &["--ui", "127.0.0.1:0"]);
    let browser = Browser::open(&first);
    first.stop().success();
    let second = Collector::to_disk(folder.path(), &["--ui", &browser.host]);
    let again = Browser::open(&second);
    assert_eq!(
        (&again.host, browser.get("/api/sessions").status),
        (&browser.host, 401),
        "the old cookie is worth nothing"
    );
    let old = run(&["top", "--live", &browser.url]);
    assert!(old.code == Some(1) && old.stderr.contains("this is not its token"), "{}", old.stderr);
    second.stop().success();
}

#[test]
fn it_is_served_over_ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("this machine has no IPv6: nothing is tested");
        return;
    }
    let (_folder, collector) = Collector::in_folder("ui-six", &["--ui", "[::1]:0"]);
    let browser = Browser::open(&collector);
    assert!(browser.host.starts_with("[::1]:"), "{}", browser.host);
    assert_eq!(browser.get("/api/sessions").status, 200);
    let identity = Identity::new();
    let certificate = identity.certified("collector");
    let more = ["--ui", "[::]:0", "--ui-name", "127.0.0.1", "--ui-name", "::1"];
    let arguments: Vec<_> = certificate.iter().map(String::as_str).chain(more).collect();
    let (_folder, collector) = Collector::in_folder("ui-all", &arguments);
    let mut browser = Browser::open_tls(&collector, &identity);
    assert_eq!(browser.get("/api/sessions").status, 200);
    browser.host = format!("[::1]:{}", browser.port());
    assert_eq!(browser.get("/api/sessions").status, 200);
}

#[test]
fn what_nothing_is_said_of_is_listed_with_what_is_wrong() {
    let folder = Folder::new("ui-bare");
    fs::create_dir_all(folder.join("lost/thread_0")).expect("made");
    let (_viewer, browser) = view(folder.path(), &[]);
    let list = browser.json("/api/sessions");
    let one = &list["sessions"][0];
    assert_eq!((&one["name"], &one["state"]), (&"lost".into(), &"unreadable".into()), "{list}");
    assert!(one["wrong"].as_str().is_some_and(|words| words.contains("manifest.json")), "{list}");
    assert_eq!(browser.get("/api/s/lost/meta").status, 422);
}
