//! What agents are asked while they trace, and what is taken for an answer.

use std::time::Duration;

use codec::{
    SessionId,
    heph::Packets,
    profile::{AnswerKind, Known, Message, ProfileOption},
};
use collector_core::{Answered, Config, NotAsked, Peer, Told};

use crate::{
    agent::{Agent, peer},
    ledger::{Ledger, link},
};

/// The requests among the transmitted packets: their numbers, what they ask for, and whom.
fn asked(ledger: &mut Ledger) -> Vec<(u64, String, Peer)> {
    let mut asked = Vec::new();
    for transmit in ledger.transmits.drain(..) {
        let message = Packets::new(&transmit.packet, 1 << 20).next_with(Message::decode).expect("a packet");
        if let Message::Option(Known { option: ProfileOption::Ask(ask), .. }) = message.expect("valid") {
            asked.push((ask.number, ask.request.into(), transmit.to));
        }
    }
    asked
}

fn ask(ledger: &mut Ledger, id: SessionId, number: u64, request: &str) -> Result<(), NotAsked> {
    let asked = ledger.collector.ask(ledger.now, id, number, request);
    ledger.pass(Duration::ZERO);
    asked
}

fn done(number: u64, text: &str) -> Option<Answered> {
    Some(Answered { number, told: Told::Done(text.into()) })
}

#[test]
fn an_agent_is_asked_until_it_answers() {
    let (mut agent, mut ledger) = link(Config::default());
    ledger.send(&agent, &[agent.session(), agent.clock()].concat());
    assert_eq!(ask(&mut ledger, agent.id, 7, "status"), Ok(()));
    let request = |to| (7, String::from("status"), to);
    assert_eq!(asked(&mut ledger), [request(agent.peer)], "at once");
    ledger.pass(Duration::from_millis(240));
    assert_eq!(asked(&mut ledger), []);
    ledger.pass(Duration::from_millis(20));
    assert_eq!(asked(&mut ledger), [request(agent.peer)], "again");
    // The agent has come back by another way, and is asked there.
    agent.peer = peer(5001);
    ledger.send(&agent, &agent.session());
    ledger.pass(Duration::from_millis(260));
    assert_eq!(asked(&mut ledger), [request(agent.peer)]);
    ledger.send(&agent, &agent.answer(7, AnswerKind::Done, "fine"));
    assert_eq!(ledger.collector.poll_answer(), done(7, "fine"));
    ledger.send(&agent, &agent.answer(7, AnswerKind::Done, "fine"));
    assert_eq!(ledger.collector.poll_answer(), None, "once is enough");
    ledger.pass(Duration::from_secs(1));
    assert_eq!(asked(&mut ledger), []);
    let options = &ledger.only().options;
    assert!(options.iter().all(|option| !option.contains("Answer")), "it is for no sink: {options:?}");
}

#[test]
fn only_the_agent_that_was_asked_can_answer() {
    let (agent, mut ledger) = link(Config::default());
    let other = Agent::new(2, 6000);
    ledger.send(&agent, &agent.session());
    ledger.send(&other, &other.session());
    assert_eq!(ask(&mut ledger, agent.id, 7, "stop"), Ok(()));
    // Of another session, in the name of another session, and what nobody has asked for.
    ledger.send(&other, &other.answer(7, AnswerKind::Done, "mine"));
    ledger.send(&other, &agent.answer(7, AnswerKind::Done, "not mine"));
    ledger.send(&agent, &other.answer(7, AnswerKind::Done, "not its own"));
    ledger.send(&agent, &agent.answer(8, AnswerKind::Done, "unasked"));
    assert_eq!(ledger.collector.poll_answer(), None);
    // What is neither done nor refused was not done.
    ledger.send(&agent, &agent.answer(7, AnswerKind::Other(9), &"long ".repeat(10_000)));
    let Some(Answered { number: 7, told: Told::Refused(text) }) = ledger.collector.poll_answer() else {
        panic!("an answer")
    };
    assert_eq!(text.len(), 16_384);
}

#[test]
fn who_cannot_be_asked_is_known() {
    let (agent, mut ledger) = link(Config::default());
    assert_eq!(ask(&mut ledger, agent.id, 1, "status"), Err(NotAsked::Unknown));
    ledger.send(&agent, &[agent.session(), agent.event(0, 0)].concat());
    assert_eq!(ask(&mut ledger, agent.id, 1, &"a".repeat(4097)), Err(NotAsked::TooLong));
    for number in 0..16 {
        assert_eq!(ask(&mut ledger, agent.id, number, "status"), Ok(()));
    }
    assert_eq!(ask(&mut ledger, agent.id, 16, "status"), Err(NotAsked::TooMany));
    ledger.collector.withdraw(agent.id, 3);
    assert_eq!(ask(&mut ledger, agent.id, 16, "status"), Ok(()));
    let heard = |ledger: &Ledger| {
        let listed: Vec<_> = ledger.collector.sessions(ledger.now).collect();
        assert_eq!((listed.len(), listed[0].id), (1, agent.id));
        listed[0].heard_ago
    };
    assert_eq!(heard(&ledger), Ok(Duration::ZERO));
    ledger.send(&agent, &agent.end(&[(0, 1)]));
    assert_eq!(ask(&mut ledger, agent.id, 17, "status"), Err(NotAsked::Ended));
    ledger.pass(Duration::from_secs(1));
    assert_eq!(ask(&mut ledger, agent.id, 17, "status"), Err(NotAsked::Ended));
    assert_eq!(heard(&ledger), Err(NotAsked::Ended));
    // Who waits for an answer learns that there will be none.
    let told: Vec<_> = std::iter::from_fn(|| ledger.collector.poll_answer()).collect();
    assert_eq!(told.len(), 16);
    assert!(told.iter().all(|answer| answer.told == Told::Nothing), "{told:?}");
}

#[test]
fn one_that_is_lost_is_not_asked_until_it_is_back() {
    let (agent, mut ledger) = link(Config::default());
    ledger.send(&agent, &agent.session());
    ledger.pass(Duration::from_secs(31));
    assert_eq!(ask(&mut ledger, agent.id, 1, "status"), Err(NotAsked::Lost));
    ledger.send(&agent, &agent.session());
    assert_eq!(ask(&mut ledger, agent.id, 1, "status"), Ok(()));
    ledger.send(&agent, &agent.answer(1, AnswerKind::Done, "back"));
    assert_eq!(ledger.collector.poll_answer(), done(1, "back"));
}
