//! The relay between an agent and a fake collector.

use std::{collections::BTreeSet, time::Duration};

use codec::{Position, profile::EndReason};

use super::{Faults, Relay};
use crate::{Agent, Settings, agent::fake::Fake};

const LONG: Duration = Duration::from_secs(30);
const WINDOW: u64 = 40 << 10;

fn received(fake: &Fake) -> BTreeSet<(u32, u32)> {
    let state = fake.state();
    let positions = state.streams.iter().flat_map(|(id, stream)| stream.positions.iter().map(|at| (*id, *at)));
    positions.map(|(id, at)| (id, Position(at).counter().0)).collect()
}

#[test]
fn a_good_network_changes_nothing() {
    let fake = Fake::start(WINDOW, 0, true).expect("sockets");
    let relay = Relay::start(fake.udp, 1, Faults::default()).expect("a socket");
    let mut agent = Agent::start(Settings::udp(relay.address(), 1)).expect("it is heard");
    agent.work(2_000).expect("it is taken");
    agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
    assert_eq!(received(&fake).len(), 2_000);
    assert_eq!((relay.forwarded(), relay.lost().len(), relay.lost_options().len()), (received(&fake), 0, 0));
    assert_eq!(relay.datagrams().1, 0);
}

#[test]
fn it_knows_exactly_what_it_lost() {
    let fake = Fake::start(WINDOW, 0, false).expect("sockets");
    let faults = Faults {
        lose: 0.05,
        burst: 0.01,
        burst_datagrams: 4,
        double: 0.1,
        delay: 0.1,
        delay_at_most: Duration::from_millis(10),
        lose_answers: 0.1,
        ..Faults::default()
    };
    let relay = Relay::start(fake.udp, 2, faults).expect("a socket");
    let settings = Settings { replay: false, ..Settings::udp(relay.address(), 2) };
    let mut agent = Agent::start(settings).expect("it is heard");
    agent.work(4_000).expect("it is taken");
    agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
    let made = agent.all_made().map(|(stream, position, _)| (stream, Position(position).counter().0));
    let made: BTreeSet<_> = made.collect();
    let lost = relay.lost();
    assert!(lost.len() > 50, "only {} of {} events lost", lost.len(), made.len());
    assert_eq!(&made - &received(&fake), lost);
    assert_eq!(received(&fake), relay.forwarded());
}

#[test]
fn a_replay_makes_good_for_the_losses() {
    let fake = Fake::start(WINDOW, 0, true).expect("sockets");
    let faults = Faults { lose: 0.2, double: 0.1, lose_answers: 0.2, ..Faults::default() };
    let relay = Relay::start(fake.udp, 3, faults).expect("a socket");
    let mut agent = Agent::start(Settings::udp(relay.address(), 3)).expect("it is heard");
    agent.work(2_000).expect("it is taken");
    agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
    assert_eq!(received(&fake).len(), 2_000);
    assert!(relay.datagrams().1 > 10);
    assert_eq!((relay.lost().len(), relay.lost_options().len()), (0, 0));
}

#[test]
fn options_can_be_spared() {
    let fake = Fake::start(WINDOW, 0, false).expect("sockets");
    let faults = Faults { lose: 1.0, spare_options: true, ..Faults::default() };
    let relay = Relay::start(fake.udp, 4, faults).expect("a socket");
    let settings = Settings { replay: false, ..Settings::udp(relay.address(), 4) };
    let mut agent = Agent::start(settings).expect("it is heard");
    agent.work(200).expect("it is taken");
    agent.finish(EndReason::Exited(0), LONG).expect("it is acknowledged");
    assert!(relay.lost_options().is_empty());
    assert!(relay.lost().len() > 100, "{} lost", relay.lost().len());
}
