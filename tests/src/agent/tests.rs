//! The agent against a fake collector.

use std::{io::ErrorKind, time::Duration};

use codec::profile::EndReason;

use super::{Agent, Fate, Settings, fake::Fake};

const LONG: Duration = Duration::from_secs(20);
const WINDOW: u64 = 40 << 10;

fn positions(fake: &Fake) -> Vec<(u32, Vec<u64>)> {
    let state = fake.state();
    state.streams.iter().map(|(id, stream)| (*id, stream.positions.iter().copied().collect())).collect()
}

fn sent(agent: &Agent) -> Vec<(u32, Vec<u64>)> {
    let of = |stream: u32| {
        let made = agent.all_made().filter(|(id, _, made)| *id == stream && made.fate == Fate::Sent);
        (stream, made.map(|(_, position, _)| position).collect())
    };
    (0..agent.settings().streams).map(of).collect()
}

#[test]
fn everything_arrives_over_both_transports() {
    let fake = Fake::start(WINDOW, 0, true).expect("sockets");
    for settings in [Settings::udp(fake.udp, 1), Settings::tcp(fake.tcp, 2)] {
        fake.state().streams.clear();
        let mut agent = Agent::start(settings).expect("it is heard");
        agent.work(5_000).expect("it is taken");
        agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
        assert_eq!(positions(&fake), sent(&agent));
        assert_eq!(agent.in_flight_bytes(), 0);
        assert!(!agent.history().is_empty());
    }
    let expected = ["clock", "end", "epoch", "functions", "module", "progress", "session", "thread"];
    assert!(fake.state().options.iter().eq(expected));
}

#[test]
fn what_is_asked_for_is_sent_again() {
    let fake = Fake::start(WINDOW, 7, true).expect("sockets");
    let mut agent = Agent::start(Settings::udp(fake.udp, 3)).expect("it is heard");
    agent.work(3_000).expect("it is taken");
    agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
    assert_eq!(positions(&fake), sent(&agent));
    assert!(agent.nacked_events() > 100);
}

#[test]
fn without_replay_what_is_lost_stays_lost() {
    let fake = Fake::start(WINDOW, 10, false).expect("sockets");
    let settings = Settings { replay: false, ..Settings::udp(fake.udp, 4) };
    let mut agent = Agent::start(settings).expect("it is heard");
    agent.work(300).expect("it is taken");
    agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
    let received: usize = positions(&fake).iter().map(|(_, positions)| positions.len()).sum();
    assert_eq!(received, 270);
}

#[test]
fn the_window_is_honoured() {
    let fake = Fake::start(4 << 10, 0, true).expect("sockets");
    let mut agent = Agent::start(Settings::tcp(fake.tcp, 5)).expect("it is heard");
    agent.work(5_000).expect("it is taken");
    agent.finish(EndReason::Detached, LONG).expect("it is acknowledged");
    let largest = fake.state().largest_burst;
    assert!((1..=4 << 10).contains(&largest), "{largest} bytes came at once");
}

#[test]
fn drops_are_told_and_losses_are_not() {
    let fake = Fake::start(WINDOW, 0, false).expect("sockets");
    let mut agent = Agent::start(Settings::udp(fake.udp, 6)).expect("it is heard");
    agent.work(100).expect("it is taken");
    agent.lose_events(0, 5);
    assert!(!fake.state().options.contains("drops"));
    agent.drop_events(1, 7, "ring-full").expect("it is sent");
    agent.work(100).expect("it is taken");
    agent.finish(EndReason::Exited(1), LONG).expect("it is acknowledged");
    assert_eq!(positions(&fake), sent(&agent));
    assert!(fake.state().options.contains("drops"));
    let lost = agent.made(0).iter().filter(|made| made.fate == Fate::Lost).count();
    let dropped = agent.made(1).iter().filter(|made| made.fate == Fate::Dropped("ring-full")).count();
    assert_eq!((lost, dropped, agent.made(0).len(), agent.made(1).len()), (5, 7, 105, 107));
}

#[test]
fn positions_go_past_the_wrap() {
    let fake = Fake::start(WINDOW, 9, true).expect("sockets");
    let first_position = (1 << 32) - 500;
    let settings = Settings { first_position, streams: 1, ..Settings::udp(fake.udp, 7) };
    let mut agent = Agent::start(settings).expect("it is heard");
    agent.work(1_000).expect("it is taken");
    agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
    assert!(positions(&fake)[0].1.iter().copied().eq(first_position..first_position + 1_000));
}

#[test]
fn a_new_connection_resumes_where_the_old_one_broke() {
    for over_tcp in [true, false] {
        // Each has a collector of its own: an old connection may still have something to say.
        let fake = Fake::start(WINDOW, 0, true).expect("sockets");
        let settings = if over_tcp { Settings::tcp(fake.tcp, 8) } else { Settings::udp(fake.udp, 9) };
        let mut agent = Agent::start(settings).expect("it is heard");
        for _ in 0..3 {
            agent.work(1_000).expect("it is taken");
            agent.reconnect().expect("it is heard again");
        }
        agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
        assert_eq!(positions(&fake), sent(&agent));
        assert_eq!(fake.state().peers.len(), 4);
    }
}

#[test]
fn silence_is_an_error_and_not_a_hang() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = nobody.local_addr().expect("an address");
    let settings = Settings { patience: Duration::from_millis(200), ..Settings::udp(to, 10) };
    assert_eq!(Agent::start(settings).expect_err("nobody answers").kind(), ErrorKind::TimedOut);
}
