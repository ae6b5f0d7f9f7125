//! What collectors say when NATS does not do what they need.

use std::time::Duration;

use tests::{Transport, collector::run, wait::eventually};

use crate::fleet::{agent, are_complete, finish, jetstream::Server, parts::Parts};

#[test]
fn who_is_not_let_in_says_so() {
    let Some(server) = Server::with(&["--user", "me", "--pass", "secret"]) else { return };
    let address = server.address();
    for stream in [format!("nats://{address}/T"), format!("nats://me:wrong@{address}/T")] {
        for way in [&["--listen", "127.0.0.1:0", "--sink", &stream][..], &["--source", &stream]] {
            let exit = run(way);
            assert_eq!(exit.code, Some(1), "{way:?}: {}", exit.stderr);
            assert!(exit.stderr.contains("authorization violation"), "{}", exit.stderr);
            assert!(!exit.stderr.contains("wrong"), "passwords are not printed: {}", exit.stderr);
        }
    }
    let parts = Parts::around(format!("nats://me:secret@{address}/T"));
    let (edge, _recorder) = (parts.edge(&[]), parts.recorder(&[]));
    let mut agents = [agent(&edge, Transport::Tcp, 50)];
    finish(&mut agents);
    parts.wait_for(1);
    are_complete(&parts.folder, &agents);
    let exit = edge.stop().success();
    assert!(!exit.stderr.contains("secret"), "{}", exit.stderr);
}

#[test]
fn wrong_arguments_are_told() {
    for (arguments, said) in [
        (&["--sink", "nats://127.0.0.1/a.b"][..], "expected nats://HOST"),
        (&["--sink", "nats://127.0.0.1:99999/T"], "\"99999\" is no port"),
        (&["--sink", "nats://127.0.0.1/T,on-full=drop"], "drops nothing"),
        (&["--source", "nats://127.0.0.1/T", "--listen", "127.0.0.1:0"], "cannot be used with"),
        (&["--source", "nats://127.0.0.1/T", "--nats-lease", "1ms"], "expected from 1s"),
    ] {
        let exit = run(arguments);
        assert_eq!(exit.code, Some(2), "{arguments:?}: {}", exit.stderr);
        assert!(exit.stderr.contains(said), "{arguments:?}: {}", exit.stderr);
    }
    let exit = run(&["--source", "nats://127.0.0.1/T", "--sink", "stdout:events"]);
    assert!(exit.stderr.contains("--source needs a disk: sink"), "{}", exit.stderr);
}

/// A stream that takes no more: agents wait, and nothing is lost when a recorder makes room.
#[test]
fn a_full_stream_is_told_and_loses_nothing() {
    let Some(server) = Server::start() else { return };
    fill(&Parts::new(&server), "1");
}

/// The same with three copies. A server that refuses a message there may take it for stored when it comes again.
#[test]
fn a_full_stream_of_several_copies_loses_nothing() {
    let Some(servers) = Server::cluster() else { return };
    fill(&Parts::around(Server::stream_of_all(&servers)), "3");
}

fn fill(parts: &Parts, copies: &str) {
    let settings = ["--nats-max-bytes", "4MiB", "--nats-replicas", copies];
    let mut edge = parts.edge(&settings);
    let mut agents = [agent(&edge, Transport::Tcp, 60)];
    eventually("the stream is full", || {
        // Less than the agent can keep.
        agents[0].work(2_000).expect("it is taken");
        agents[0].listen(Duration::from_millis(150));
        edge.process().said().contains("the stream is full")
    });
    let _recorder = parts.recorder(&settings);
    agents[0].work(5_000).expect("it is taken");
    finish(&mut agents);
    parts.wait_for(1);
    are_complete(&parts.folder, &agents);
    assert!(edge.stop().success().stderr.contains("works again"));
}

/// A stream that somebody else has made, and that would lose events, is not used.
#[test]
fn a_stream_that_would_lose_events_is_refused() {
    let Some(server) = Server::start() else { return };
    for (name, settings, said) in [
        ("OLD", r#""discard": "old""#, "discard: old"),
        ("INTEREST", r#""discard": "new", "retention": "interest""#, "retention is not limits"),
        ("FEW", r#""discard": "new", "max_msgs_per_subject": 5"#, "max_msgs_per_subject"),
        ("SMALL", r#""discard": "new", "max_msg_size": 1000"#, "max_msg_size"),
    ] {
        server.make_stream(name, settings);
        let exit = run(&["--listen", "127.0.0.1:0", "--sink", &server.stream(name)]);
        assert_eq!(exit.code, Some(1), "{name}: {}", exit.stderr);
        assert!(exit.stderr.contains(said), "{name}: {}", exit.stderr);
    }
}
