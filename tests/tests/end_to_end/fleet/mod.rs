//! Sessions that go through real NATS servers, from the collectors that receive them to those that record them.

mod crossing;
mod jetstream;
mod parts;
mod trouble;
mod words;

use codec::profile::EndReason;
use tests::{
    Agent, Collector, Folder, Settings, Trace, Transport, account,
    collector::verified,
    trace::folders,
    wait::{LONG, eventually},
};

use crate::fleet::{jetstream::Server, parts::Parts};

/// Fails the test unless these agents' sessions are in a folder, each once, whole and sound, and nothing else.
#[track_caller]
fn are_complete(below: &Folder, agents: &[Agent]) {
    for agent in agents {
        let trace = Trace::of(below.path(), agent.session());
        account::complete(&trace, agent.program());
        verified(&trace.folder);
    }
    assert_eq!(Trace::all(below.path()).len(), agents.len(), "each session is there once");
}

/// An agent that sends to this edge. Servers may be away for longer than agents otherwise wait.
fn agent(edge: &Collector, transport: Transport, seed: u64) -> Agent {
    let settings = Settings { patience: LONG, ..Settings::new(edge, transport, seed) };
    Agent::start(settings).expect("it is heard")
}

/// Ends the sessions of agents.
#[track_caller]
fn finish(agents: &mut [Agent]) {
    for agent in agents {
        agent.finish(EndReason::Exited(0), LONG).expect("the collector acknowledges all of it");
    }
}

#[test]
fn sessions_go_through_jetstream() {
    let Some(server) = Server::start() else { return };
    let parts = Parts::new(&server);
    let (edge, recorder) = (parts.edge(&[]), parts.recorder(&[]));
    let kinds = [(1, Transport::Udp), (2, Transport::Tcp), (3, Transport::Udp)];
    let mut agents: Vec<_> = kinds.map(|(seed, transport)| agent(&edge, transport, seed)).into();
    for _ in 0..20 {
        agents.iter_mut().for_each(|agent| agent.work(500).expect("it is taken"));
    }
    agents.iter_mut().for_each(|agent| agent.drop_events(0, 7, "test"));
    finish(&mut agents);
    parts.wait_for(agents.len());
    are_complete(&parts.folder, &agents);
    recorder.stop().success();
    // What is recorded is not recorded again, by whomever.
    let other = Folder::new("fleet-other");
    let recorder = parts.recorder_to(other.path(), &[]);
    let mut late = [agent(&edge, Transport::Tcp, 4)];
    finish(&mut late);
    parts.wait_for_in(other.path(), 1);
    are_complete(&other, &late);
    recorder.stop().success();
    edge.stop().success();
}

/// While JetStream takes nothing, agents keep everything, and an edge that is killed takes nothing along.
#[test]
fn an_edge_keeps_nothing_that_its_agents_do_not() {
    let Some(mut server) = Server::start() else { return };
    let parts = Parts::new(&server);
    let edge = parts.edge(&[]);
    let mut agents = [Transport::Udp, Transport::Tcp].map(|transport| agent(&edge, transport, 10 + transport as u64));
    agents.iter_mut().for_each(|agent| agent.work(2_000).expect("it is taken"));
    agents.iter_mut().for_each(|agent| agent.settle(LONG).expect("it is kept"));
    server.pause();
    // Less than agents can keep.
    agents.iter_mut().for_each(|agent| agent.work(1_000).expect("it is taken"));
    agents.iter_mut().for_each(|agent| agent.listen(std::time::Duration::from_millis(300)));
    let address = edge.tcp();
    edge.kill();
    server.go_on();
    let edge = parts.edge_at(address, &[]);
    let _recorder = parts.recorder(&[]);
    agents.iter_mut().for_each(|agent| agent.work(1_000).expect("it is taken"));
    finish(&mut agents);
    parts.wait_for(agents.len());
    are_complete(&parts.folder, &agents);
    // The second edge does not miss what the first has handed on.
    let exit = edge.stop().success();
    assert!(exit.stderr.contains(" + 0 missing"), "{}", exit.stderr);
}

/// The first recorder dies. Who shares its directory goes on where its files end, with what the stream still has.
#[test]
fn a_recorder_goes_on_where_another_was_killed() {
    let Some(server) = Server::start() else { return };
    let parts = Parts::new(&server);
    let (edge, first) = (parts.edge(&[]), parts.recorder(&[]));
    let mut agents: Vec<_> = (20..23).map(|seed| agent(&edge, Transport::Tcp, seed)).collect();
    agents.iter_mut().for_each(|agent| agent.work(5_000).expect("it is taken"));
    parts.wait_for_start(agents.len());
    first.kill();
    let second = parts.recorder(&[]);
    agents.iter_mut().for_each(|agent| agent.work(5_000).expect("it is taken"));
    finish(&mut agents);
    parts.wait_for(agents.len());
    are_complete(&parts.folder, &agents);
    second.stop().success();
}

/// The same where each has a disk of its own: the second records from the beginning, and what the first had is removed when it
/// comes back.
#[test]
fn a_recorder_with_a_disk_of_its_own_starts_from_the_beginning() {
    let Some(server) = Server::start() else { return };
    let parts = Parts::new(&server);
    let (edge, first) = (parts.edge(&[]), parts.recorder(&[]));
    let mut agents = [agent(&edge, Transport::Udp, 30)];
    agents[0].work(5_000).expect("it is taken");
    parts.wait_for_start(1);
    first.kill();
    let other = Folder::new("fleet-own");
    let second = parts.recorder_to(other.path(), &[]);
    agents[0].work(5_000).expect("it is taken");
    finish(&mut agents);
    parts.wait_for_in(other.path(), 1);
    are_complete(&other, &agents);
    assert_eq!(folders(parts.folder.path()).len(), 1, "half of it is still here");
    let first = parts.recorder(&[]);
    eventually("the half is removed", || folders(parts.folder.path()).is_empty());
    first.stop().success();
    second.stop().success();
}

/// Three nodes with three copies: each of them, an edge and a recorder are killed and started again in turn.
#[test]
fn everything_may_be_killed_in_turn() {
    let Some(mut servers) = Server::cluster() else { return };
    let parts = Parts::around(Server::stream_of_all(&servers));
    let copies = ["--nats-replicas", "3"];
    let mut edge = parts.edge(&copies);
    let mut recorders = [parts.recorder(&copies), parts.recorder(&copies)];
    let address = edge.tcp();
    let mut agents = [(40, Transport::Udp), (41, Transport::Tcp), (42, Transport::Tcp)]
        .map(|(seed, transport)| agent(&edge, transport, seed));
    for round in 0..6_usize {
        agents.iter_mut().for_each(|agent| agent.work(1_500).expect("it is taken"));
        match servers.get_mut(round) {
            Some(server) => {
                server.restart();
                server.wait_until_whole();
            }
            None if round == 3 => {
                edge.kill();
                edge = parts.edge_at(address, &copies);
            }
            None => {
                let [first, second] = recorders;
                first.kill();
                recorders = [second, parts.recorder(&copies)];
            }
        }
    }
    agents.iter_mut().for_each(|agent| agent.work(1_500).expect("it is taken"));
    finish(&mut agents);
    parts.wait_for(agents.len());
    are_complete(&parts.folder, &agents);
}
