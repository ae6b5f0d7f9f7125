//! The relay between two sockets.

use std::{collections::BTreeSet, net::UdpSocket, time::Duration};

use codec::{
    heph::{Encode, Packets},
    profile::{Epoch, Message, ProfileOption},
};

use super::{Faults, Relay};
use crate::agent::Program;

/// How long a datagram may take.
const WAIT: Duration = Duration::from_millis(300);

/// What came out of a relay: events by stream and counter, and how many options.
#[derive(Debug, Default)]
struct Received {
    events: BTreeSet<(u32, u32)>,
    options: usize,
}

/// Sends events through a relay, ten to a datagram, the given number of times, each round with an option at its end.
fn through(faults: Faults, events: u32, rounds: u64) -> (Relay, Received) {
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let relay = Relay::start(collector.local_addr().expect("an address"), 1, faults).expect("a socket");
    let agent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut program = Program::new(2, 0, 8);
    let packets: Vec<Vec<u8>> = (0..events)
        .map(|number| {
            let (position, made) = program.step(number % 2);
            let mut packet = Vec::new();
            made.with_event(number % 2, position, |event| event.encode(&mut packet)).expect("it fits a packet");
            packet
        })
        .collect();
    let mut received = Received::default();
    for round in 0..rounds {
        let mut option = Vec::new();
        ProfileOption::from(Epoch { unix_ns: round }).encode(&mut option).expect("it fits a packet");
        for datagram in packets.chunks(10).map(<[_]>::concat).chain([option]) {
            agent.send_to(&datagram, relay.address()).expect("it is sent");
            // No socket's buffer holds all of them.
            received.take(&collector, Duration::from_micros(100));
        }
    }
    received.take(&collector, WAIT);
    (relay, received)
}

impl Received {
    /// Takes what has come, until nothing more comes for so long.
    fn take(&mut self, collector: &UdpSocket, wait: Duration) {
        collector.set_read_timeout(Some(wait)).expect("a timeout");
        let mut buffer = [0; 1 << 16];
        while let Ok(count) = collector.recv(&mut buffer) {
            let mut packets = Packets::new(&buffer[..count], 1 << 20);
            while let Some(message) = packets.next_with(Message::decode) {
                match message.expect("it is whole") {
                    Message::Function(event) => {
                        self.events.insert((event.stamp.stream.0, event.stamp.counter.0));
                    }
                    _ => self.options += 1,
                }
            }
        }
    }
}

#[test]
fn a_good_network_changes_nothing() {
    let (relay, received) = through(Faults::NONE, 500, 1);
    assert_eq!((received.events.len(), received.options), (500, 1));
    assert_eq!((relay.lost().len(), relay.datagrams().1), (0, 0));
}

#[test]
fn it_knows_exactly_what_it_lost() {
    let faults = Faults {
        lose: 0.1,
        burst: 0.02,
        burst_datagrams: 4,
        double: 0.1,
        delay: 0.1,
        delay_at_most: Duration::from_millis(10),
        ..Faults::NONE
    };
    let (relay, received) = through(faults, 1_000, 1);
    let lost = relay.lost();
    assert!(lost.len() > 50, "only {} events lost", lost.len());
    assert_eq!(lost.len() + received.events.len(), 1_000);
    assert!(received.events.is_disjoint(&lost));
}

#[test]
fn what_comes_again_makes_good_for_losses_unless_they_are_for_good() {
    let faults = Faults { lose: 0.2, ..Faults::NONE };
    let (relay, received) = through(faults, 500, 20);
    assert_eq!((received.events.len(), relay.lost().len()), (500, 0));
    assert!(relay.datagrams().1 > 10);
    let (relay, received) = through(Faults { lose_for_good: true, ..faults }, 500, 3);
    assert!(relay.lost().len() > 20, "only {} events lost", relay.lost().len());
    assert!(received.events.is_disjoint(&relay.lost()));
    assert_eq!(relay.lost().len() + received.events.len(), 500);
}

#[test]
fn options_can_be_spared() {
    let (relay, received) = through(Faults { lose: 1.0, spare_options: true, ..Faults::NONE }, 100, 2);
    assert_eq!((received.events.len(), received.options), (0, 2));
    assert_eq!(relay.lost().len(), 100);
}
