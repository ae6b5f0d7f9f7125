//! Options against a collector that loses some.

use std::time::{Duration, Instant};

use codec::{Position, StreamId, profile::Fingerprint};

use super::*;

const DATAGRAM: usize = 100;
const FOREVER: usize = usize::MAX;

/// What is sent, packet by packet; every packet here has ten bytes.
fn sent(datagrams: &[Vec<u8>]) -> Vec<u8> {
    assert!(datagrams.iter().all(|datagram| datagram.len() <= DATAGRAM && datagram.len() % 10 == 0));
    datagrams.concat().chunks(10).map(|packet| packet[0]).collect()
}

fn packet(number: u8) -> [u8; 10] {
    [number; 10]
}

fn fresh(options: &mut Options, now: Instant, limit: usize) -> Vec<u8> {
    let mut datagrams = Vec::new();
    options.send_fresh(now, DATAGRAM, limit, |datagram| {
        datagrams.push(datagram.to_vec());
        true
    });
    sent(&datagrams)
}

fn again(options: &mut Options, now: Instant) -> Vec<u8> {
    let mut datagrams = Vec::new();
    options.send_again(now, Duration::from_millis(100), DATAGRAM, FOREVER, |datagram| {
        datagrams.push(datagram.to_vec());
        true
    });
    sent(&datagrams)
}

fn acknowledge(options: &mut Options, numbers: impl IntoIterator<Item = u8>, now: Instant) {
    let fingerprints: Vec<_> = numbers.into_iter().map(|number| Fingerprint::of(&packet(number))).collect();
    options.acknowledge(fingerprints.as_slice().into(), now);
}

#[test]
fn they_are_repeated_until_they_are_acknowledged() {
    let (mut options, start) = (Options::default(), Instant::now());
    (0..25).for_each(|number| options.add(&packet(number), None));
    // The same once more is the same.
    options.add(&packet(3), None);
    assert_eq!(options.count_open(), 25);
    assert_eq!(fresh(&mut options, start, FOREVER), (0..25).collect::<Vec<_>>());
    assert!(!options.has_fresh() && fresh(&mut options, start, FOREVER).is_empty());
    assert!(again(&mut options, start + Duration::from_millis(50)).is_empty());
    acknowledge(&mut options, 0..20, start);
    acknowledge(&mut options, [99], start);
    assert_eq!(again(&mut options, start + Duration::from_millis(100)), (20..25).collect::<Vec<_>>());
    assert!(again(&mut options, start + Duration::from_millis(150)).is_empty());
    acknowledge(&mut options, 0..25, start);
    assert_eq!((options.count_open(), options.flying_bytes), (0, 0));
    // There is another collector.
    options.renew();
    assert_eq!(fresh(&mut options, start, FOREVER), (0..25).collect::<Vec<_>>());
}

#[test]
fn no_more_are_underway_than_may_be() {
    let (mut options, start) = (Options::default(), Instant::now());
    (0..30).for_each(|number| options.add(&packet(number), None));
    assert_eq!(fresh(&mut options, start, 50), [0, 1, 2, 3, 4]);
    assert!(fresh(&mut options, start, 50).is_empty());
    acknowledge(&mut options, [0, 2], start);
    assert_eq!(fresh(&mut options, start, 50), [5, 6]);
    // One that is larger than the limit goes alone.
    acknowledge(&mut options, 0..7, start);
    assert_eq!(fresh(&mut options, start, 5), [7]);
    // What a socket does not take is not sent.
    let mut left = 1;
    options.send_fresh(start, DATAGRAM, FOREVER, |_| {
        left -= 1;
        left >= 0
    });
    assert_eq!(fresh(&mut options, start, FOREVER), (18..30).collect::<Vec<_>>());
}

#[test]
fn what_is_overtaken_by_a_later_word_is_not_said_again() {
    let (mut options, start) = (Options::default(), Instant::now());
    let topic = Some(Topic::Thread(StreamId(1)));
    options.add(&packet(1), topic);
    options.add(&packet(2), topic);
    assert_eq!(fresh(&mut options, start, FOREVER), [2], "the first was never needed");
    options.add(&packet(3), topic);
    assert_eq!(fresh(&mut options, start, FOREVER), [3]);
    // The second may arrive behind the third, so that once is not enough.
    acknowledge(&mut options, [2, 3], start);
    assert_eq!(options.count_open(), 1);
    assert!(again(&mut options, start + Duration::from_millis(99)).is_empty());
    assert_eq!(again(&mut options, start + Duration::from_millis(100)), [3]);
    acknowledge(&mut options, [3], start);
    assert_eq!((options.count_open(), options.flying_bytes), (0, 0));
    options.add(&packet(3), topic);
    options.add(&packet(4), topic);
    assert_eq!(fresh(&mut options, start, FOREVER), [4]);
    acknowledge(&mut options, [4], start);
    assert_eq!(options.count_open(), 0);
    options.renew();
    assert_eq!(fresh(&mut options, start, FOREVER), [4], "only the last word counts");
}

#[test]
fn what_says_nothing_any_more_is_forgotten() {
    let (mut options, start) = (Options::default(), Instant::now());
    let until = |number: u8| vec![(StreamId(0), Position(number.into())), (StreamId(1), Position(5))];
    (0..10).for_each(|number| options.add_until(&packet(number), until(number)));
    fresh(&mut options, start, FOREVER);
    acknowledge(&mut options, (0..10).filter(|number| *number != 2), start);
    options.forget(|_| Position(4));
    assert_eq!(options.entries.len(), 10, "the other stream is not settled");
    options.forget(|stream| Position(if stream.0 == 0 { 4 } else { 9 }));
    // Not acknowledged, or not settled.
    options.renew();
    assert_eq!(fresh(&mut options, start, FOREVER), [2, 5, 6, 7, 8, 9]);
}
