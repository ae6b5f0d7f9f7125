//! Whether the depths in a trace are those of calls and returns: what is entered is left again, in order.
//!
//! A thread's events are replayed on a stack. A call goes on top; a return or exception takes off what is on top, and
//! that is the same function at the same depth. Two things happen without an event of their own:
//!
//! - A function that ends in a jump to another is replaced by it, at the same depth and on the same place of the stack.
//! - A function whose return is not watched (a probe) is gone when the next event is not above it. Such functions never
//!   return anywhere in the trace.
//!
//! A thread may run on several stacks, in handlers of signals and in coroutines. Each has depths of its own, from 0.
//! Which one a call is on is told by the stack pointer, so that such a trace needs detail. The pointers are checked
//! wherever there are any: they fall as depths rise, and after a return the stack is as it was before the call.

use std::collections::BTreeSet;

use codec::{EventKind, FunctionId};

use crate::{Trace, trace::Recorded};

/// How many stacks a thread runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stacks {
    /// One, as most do.
    One,
    /// Any number.
    Many,
}

/// Fails the test unless the depths of all threads are consistent. Nothing may be missing from the trace.
#[track_caller]
pub fn consistent(trace: &Trace, stacks: Stacks) {
    let returning = returning(trace.threads.values().flatten());
    for (thread, events) in &trace.threads {
        if let Err(error) = replay(events, &returning, stacks) {
            panic!("{}: thread {thread}: {error}", trace.folder.display());
        }
    }
}

/// A function that has been entered and not left.
#[derive(Debug, Clone, Copy)]
struct Frame {
    function: FunctionId,
    /// Where its return address is, if that is known.
    slot: Option<u64>,
}

/// The functions that were seen to be left at least once.
fn returning<'a>(events: impl Iterator<Item = &'a Recorded>) -> BTreeSet<FunctionId> {
    events.filter(|event| event.kind != EventKind::Call).map(|event| event.function).collect()
}

fn replay(events: &[Recorded], returning: &BTreeSet<FunctionId>, stacks: Stacks) -> Result<(), String> {
    let mut all: Vec<Vec<Frame>> = vec![Vec::new()];
    let mut current = 0;
    // Runtime events are no calls, though they stand among them.
    for (index, event) in events.iter().enumerate().filter(|(_, event)| event.function.module().0 != 0) {
        let found = match (stacks, event.kind) {
            (Stacks::One, _) => Some(0),
            (Stacks::Many, EventKind::Call) => stack_of_call(&all, current, event, returning),
            (Stacks::Many, _) => stack_of_end(&all, current, &events[index..], returning),
        };
        current = match found {
            Some(found) => found,
            None if event.kind == EventKind::Call && event.depth == 0 => {
                all.push(Vec::new());
                all.len() - 1
            }
            None => current,
        };
        let told = |why: String| {
            let name = event.name.as_deref().unwrap_or("?");
            let before = events[index.saturating_sub(8)..index].iter().map(brief).collect::<Vec<_>>().join(", ");
            format!("event {index}, {:?} of {name} at depth {}: {why}; before it: {before}", event.kind, event.depth)
        };
        step(&mut all[current], event, returning).map_err(told)?;
    }
    Ok(())
}

fn brief(event: &Recorded) -> String {
    format!("{:?} {} {}", event.kind, event.depth, event.name.as_deref().unwrap_or("?"))
}

/// Does to a stack what an event says.
fn step(stack: &mut Vec<Frame>, event: &Recorded, returning: &BTreeSet<FunctionId>) -> Result<(), String> {
    fits(stack, event, returning)?;
    stack.truncate(event.depth as usize);
    if event.kind == EventKind::Call {
        stack.push(Frame { function: event.function, slot: slot(event) });
    }
    Ok(())
}

/// Whether an event can happen on a stack, and if not, why.
fn fits(stack: &[Frame], event: &Recorded, returning: &BTreeSet<FunctionId>) -> Result<(), String> {
    let depth = event.depth as usize;
    let unseen = |frames: &[Frame]| frames.iter().all(|frame| !returning.contains(&frame.function));
    if depth > stack.len() || depth == stack.len() && event.kind != EventKind::Call {
        return Err(format!("only {} functions are open", stack.len()));
    }
    let (below, above) = stack.split_at(depth);
    match (event.kind, above.split_first()) {
        (EventKind::Call, Some((frame, above))) => {
            let replaced = slot(event).zip(frame.slot).is_none_or(|(new, old)| new == old);
            if !(replaced || unseen(&[*frame])) || !unseen(above) {
                return Err(format!("{} functions were not left", above.len() + 1));
            }
        }
        (EventKind::Call, None) => {}
        (_, Some((frame, _))) if frame.function != event.function => {
            return Err(format!("function {} is open there", frame.function));
        }
        (_, Some((_, above))) if !unseen(above) => {
            return Err(format!("{} functions above it were not left", above.len()));
        }
        (_, Some((frame, _))) if slot(event).zip(frame.slot).is_some_and(|(now, then)| now != then + 8) => {
            return Err(format!("the stack is not where it was: {:x?} after {:x?}", slot(event), frame.slot));
        }
        _ => {}
    }
    if event.kind == EventKind::Call
        && let Some((caller, slot)) = below.last().and_then(|frame| frame.slot.zip(slot(event)))
        && caller <= slot
    {
        return Err(format!("its stack pointer {slot:#x} is not below its caller's, {caller:#x}"));
    }
    Ok(())
}

/// The stack that a call is on: the one where it is closest to its caller.
fn stack_of_call(
    all: &[Vec<Frame>],
    current: usize,
    event: &Recorded,
    returning: &BTreeSet<FunctionId>,
) -> Option<usize> {
    let new = slot(event)?;
    let depth = event.depth as usize;
    let distance = |stack: &Vec<Frame>| {
        let replaced = stack.get(depth).is_some_and(|frame| frame.slot == Some(new));
        match stack.get(depth.wrapping_sub(1)) {
            _ if replaced => Some(0),
            Some(caller) => caller.slot?.checked_sub(new),
            // The stack on which nothing is open any more may be any.
            None => stack.is_empty().then_some(u64::MAX),
        }
    };
    let candidates = all.iter().enumerate().filter(|(_, stack)| fits(stack, event, returning).is_ok());
    let nearest = candidates.filter_map(|(index, stack)| Some((distance(stack)?, index != current, index))).min();
    nearest.map(|(_, _, index)| index)
}

/// The stack that a return or exception is on, the first of these events. Where it does not say, it is the one that
/// the next event is on: what was left without returning is noticed when something else happens there.
fn stack_of_end(
    all: &[Vec<Frame>],
    current: usize,
    events: &[Recorded],
    returning: &BTreeSet<FunctionId>,
) -> Option<usize> {
    let event = events.first()?;
    let near = events.iter().find_map(slot)?;
    let candidates = all.iter().enumerate().filter(|(_, stack)| fits(stack, event, returning).is_ok());
    let distance = |stack: &[Frame]| Some(stack.get(event.depth as usize)?.slot?.abs_diff(near));
    let nearest = candidates.filter_map(|(index, stack)| Some((distance(stack)?, index != current, index))).min();
    nearest.map(|(_, _, index)| index)
}

/// The stack pointer: at a call, where the return address is; after a return, right above that.
fn slot(event: &Recorded) -> Option<u64> {
    event.captured.as_ref().map(|(registers, _)| registers.stack_pointer)
}

#[cfg(test)]
mod tests {
    use codec::{ModuleId, profile::Registers};

    use super::*;
    use EventKind::{Call, Exception, Return};

    /// What happens, to which function, and how deep.
    type Place = (EventKind, u32, u32);

    /// The same, and where the stack is: 0 where that is not known.
    type Step = (EventKind, u32, u32, u64);

    fn event((kind, function, depth, at): Step) -> Recorded {
        let stack_pointer = (at > 0).then_some(at);
        Recorded {
            position: 0,
            time_ns: 0,
            function: FunctionId::new(ModuleId(1), function),
            name: None,
            kind,
            depth,
            captured: stack_pointer.map(|stack_pointer| (Registers { stack_pointer, ..Registers::default() }, vec![])),
            attributes: None,
        }
    }

    fn replayed(stacks: Stacks, steps: &[Step]) -> Result<(), String> {
        let events: Vec<_> = steps.iter().map(|step| event(*step)).collect();
        replay(&events, &returning(events.iter()), stacks)
    }

    /// The same on one stack, without pointers.
    fn on_one(steps: &[Place]) -> Result<(), String> {
        let steps: Vec<Step> = steps.iter().map(|(kind, function, depth)| (*kind, *function, *depth, 0)).collect();
        replayed(Stacks::One, &steps)
    }

    #[test]
    fn calls_and_returns_that_fit_each_other_are_consistent() {
        let good: [(&str, &[Place]); 7] = [
            ("nothing", &[]),
            ("in order", &[(Call, 1, 0), (Call, 2, 1), (Return, 2, 1), (Call, 3, 1), (Return, 3, 1), (Return, 1, 0)]),
            ("the program ended there", &[(Call, 1, 0), (Call, 2, 1)]),
            (
                "exceptions take off what they leave",
                &[(Call, 1, 0), (Call, 2, 1), (Call, 3, 2), (Exception, 3, 2), (Exception, 2, 1), (Return, 1, 0)],
            ),
            ("a tail call replaces", &[(Call, 1, 0), (Call, 2, 1), (Call, 3, 1), (Return, 3, 1), (Return, 1, 0)]),
            // 9 is never seen to return.
            ("a probe is gone when others go on", &[(Call, 1, 0), (Call, 9, 1), (Return, 1, 0)]),
            ("two probes", &[(Call, 1, 0), (Call, 9, 1), (Call, 2, 1), (Call, 9, 2), (Return, 2, 1), (Return, 1, 0)]),
        ];
        for (what, steps) in good {
            assert_eq!(on_one(steps), Ok(()), "{what}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let bad: [(&str, &[Place]); 7] = [
            ("the outer one went first", &[(Call, 1, 0), (Call, 2, 1), (Exception, 1, 0), (Exception, 2, 1)]),
            ("a depth is skipped", &[(Call, 1, 0), (Call, 2, 2)]),
            ("a return of what was not called", &[(Call, 1, 0), (Return, 2, 0)]),
            ("a return where nothing is open", &[(Call, 1, 0), (Return, 1, 0), (Return, 1, 0)]),
            ("a return at another depth", &[(Call, 1, 0), (Call, 2, 1), (Return, 2, 0)]),
            ("a frame that was forgotten", &[(Call, 2, 0), (Return, 2, 0), (Call, 1, 0), (Call, 2, 1), (Return, 1, 0)]),
            (
                "two frames that were forgotten",
                &[(Call, 1, 0), (Call, 2, 1), (Call, 3, 2), (Return, 3, 2), (Call, 3, 2), (Call, 2, 1), (Return, 2, 1)],
            ),
        ];
        for (what, steps) in bad {
            assert!(on_one(steps).is_err(), "{what}");
        }
    }

    #[test]
    fn stack_pointers_are_held_against_depths() {
        let cases: [(&str, bool, &[Step]); 7] = [
            ("they fall as depths rise", true, &[(Call, 1, 0, 900), (Call, 2, 1, 800)]),
            ("the same", false, &[(Call, 1, 0, 900), (Call, 2, 1, 900)]),
            ("it rises", false, &[(Call, 1, 0, 900), (Call, 2, 1, 1000)]),
            ("after a return it is as before the call", true, &[(Call, 1, 0, 900), (Return, 1, 0, 908)]),
            ("after a return it is elsewhere", false, &[(Call, 1, 0, 900), (Return, 1, 0, 916)]),
            (
                "a tail call is on the same place",
                true,
                &[(Call, 1, 0, 900), (Call, 2, 1, 800), (Call, 3, 1, 800), (Return, 3, 1, 808), (Return, 1, 0, 908)],
            ),
            (
                "2 returns, and was replaced by a call elsewhere",
                false,
                &[(Call, 1, 0, 900), (Call, 2, 1, 800), (Call, 3, 1, 700), (Return, 2, 1, 808), (Return, 1, 0, 908)],
            ),
        ];
        for (what, good, steps) in cases {
            assert_eq!(replayed(Stacks::One, steps).is_ok(), good, "{what}");
        }
    }

    /// 1 and 2 on one stack, interrupted by 5 and 6 on another, higher up.
    const INTERRUPTED: &[Step] = &[
        (Call, 1, 0, 900),
        (Call, 2, 1, 800),
        (Call, 5, 0, 9000),
        (Call, 6, 1, 8900),
        (Call, 3, 2, 700),
        (Return, 6, 1, 8908),
        (Return, 3, 2, 708),
        (Return, 5, 0, 9008),
        (Return, 2, 1, 808),
        (Return, 1, 0, 908),
    ];

    /// Two coroutines of one function, beside another.
    const COROUTINES: &[Step] = &[
        (Call, 1, 0, 900),
        (Call, 5, 0, 9000),
        (Call, 6, 1, 8900),
        (Call, 5, 0, 19000),
        (Call, 6, 1, 18900),
        (Return, 6, 1, 8908),
        (Call, 7, 1, 8800),
        (Return, 6, 1, 18908),
        (Return, 7, 1, 8808),
        (Return, 5, 0, 19008),
        (Return, 5, 0, 9008),
    ];

    /// Of two coroutines, the one that goes on was left before. The first seven of these are followed by others.
    const LEFT: &[Step] = &[
        (Call, 5, 0, 9000),
        (Call, 6, 1, 8900),
        (Call, 5, 0, 19000),
        (Call, 6, 1, 18900),
        (Exception, 6, 1, 0),
        (Exception, 5, 0, 0),
        (Call, 7, 0, 19000),
        (Return, 6, 1, 8908),
        (Return, 5, 0, 9008),
    ];

    #[test]
    fn each_of_many_stacks_has_depths_of_its_own() {
        for steps in [INTERRUPTED, COROUTINES, LEFT] {
            replayed(Stacks::Many, steps).expect("good");
        }
        assert!(replayed(Stacks::One, INTERRUPTED).is_err(), "on one stack it makes no sense");
        let gone = [&LEFT[..7], &[(Return, 6, 1, 18908)]].concat();
        assert!(replayed(Stacks::Many, &gone).is_err(), "that one was left");
        let skipped = [(Call, 1, 0, 900), (Call, 2, 1, 800), (Call, 5, 0, 9000), (Call, 6, 3, 8900)];
        let unknown = [(Call, 1, 0, 900), (Call, 5, 0, 9000), (Return, 6, 0, 9008)];
        assert!(replayed(Stacks::Many, &skipped).is_err() && replayed(Stacks::Many, &unknown).is_err());
    }

    #[test]
    fn runtime_events_are_no_calls() {
        let mut events =
            [(Call, 1, 0, 0), (Call, 2, 1, 0), (Return, 1, 0, 0), (Return, 2, 1, 0), (Return, 1, 0, 0)].map(event);
        events[2].function = FunctionId::new(ModuleId(0), 1);
        replay(&events, &returning(events.iter()), Stacks::One).expect("good");
    }
}
