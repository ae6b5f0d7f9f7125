//! Who may send: all others are told why not, counted, and leave nothing behind.

use std::{fs, os::unix::fs::PermissionsExt, process::Command, time::Duration};

use codec::access::Pin;
use tests::{
    Agent, Collector, Folder, Identity, Process, Settings, Transport,
    collector::{binary, run},
    identity::TOKEN,
    process::Stdout,
};
use tunnel::{Setup, Trust};

use crate::service::{eventually, is_complete, trace};

use Transport::{Quic, Tcp, Tls, Udp};

/// Long enough for a handshake, and not for the patience of a test.
const PATIENCE: Duration = Duration::from_secs(3);

/// A collector with these arguments, who is to be refused by it and why, and what is counted then.
struct Siege {
    folder: Folder,
    collector: Collector,
    refused: f64,
}

impl Siege {
    #[track_caller]
    fn start(arguments: &[String]) -> Self {
        let mut all: Vec<_> = arguments.iter().map(String::as_str).collect();
        all.extend(["--metrics", "127.0.0.1:0"]);
        let (folder, collector) = Collector::in_folder("access", &all);
        Self { folder, collector, refused: 0.0 }
    }

    /// Fails the test unless this agent is refused, both sides say why, and it is counted as this.
    #[track_caller]
    fn refuses(&mut self, settings: Settings, agent_says: &str, collector_says: &str, what: &str) {
        let settings = Settings { patience: PATIENCE, ..settings };
        let transport = settings.transport;
        let error = Agent::start(settings).expect_err(agent_says).to_string();
        assert!(error.contains(agent_says), "{transport}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        let line = self.collector.wait_for(collector_says);
        assert!(line.starts_with("refused "), "{line}");
        let counted = || self.collector.metrics().labelled("spoor_refused_total", "what", what);
        eventually("it is counted", || counted().is_some_and(|counted| counted > self.refused));
        self.refused = counted().unwrap_or(0.0);
    }

    /// Starts to count something else.
    fn counts_anew(&mut self) -> &mut Self {
        self.refused = 0.0;
        self
    }

    /// Fails the test if there is anything of those who were refused.
    #[track_caller]
    fn has_nothing(self) {
        assert_eq!(self.collector.metrics().sum("spoor_sessions_total"), Some(0.0));
        self.collector.stop().success();
        assert_eq!(Folder::tree(self.folder.path()), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn nobody_gets_in_without_the_token() {
    let identity = Identity::new();
    let mut siege = Siege::start(&identity.guarded());
    for transport in [Tls, Quic] {
        let to = siege.collector.address(transport);
        let wrong = Setup { token: Some(identity.token("other-token")), ..identity.setup(transport) };
        siege.refuses(Settings::encrypted(to, &wrong, 1), "is not the collector's", "a wrong token", "tokens");
        let none = Setup { token: None, ..identity.setup(transport) };
        siege.refuses(Settings::encrypted(to, &none, 2), "wants a token", "no token", "tokens");
    }
    assert_eq!(siege.refused, 4.0);
    siege.has_nothing();
}

#[test]
fn a_collector_that_is_not_who_it_should_be_gets_nothing() {
    let identity = Identity::new();
    let mut siege = Siege::start(&identity.certified("collector"));
    let refused = "does not accept this collector's certificate";
    for transport in [Tls, Quic] {
        let (to, setup) = (siege.collector.address(transport), identity.setup(transport));
        let wrong = Setup { trust: Trust::Pin(Pin([7; 32])), ..setup.clone() };
        siege.refuses(Settings::encrypted(to, &wrong, 3), "not that of --tls-pin", refused, "handshakes");
        let wrong = Setup { trust: Trust::Authority(identity.file("other-ca.pem")), ..setup.clone() };
        siege.refuses(Settings::encrypted(to, &wrong, 4), "not issued by an authority", refused, "handshakes");
        let wrong = Setup { name: "elsewhere".into(), ..setup };
        siege.refuses(Settings::encrypted(to, &wrong, 5), "not for elsewhere", refused, "handshakes");
    }
    siege.has_nothing();
    let mut siege = Siege::start(&identity.certified("expired"));
    for transport in [Tls, Quic] {
        let to = siege.collector.address(transport);
        let settings = Settings::encrypted(to, &identity.setup(transport), 6);
        siege.refuses(settings, "it has expired", refused, "handshakes");
    }
    siege.has_nothing();
}

#[test]
fn who_encrypts_and_who_does_not_are_told_apart() {
    let identity = Identity::new();
    let mut siege = Siege::start(&identity.certified("collector"));
    for (transport, seed) in [Tcp, Udp].into_iter().zip(7..) {
        let settings = Settings::new(&siege.collector, transport, seed);
        siege.refuses(settings, "takes encrypted connections only", "it does not encrypt", "plain_senders");
    }
    siege.has_nothing();
    let mut siege = Siege::start(&[]);
    for (transport, said) in [(Tls, "does not answer in TLS"), (Quic, "with --tls running there")] {
        let to = siege.collector.address(transport);
        let settings = Settings::encrypted(to, &identity.setup(transport), 9);
        siege.refuses(settings, said, "and this collector has no --tls", "encrypted_senders");
    }
    siege.has_nothing();
}

#[test]
fn senders_can_be_known_by_certificates() {
    let identity = Identity::new();
    let wanted = [identity.certified("collector"), vec!["--tls-ca".into(), identity.path("ca.pem")]].concat();
    let mut siege = Siege::start(&wanted);
    let mut agents = Vec::new();
    for (transport, seed) in [Tls, Quic].into_iter().zip(10..) {
        let (to, setup) = (siege.collector.address(transport), identity.setup(transport));
        let none = Settings::encrypted(to, &setup, seed);
        siege.refuses(none, "wants a certificate", "which --tls-ca demands", "handshakes");
        let shown = Setup { identity: Some((identity.file("agent.pem"), identity.file("agent.key"))), ..setup.clone() };
        agents.push(trace(Settings::encrypted(to, &shown, seed), 500));
        let expired = Some((identity.file("expired.pem"), identity.file("expired.key")));
        let expired = Settings::encrypted(to, &Setup { identity: expired, ..setup }, seed);
        siege.counts_anew().refuses(expired, "refuses the certificate of --tls-cert", "expired", "handshakes");
    }
    siege.collector.stop().success();
    agents.iter().for_each(|agent| drop(is_complete(siege.folder.path(), agent)));
}

#[test]
fn the_token_is_written_nowhere() {
    let identity = Identity::new();
    let (folder, heph) = (Folder::new("secret"), Folder::new("secret-heph"));
    let sink = format!("heph:{}", heph.join("all.heph").display());
    // A collector that wants to see none does not write it either.
    for guard in [identity.guarded(), identity.certified("collector")] {
        let mut arguments: Vec<_> = guard.iter().map(String::as_str).collect();
        arguments.extend(["--sink", &sink, "--log", "debug"]);
        let collector = Collector::to_disk(folder.path(), &arguments);
        for (transport, seed) in [Tls, Quic].into_iter().zip(20..) {
            let to = collector.address(transport);
            let wrong = Setup { token: Some(identity.token("other-token")), ..identity.setup(transport) };
            drop(Agent::start(Settings { patience: PATIENCE, ..Settings::encrypted(to, &wrong, seed) }));
            trace(Settings::encrypted(to, &identity.setup(transport), seed), 500);
        }
        let exit = collector.stop();
        assert!(!exit.stderr.contains(TOKEN) && !exit.stderr.contains("another token"), "{}", exit.stderr);
        for (path, bytes) in Folder::contents(folder.path()).into_iter().chain(Folder::contents(heph.path())) {
            for token in [TOKEN, "another token"] {
                let found = bytes.windows(token.len()).any(|window| window == token.as_bytes());
                assert!(!found, "a token in {}", path.display());
            }
        }
    }
}

/// Starts a collector with a home of its own, and returns what it said once it listens.
fn in_home(home: &Folder, arguments: &[&str]) -> (Process, Vec<String>) {
    let mut command = Command::new(binary());
    command.args(arguments).args(["--sink", &format!("disk:{}", home.join("traces").display())]);
    command.env("XDG_STATE_HOME", home.path());
    let process = Process::start(command, Stdout::Collect);
    let listens = |lines: &[String]| lines.iter().any(|line| line.starts_with("writing to ")).then(|| lines.to_vec());
    let lines = process.find(Duration::from_secs(30), listens);
    let lines = lines.unwrap_or_else(|| panic!("it does not listen: {}", process.said()));
    (process, lines)
}

#[test]
fn a_certificate_of_its_own_is_made_once() {
    let home = Folder::new("home");
    let pins = [(); 2].map(|()| {
        let (mut process, lines) = in_home(&home, &["--listen", "127.0.0.1:0", "--tls", "self"]);
        process.signal("INT");
        process.exit(PATIENCE).success();
        let pin = lines.iter().find_map(|line| line.strip_prefix("certificate ")).expect("it says so");
        pin.parse::<Pin>().expect("as agents want it")
    });
    assert_eq!(pins[0], pins[1]);
    let mode = |name: &str| home.join(name).metadata().expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode("spoor"), mode("spoor/collector.pem")), (0o700, 0o600));
    assert_eq!(Folder::tree(&home.join("spoor")).len(), 1, "nothing else is left");
}

#[test]
fn strangers_are_warned_of_once_and_only_where_there_may_be_some() {
    let (home, identity) = (Folder::new("home"), Identity::new());
    let guard = identity.guarded();
    let guarded: Vec<_> = guard.iter().map(String::as_str).collect();
    for (listen, arguments, warned) in [
        ("0.0.0.0:0", &[][..], 1),
        ("0.0.0.0:0", &guarded[..4], 1),
        ("0.0.0.0:0", &guarded, 0),
        ("127.0.0.1:0", &[], 0),
        ("[::1]:0", &[], 0),
    ] {
        let (_process, lines) = in_home(&home, &[&["--listen", listen][..], arguments].concat());
        let warnings = lines.iter().filter(|line| line.starts_with("anybody who can reach ")).count();
        assert_eq!(warnings, warned, "{listen} {arguments:?}: {lines:?}");
    }
}

#[test]
fn what_does_not_fit_together_is_refused_at_the_start() {
    let identity = Identity::new();
    let (token, open) = (identity.path("token"), identity.path("open"));
    fs::write(&open, "token").expect("room");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let (certificate, key, nothing) =
        (identity.path("collector.pem"), identity.path("agent.key"), identity.path("none"));
    for (arguments, said) in [
        (&["--token-file", &token][..], "a token travels only encrypted"),
        (&["--tls", "self", "--token-file", &open], "others may read it (mode 644)"),
        (&["--tls", "self", "--token-file", &nothing], "openssl rand"),
        (&["--tls-ca", &certificate], "--tls-ca is about TLS"),
        (&["--tls-cert", &certificate, "--tls-key", &key], "collector.pem"),
        (&["--tls-cert", &nothing, "--tls-key", &key], "none"),
        (&["--tls-cert", &key, "--tls-key", &key], "there is no certificate in it"),
    ] {
        let mut command = Command::new(binary());
        command.args(arguments).args(["--listen", "127.0.0.1:0"]).env("XDG_STATE_HOME", identity.path("state"));
        let exit = Process::start(command, Stdout::Collect).exit(PATIENCE);
        assert_eq!(exit.code, Some(1), "{arguments:?}: {}", exit.stderr);
        assert!(exit.stderr.contains(said) && exit.stderr.lines().count() == 1, "{arguments:?}: {}", exit.stderr);
    }
    assert_eq!(run(&["--tls-cert", &certificate]).code, Some(2));
}
