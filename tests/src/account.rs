//! Whether a trace holds what an agent has sent: every event, in order, and nothing else.

use std::collections::BTreeSet;

use codec::profile::Registers;

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
    let first = program.first_position();
    let reasons: BTreeSet<_> = program.all_made().filter_map(|(_, _, made)| made.dropped).collect();
    for gap in trace.manifest.gaps.iter().filter(|gap| gap.first >= first) {
        let is_known = gap.cause == "network" || reasons.iter().any(|reason| gap.cause == format!("agent:{reason}"));
        assert!(is_known, "a gap for another cause: {gap:?}");
    }
    parts_hold(std::slice::from_ref(trace), program, lost);
    for (stream, events) in &trace.threads {
        for event in events {
            let position = first + event.time_ns / EVENT_NS - 1;
            assert!(first > 0 || position == event.position, "stream {stream}: {event:?} is at {position}");
        }
    }
    let missing: BTreeSet<_> = trace.missing("network").into_iter().filter(|(_, at)| *at >= first).collect();
    assert_eq!(missing, *lost, "missing for the network's sake");
    for reason in reasons {
        let dropped = program.all_made().filter(|(_, _, made)| made.dropped == Some(reason)).map(key).collect();
        assert_eq!(trace.missing(&format!("agent:{reason}")), dropped, "dropped for {reason}");
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
    assert_eq!(event.captured, captured(made, position), "stream {stream}, position {position}");
}

/// The registers and the stack of an event, as the trace has them.
fn captured(made: &Made, position: u64) -> Option<(Registers, Vec<u8>)> {
    let (registers, stack) = made.captured(position)?;
    Some((registers, stack.iter().flat_map(|word| word.to_le_bytes()).collect()))
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
            threads.entry(stream).or_default().push(Recorded {
                position,
                time_ns: made.time_ns,
                function: made.function,
                name: None,
                kind: made.kind,
                depth: made.depth,
                captured: captured(made, position),
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
    fn what_is_wrong_is_noticed() {
        type Spoil = fn(&mut Trace);
        fn thread(trace: &mut Trace, id: u32) -> &mut Vec<Recorded> {
            trace.threads.get_mut(&id).expect("a thread")
        }
        let wrong: [(&str, Spoil); 5] = [
            ("ends before position", |trace| drop(thread(trace, 1).pop())),
            ("an event too many", |trace| thread(trace, 1).extend_from_within(90..)),
            ("stream 0, position 8", |trace| {
                thread(trace, 0)[8].captured.as_mut().expect("it has detail").0.general[3] += 1;
            }),
            ("missing for the network's sake", |trace| drop(trace.manifest.gaps.pop())),
            ("dropped for ring-full", |trace| drop(trace.manifest.gaps.remove(0))),
        ];
        for (expected, spoil) in wrong {
            let (program, lost, mut trace) = program_and_trace();
            spoil(&mut trace);
            let panic = std::panic::catch_unwind(|| all_but(&trace, &program, &lost)).expect_err(expected);
            let message = panic.downcast_ref::<String>().expect("a message");
            assert!(message.contains(expected), "{expected} in {message}");
        }
    }
}
