//! Whether a trace holds what an agent has sent: every event, in order, and nothing else.

use std::collections::BTreeSet;

use crate::{
    Trace,
    agent::{EVENT_NS, Made, Program},
    trace::Recorded,
};

/// Fails the test unless the trace holds all that the agent sent.
#[track_caller]
pub fn complete(trace: &Trace, program: &Program) {
    all_but(trace, program, &BTreeSet::new());
}

/// Fails the test unless the trace holds all that the agent sent but for these, by stream and position, and says
/// of everything else why it is missing.
#[track_caller]
pub fn all_but(trace: &Trace, program: &Program, lost: &BTreeSet<(u32, u64)>) {
    parts_hold(std::slice::from_ref(trace), program, lost);
    let first = program.first_position();
    for (stream, events) in &trace.threads {
        for event in events {
            let position = first + event.time_ns / EVENT_NS - 1;
            assert!(first > 0 || position == event.position, "stream {stream}: {event:?} is at {position}");
        }
    }
    let ours = trace.gaps("network").into_iter().filter(|(_, at, _)| *at >= first);
    let missing: BTreeSet<_> = ours.flat_map(|(id, at, count)| (at..at + count).map(move |at| (id, at))).collect();
    assert_eq!(missing, *lost, "missing for the network's sake");
    for reason in program.all_made().filter_map(|(_, _, made)| made.dropped).collect::<BTreeSet<_>>() {
        let dropped = program.all_made().filter(|(_, _, made)| made.dropped == Some(reason)).map(key).collect();
        assert_eq!(trace.missing(&format!("agent:{reason}")), dropped, "dropped for {reason}");
    }
    for gap in &trace.manifest.gaps {
        let known = gap.cause == "network" || gap.cause.starts_with("agent:");
        assert!(known, "a gap for another cause: {gap:?}");
    }
}

/// Fails the test unless all directories of a session together hold all that the agent sent but for these.
#[track_caller]
pub fn parts_hold(parts: &[Trace], program: &Program, lost: &BTreeSet<(u32, u64)>) {
    let first = program.first_position();
    for stream in 0..program.streams() {
        let recorded = parts.iter().filter_map(|part| part.threads.get(&stream)).flatten();
        let mut recorded = recorded.peekable();
        for (position, made) in (first..).zip(program.made(stream)) {
            if made.dropped.is_some() || lost.contains(&(stream, position)) {
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
    assert!(streams.is_none_or(|last| *last < program.streams()), "a thread that the agent never had");
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use codec::atf::{GapEntry, Manifest};

    use super::*;

    /// A program of which the agent dropped some events and the network lost some, and the trace that a good collector
    /// makes of it.
    fn program_and_trace() -> (Program, BTreeSet<(u32, u64)>, Trace) {
        let mut program = Program::new(2, 0, 8);
        let work = |program: &mut Program, events: u32| (0..events).for_each(|at| _ = program.step(at % 2));
        work(&mut program, 100);
        program.drop_calls(0, 5, "ring-full");
        let lost: BTreeSet<_> = (0..6).map(|_| (1, program.call(1, 0, false).0)).collect();
        work(&mut program, 100);
        let mut threads = BTreeMap::<u32, Vec<Recorded>>::new();
        for (stream, position, made) in program.all_made() {
            if made.dropped.is_some() || lost.contains(&(stream, position)) {
                continue;
            }
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
        (program, lost, Trace { folder: PathBuf::new(), manifest: Manifest { gaps, ..Manifest::default() }, threads })
    }

    #[test]
    fn a_good_trace_passes() {
        let (program, lost, trace) = program_and_trace();
        all_but(&trace, &program, &lost);
    }

    #[test]
    #[should_panic(expected = "ends before position")]
    fn a_missing_event_is_noticed() {
        let (program, lost, mut trace) = program_and_trace();
        trace.threads.get_mut(&1).expect("a thread").pop();
        all_but(&trace, &program, &lost);
    }

    #[test]
    #[should_panic(expected = "an event too many")]
    fn an_event_that_comes_twice_is_noticed() {
        let (program, lost, mut trace) = program_and_trace();
        let events = trace.threads.get_mut(&1).expect("a thread");
        events.extend(events.last().cloned());
        all_but(&trace, &program, &lost);
    }

    #[test]
    #[should_panic(expected = "stream 0, position 8")]
    fn a_register_that_was_changed_is_noticed() {
        let (program, lost, mut trace) = program_and_trace();
        let event = &mut trace.threads.get_mut(&0).expect("a thread")[8];
        event.captured.as_mut().expect("it has detail").0.general[3] += 1;
        all_but(&trace, &program, &lost);
    }

    #[test]
    #[should_panic(expected = "missing for the network's sake")]
    fn a_gap_that_is_not_told_is_noticed() {
        let (program, lost, mut trace) = program_and_trace();
        trace.manifest.gaps.pop();
        all_but(&trace, &program, &lost);
    }

    #[test]
    #[should_panic(expected = "dropped for ring-full")]
    fn a_drop_that_is_not_told_is_noticed() {
        let (program, lost, mut trace) = program_and_trace();
        trace.manifest.gaps.remove(0);
        all_but(&trace, &program, &lost);
    }
}
