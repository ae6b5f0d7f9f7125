//! What goes wrong with a stream while sessions go through it.

use std::{
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tests::{
    Trace, Transport,
    python::skip,
    trace::{folders, indexed},
    wait::{LONG, eventually},
};

use crate::fleet::{agent, are_complete, finish, jetstream::Server, parts::Parts};

/// Two recorders call their only sessions by the same name, in a directory that both write to. When a third has to take both,
/// neither session gets what belongs to the other.
#[test]
fn recorders_that_give_the_same_name_mix_nothing() {
    let Some(server) = Server::start() else { return };
    for seed in (70..).step_by(2) {
        assert!(seed < 90, "the names were never the same");
        let parts = Parts::around(server.stream(&format!("NAMES{seed}")));
        let mut recorders = [parts.recorder(&["--max-sessions", "1"]), parts.recorder(&["--max-sessions", "1"])];
        let edge = parts.edge(&[]);
        let mut agents = [agent(&edge, Transport::Tcp, seed), agent(&edge, Transport::Tcp, seed + 1)];
        agents.iter_mut().for_each(|agent| agent.work(3_000).expect("it is taken"));
        parts.wait_for_start(2);
        let found = folders(parts.folder.path());
        if found[1].display().to_string() != format!("{}-2", found[0].display()) {
            continue;
        }
        recorders.iter_mut().for_each(|recorder| recorder.process().signal("KILL"));
        let third = parts.recorder(&[]);
        agents.iter_mut().for_each(|agent| agent.work(3_000).expect("it is taken"));
        finish(&mut agents);
        parts.wait_for(agents.len());
        are_complete(&parts.folder, &agents);
        let said = third.said();
        assert_eq!(said.lines().filter(|line| line.ends_with(" goes on")).count(), 2, "{said}");
        return;
    }
}

/// A cluster that loses its leader can store a message seconds after those that were sent behind it.
#[test]
fn a_message_that_comes_late_is_waited_for() {
    let Some(server) = Server::start() else { return };
    let parts = Parts::new(&server);
    let edge = parts.edge(&[]);
    let mut agents = [agent(&edge, Transport::Tcp, 95)];
    agents[0].work(5_000).expect("it is taken");
    agents[0].settle(LONG).expect("it is kept");
    let mut messages = server.take_messages("TEST");
    assert!(messages.len() > 5, "{} messages", messages.len());
    let late = messages.remove(2);
    messages.iter().for_each(|message| server.store(message));
    let recorder = parts.recorder(&["--log", "debug"]);
    eventually("it is missed", || recorder.said().contains("looking for a message that is missing"));
    server.store(&late);
    finish(&mut agents);
    parts.wait_for(1);
    are_complete(&parts.folder, &agents);
    recorder.stop().success();
}

/// The node that leads the stream stops for a minute, and comes back.
#[test]
fn a_node_may_stop_for_a_minute() {
    let Some(mut servers) = Server::cluster() else { return };
    let parts = Parts::around(Server::stream_of_all(&servers));
    let copies = ["--nats-replicas", "3"];
    let (edge, _recorder) = (parts.edge(&copies), parts.recorder(&copies));
    let mut agents = [agent(&edge, Transport::Tcp, 96), agent(&edge, Transport::Tcp, 97)];
    agents.iter_mut().for_each(|agent| agent.work(2_000).expect("it is taken"));
    parts.wait_for_start(agents.len());
    let leader = servers.iter_mut().find(|server| server.leads("TEST")).expect("one leads");
    leader.pause();
    let stopped = Instant::now();
    while stopped.elapsed() < Duration::from_secs(60) {
        for agent in &mut agents {
            agent.work(100).expect("it is taken");
            agent.listen(Duration::from_millis(250));
        }
    }
    agents.iter_mut().for_each(|agent| agent.settle(LONG).expect("others keep it"));
    leader.go_on();
    agents.iter_mut().for_each(|agent| agent.work(2_000).expect("it is taken"));
    finish(&mut agents);
    parts.wait_for(agents.len());
    are_complete(&parts.folder, &agents);
}

/// A stream that cannot be read says nothing of agents: they are not silent because its server hangs.
#[test]
fn a_server_that_hangs_makes_no_agent_silent() {
    let Some(mut server) = Server::start() else { return };
    let parts = Parts::new(&server);
    let (edge, recorder) = (parts.edge(&[]), parts.recorder(&["--session-timeout", "1s"]));
    let mut agents = [agent(&edge, Transport::Tcp, 103)];
    agents[0].work(2_000).expect("it is taken");
    parts.wait_for_start(1);
    server.pause();
    agents[0].work(1_000).expect("it is taken");
    let stopped = Instant::now();
    // Longer than any recorder waits for an agent that says nothing, unless it is told to.
    while stopped.elapsed() < Duration::from_secs(63) {
        agents[0].listen(Duration::from_millis(250));
    }
    server.go_on();
    finish(&mut agents);
    parts.wait_for(1);
    are_complete(&parts.folder, &agents);
    let exit = recorder.stop().success();
    assert!(!exit.stderr.contains("lost contact"), "{}", exit.stderr);
}

/// The edge's clock is a second behind, that of the recorder a second ahead, and that of the next a second behind again.
#[test]
fn clocks_may_be_a_second_apart() {
    let Some((server, library)) = Server::start().zip(clock_library()) else { return };
    let mut parts = Parts::new(&server);
    // Clocks that only count are the same everywhere.
    let clock = |shift: &str| {
        let library = ("LD_PRELOAD", library.display().to_string());
        vec![library, ("FAKETIME", shift.to_owned()), ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned())]
    };
    parts.variables = clock("-1s");
    let edge = parts.edge(&[]);
    parts.variables = clock("+1s");
    let first = parts.recorder(&[]);
    let started = SystemTime::now();
    let mut agents = [agent(&edge, Transport::Tcp, 98), agent(&edge, Transport::Tcp, 99)];
    agents.iter_mut().for_each(|agent| agent.work(3_000).expect("it is taken"));
    parts.wait_for_start(agents.len());
    first.kill();
    parts.variables = clock("-1s");
    let second = parts.recorder(&[]);
    agents.iter_mut().for_each(|agent| agent.work(3_000).expect("it is taken"));
    finish(&mut agents);
    parts.wait_for(agents.len());
    are_complete(&parts.folder, &agents);
    for trace in Trace::all(parts.folder.path()) {
        let seen = UNIX_EPOCH + Duration::from_nanos(trace.manifest.seen_unix_ns.expect("it is told"));
        assert!(seen > started + Duration::from_secs(1), "the first recorder's clock is ahead");
    }
    second.stop().success();
}

/// What gives a program another clock.
fn clock_library() -> Option<PathBuf> {
    let found = tests::foreign::matching("/usr/lib/", "/faketime/libfaketime.so.1");
    if found.is_none() {
        skip("faketime");
    }
    found
}

/// Somebody removes the bucket in which recorders say who records what.
#[test]
fn a_bucket_that_is_removed_is_made_again() {
    const BUCKET: &str = "KV_TEST-sessions";
    let Some(server) = Server::start() else { return };
    let parts = Parts::new(&server);
    let (edge, recorder) = (parts.edge(&[]), parts.recorder(&[]));
    let mut agents = vec![agent(&edge, Transport::Tcp, 100), agent(&edge, Transport::Tcp, 101)];
    agents.iter_mut().for_each(|agent| agent.work(3_000).expect("it is taken"));
    parts.wait_for_start(agents.len());
    server.remove_stream(BUCKET);
    eventually("it is noticed", || recorder.said().contains("somebody has removed the bucket TEST-sessions"));
    agents.iter_mut().for_each(|agent| agent.work(3_000).expect("it is taken"));
    finish(&mut agents);
    parts.wait_for(agents.len());
    recorder.stop().success();
    // Nobody is left who could tell of this one.
    let mut late = [agent(&edge, Transport::Tcp, 102)];
    late[0].work(3_000).expect("it is taken");
    finish(&mut late);
    edge.kill();
    server.remove_stream(BUCKET);
    let recorder = parts.recorder(&[]);
    agents.extend(late);
    parts.wait_for(agents.len());
    are_complete(&parts.folder, &agents);
    assert!(recorder.said().contains("its record was removed: it is recorded all the same"), "{}", recorder.said());
    recorder.stop().success();
}

/// One of three nodes hangs for longer than recorders hold their sessions, while sessions go on and others begin.
#[test]
fn a_server_that_hangs_holds_nobody_up() {
    let Some(mut servers) = Server::cluster() else { return };
    let parts = Parts::around(Server::stream_of_all(&servers));
    let copies = ["--nats-replicas", "3"];
    let (edge, _recorder) = (parts.edge(&copies), parts.recorder(&copies));
    let mut agents = vec![agent(&edge, Transport::Tcp, 110)];
    for server in &mut servers {
        agents.iter_mut().for_each(|agent| agent.work(1_000).expect("it is taken"));
        server.pause();
        // The others may take seconds to agree on who leads now.
        for _ in 0..4 {
            agents.push(agent(&edge, Transport::Tcp, 110 + agents.len() as u64));
            agents.iter_mut().for_each(|agent| agent.work(1_000).expect("it is taken"));
            agents.iter_mut().for_each(|agent| agent.listen(Duration::from_millis(300)));
        }
        agents.iter_mut().for_each(|agent| agent.settle(LONG).expect("others keep it"));
        server.go_on();
        server.wait_until_whole();
    }
    finish(&mut agents);
    parts.wait_for(agents.len());
    are_complete(&parts.folder, &agents);
}

/// What was in a stream that somebody removes is lost, unless a recorder has read it. Both sides say so, and all goes on.
#[test]
fn a_stream_that_is_removed_is_made_again() {
    let Some(server) = Server::start() else { return };
    let parts = Parts::new(&server);
    let (mut edge, mut recorder) = (parts.edge(&[]), parts.recorder(&[]));
    let mut agents = [agent(&edge, Transport::Tcp, 92)];
    agents[0].work(2_000).expect("it is taken");
    agents[0].settle(LONG).expect("it is kept");
    let events = agents[0].report().events;
    let recorded = |folder: &PathBuf| (0..16).map(|thread| indexed(folder, thread)).sum::<u64>();
    eventually("it is recorded", || folders(parts.folder.path()).first().map(recorded) == Some(events));
    server.remove_stream("TEST");
    eventually("both say so", || {
        agents[0].work(100).expect("it is taken");
        agents[0].listen(Duration::from_millis(100));
        edge.process().said().contains("there is no such stream any more")
            && recorder.process().said().contains("was removed and made anew")
    });
    finish(&mut agents);
    parts.wait_for(1);
    are_complete(&parts.folder, &agents);
}

/// Readers of a recorder that was killed are forgotten, and those of one that ends are removed.
#[test]
fn readers_do_not_stay_behind() {
    let Some(server) = Server::start() else { return };
    let parts = Parts::new(&server);
    let (edge, recorder) = (parts.edge(&[]), parts.recorder(&[]));
    let mut agents = [agent(&edge, Transport::Tcp, 93), agent(&edge, Transport::Tcp, 94)];
    agents.iter_mut().for_each(|agent| agent.work(500).expect("it is taken"));
    eventually("both are read", || server.count_readers("TEST") == 2);
    recorder.kill();
    let _recorder = parts.recorder(&[]);
    finish(&mut agents);
    parts.wait_for(agents.len());
    eventually("none is left", || server.count_readers("TEST") == 0);
    are_complete(&parts.folder, &agents);
}

/// An edge that is stopped while JetStream takes nothing says what that is.
#[test]
fn an_edge_speaks_of_jetstream_and_not_of_a_disk() {
    let Some(mut server) = Server::start() else { return };
    let parts = Parts::new(&server);
    let edge = parts.edge(&[]);
    let mut agents = [agent(&edge, Transport::Tcp, 95)];
    agents[0].work(500).expect("it is taken");
    agents[0].settle(LONG).expect("it is kept");
    server.pause();
    agents[0].work(500).expect("it is taken");
    let line = edge.wait_for("JetStream takes no events, and agents keep them");
    assert!(!line.contains("is counted"), "{line}");
    let (address, exit) = (edge.tcp(), edge.stop());
    assert!(exit.stderr.contains("received (JetStream has not taken all of them)"), "{}", exit.stderr);
    assert!(
        exit.stderr.contains("JetStream has not taken everything: agents that still run keep the rest"),
        "{}",
        exit.stderr
    );
    assert!(!exit.stderr.contains("disk") && !exit.stderr.contains(" written"), "{}", exit.stderr);
    server.go_on();
    let (edge, _recorder) = (parts.edge_at(address, &[]), parts.recorder(&[]));
    finish(&mut agents);
    parts.wait_for(1);
    are_complete(&parts.folder, &agents);
    edge.stop().success();
}
