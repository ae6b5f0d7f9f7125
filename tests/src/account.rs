//! Whether a trace holds what an agent has sent: every event, in order, and nothing else.

use std::collections::BTreeSet;

use crate::{
    Agent, Trace,
    agent::{EVENT_NS, Fate, Made},
    trace::Recorded,
};

/// Fails the test unless the trace holds all that the agent sent.
#[track_caller]
pub fn complete(trace: &Trace, agent: &Agent) {
    all_but(trace, agent, &BTreeSet::new());
}

/// Fails the test unless the trace holds all that the agent sent but for these, by stream and position, and says
/// of everything else why it is missing.
#[track_caller]
pub fn all_but(trace: &Trace, agent: &Agent, lost: &BTreeSet<(u32, u64)>) {
    parts_hold(std::slice::from_ref(trace), agent, lost);
    let first = agent.settings().first_position;
    for (stream, events) in &trace.threads {
        for event in events {
            let position = first + event.time_ns / EVENT_NS - 1;
            assert!(first > 0 || position == event.position, "stream {stream}: {event:?} is at {position}");
        }
    }
    let network: BTreeSet<_> = agent.all_made().filter(|(_, _, made)| made.fate == Fate::Lost).map(key).collect();
    let network = &network | lost;
    let ours = trace.gaps("network").into_iter().filter(|(_, at, _)| *at >= first);
    let missing: BTreeSet<_> = ours.flat_map(|(id, at, count)| (at..at + count).map(move |at| (id, at))).collect();
    assert_eq!(missing, network, "missing for the network's sake");
    for reason in agent.all_made().filter_map(|(_, _, made)| reason(made)).collect::<BTreeSet<_>>() {
        let dropped = agent.all_made().filter(|(_, _, made)| made.fate == Fate::Dropped(reason)).map(key).collect();
        assert_eq!(trace.missing(&format!("agent:{reason}")), dropped, "dropped for {reason}");
    }
    for gap in &trace.manifest.gaps {
        let known = gap.cause == "network" || gap.cause.starts_with("agent:");
        assert!(known, "a gap for another cause: {gap:?}");
    }
}

/// Fails the test unless all directories of a session together hold all that the agent sent but for these.
#[track_caller]
pub fn parts_hold(parts: &[Trace], agent: &Agent, lost: &BTreeSet<(u32, u64)>) {
    let first = agent.settings().first_position;
    for stream in 0..agent.settings().streams {
        let recorded = parts.iter().filter_map(|part| part.threads.get(&stream)).flatten();
        let mut recorded = recorded.peekable();
        for (position, made) in (first..).zip(agent.made(stream)) {
            if made.fate != Fate::Sent || lost.contains(&(stream, position)) {
                continue;
            }
            match recorded.next() {
                Some(event) => same(stream, position, made, event),
                None => panic!("stream {stream} ends before position {position}"),
            }
        }
        assert_eq!(recorded.next(), None, "stream {stream} has an event too many");
    }
    let streams = parts.iter().flat_map(|part| part.threads.keys()).max();
    assert!(streams.is_none_or(|last| *last < agent.settings().streams), "a thread that the agent never had");
}

/// Fails the test unless this is that event.
#[track_caller]
pub fn same(stream: u32, position: u64, made: &Made, event: &Recorded) {
    let expected = (made.kind, made.function, made.depth, made.time_ns);
    let found = (event.kind, event.function, event.depth, event.time_ns);
    assert_eq!(found, expected, "stream {stream}, position {position}");
    let captured = made.captured(position).map(|(registers, stack)| {
        let stack: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        (registers, stack)
    });
    assert_eq!(event.captured, captured, "stream {stream}, position {position}");
}

fn key((stream, position, _): (u32, u64, &Made)) -> (u32, u64) {
    (stream, position)
}

fn reason(made: &Made) -> Option<&'static str> {
    match made.fate {
        Fate::Dropped(reason) => Some(reason),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf, time::Duration};

    use codec::{
        atf::{GapEntry, Manifest},
        profile::EndReason,
    };

    use super::*;
    use crate::{Settings, agent::fake::Fake};

    /// An agent that dropped some and lost some, and the trace that a good collector makes of it.
    fn agent_and_trace() -> (Agent, Trace) {
        let fake = Fake::start(64 << 10, 0, false).expect("sockets");
        let mut agent = Agent::start(Settings::udp(fake.udp, 1)).expect("it is heard");
        agent.work(100).expect("it is taken");
        agent.drop_events(0, 5, "ring-full").expect("it is told");
        agent.lose_events(1, 6);
        agent.work(100).expect("it is taken");
        agent.finish(EndReason::Exited(0), Duration::from_secs(10)).expect("it is acknowledged");
        let mut threads = BTreeMap::<u32, Vec<Recorded>>::new();
        for (stream, position, made) in agent.all_made().filter(|(_, _, made)| made.fate == Fate::Sent) {
            let captured = made
                .captured(position)
                .map(|(registers, stack)| (registers, stack.iter().flat_map(|word| word.to_le_bytes()).collect()));
            threads.entry(stream).or_default().push(Recorded {
                position,
                time_ns: made.time_ns,
                function: made.function,
                name: None,
                kind: made.kind,
                depth: made.depth,
                captured,
                attributes: None,
            });
        }
        let gap = |thread, count, cause: &str| GapEntry {
            thread,
            first: 50,
            count,
            cause: cause.into(),
            ..GapEntry::default()
        };
        let gaps = vec![gap(0, 5, "agent:ring-full"), gap(1, 6, "network")];
        (agent, Trace { folder: PathBuf::new(), manifest: Manifest { gaps, ..Manifest::default() }, threads })
    }

    #[test]
    fn a_good_trace_passes() {
        let (agent, trace) = agent_and_trace();
        complete(&trace, &agent);
    }

    #[test]
    #[should_panic(expected = "ends before position")]
    fn a_missing_event_is_noticed() {
        let (agent, mut trace) = agent_and_trace();
        trace.threads.get_mut(&1).expect("a thread").pop();
        complete(&trace, &agent);
    }

    #[test]
    #[should_panic(expected = "an event too many")]
    fn an_event_that_comes_twice_is_noticed() {
        let (agent, mut trace) = agent_and_trace();
        let events = trace.threads.get_mut(&1).expect("a thread");
        events.extend(events.last().cloned());
        complete(&trace, &agent);
    }

    #[test]
    #[should_panic(expected = "stream 0, position 8")]
    fn a_register_that_was_changed_is_noticed() {
        let (agent, mut trace) = agent_and_trace();
        let event = &mut trace.threads.get_mut(&0).expect("a thread")[8];
        event.captured.as_mut().expect("it has detail").0.general[3] += 1;
        complete(&trace, &agent);
    }

    #[test]
    #[should_panic(expected = "missing for the network's sake")]
    fn a_gap_that_is_not_told_is_noticed() {
        let (agent, mut trace) = agent_and_trace();
        trace.manifest.gaps.pop();
        complete(&trace, &agent);
    }

    #[test]
    #[should_panic(expected = "dropped for ring-full")]
    fn a_drop_that_is_not_told_is_noticed() {
        let (agent, mut trace) = agent_and_trace();
        trace.manifest.gaps.remove(0);
        complete(&trace, &agent);
    }
}
