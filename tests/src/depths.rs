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

    fn event(kind: EventKind, function: u32, depth: u32, stack_pointer: Option<u64>) -> Recorded {
        let captured = stack_pointer.map(|stack_pointer| (Registers { stack_pointer, ..Registers::default() }, vec![]));
        Recorded {
            position: 0,
            time_ns: 0,
            function: FunctionId::new(ModuleId(1), function),
            name: None,
            kind,
            depth,
            captured,
            attributes: None,
        }
    }

    /// What happens, to which function, and how deep.
    type Step = (EventKind, u32, u32);

    /// Replays events of functions at depths.
    fn on_one(events: &[Step]) -> Result<(), String> {
        let events: Vec<_> =
            events.iter().map(|(kind, function, depth)| event(*kind, *function, *depth, None)).collect();
        replay(&events, &returning(events.iter()), Stacks::One)
    }

    /// The same with stack pointers.
    fn with_pointers(stacks: Stacks, events: &[(EventKind, u32, u32, u64)]) -> Result<(), String> {
        let events: Vec<_> =
            events.iter().map(|(kind, function, depth, at)| event(*kind, *function, *depth, Some(*at))).collect();
        replay(&events, &returning(events.iter()), stacks)
    }

    #[test]
    fn calls_and_returns_in_order_are_consistent() {
        on_one(&[(Call, 1, 0), (Call, 2, 1), (Return, 2, 1), (Call, 3, 1), (Return, 3, 1), (Return, 1, 0)])
            .expect("good");
        // Open at the end: the program ended there.
        on_one(&[(Call, 1, 0), (Call, 2, 1)]).expect("good");
        on_one(&[]).expect("nothing to be wrong");
    }

    #[test]
    fn exceptions_take_off_what_they_leave() {
        on_one(&[(Call, 1, 0), (Call, 2, 1), (Call, 3, 2), (Exception, 3, 2), (Exception, 2, 1), (Return, 1, 0)])
            .expect("good");
        let order = [(Call, 1, 0), (Call, 2, 1), (Exception, 1, 0), (Exception, 2, 1)];
        assert!(on_one(&order).is_err(), "the outer one went first");
    }

    #[test]
    fn tail_calls_replace() {
        on_one(&[(Call, 1, 0), (Call, 2, 1), (Call, 3, 1), (Return, 3, 1), (Return, 1, 0)]).expect("good");
        let place = [(Call, 1, 0, 900), (Call, 2, 1, 800), (Call, 3, 1, 700), (Return, 2, 1, 808), (Return, 1, 0, 908)];
        assert!(with_pointers(Stacks::One, &place).is_err(), "2 returns, and was replaced by a call elsewhere");
        let same = [(Call, 1, 0, 900), (Call, 2, 1, 800), (Call, 3, 1, 800), (Return, 3, 1, 808), (Return, 1, 0, 908)];
        with_pointers(Stacks::One, &same).expect("good");
    }

    #[test]
    fn probes_are_gone_when_others_go_on() {
        // 9 is never seen to return.
        on_one(&[(Call, 1, 0), (Call, 9, 1), (Return, 1, 0)]).expect("good");
        on_one(&[(Call, 1, 0), (Call, 9, 1), (Call, 2, 1), (Call, 9, 2), (Return, 2, 1), (Return, 1, 0)])
            .expect("good");
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let bad: [(&str, &[Step]); 6] = [
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
        for (what, events) in bad {
            assert!(on_one(events).is_err(), "{what}");
        }
    }

    #[test]
    fn stack_pointers_fall_as_depths_rise() {
        with_pointers(Stacks::One, &[(Call, 1, 0, 900), (Call, 2, 1, 800)]).expect("good");
        assert!(with_pointers(Stacks::One, &[(Call, 1, 0, 900), (Call, 2, 1, 900)]).is_err());
        assert!(with_pointers(Stacks::One, &[(Call, 1, 0, 900), (Call, 2, 1, 1000)]).is_err());
    }

    #[test]
    fn two_stacks_have_depths_of_their_own() {
        // 1 and 2 on one stack, interrupted by 5 and 6 on another, higher up.
        let events = [
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
        with_pointers(Stacks::Many, &events).expect("good");
        assert!(with_pointers(Stacks::One, &events).is_err(), "on one stack it makes no sense");
    }

    #[test]
    fn coroutines_of_one_function_are_told_apart() {
        let events = [
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
        with_pointers(Stacks::Many, &events).expect("good");
    }

    #[test]
    fn what_was_left_is_on_the_stack_that_goes_on() {
        let mut events: Vec<_> = [
            (Call, 5, 0, 9000),
            (Call, 6, 1, 8900),
            (Call, 5, 0, 19000),
            (Call, 6, 1, 18900),
            (Exception, 6, 1, 0),
            (Exception, 5, 0, 0),
            (Call, 7, 0, 19000),
            (Return, 6, 1, 8908),
            (Return, 5, 0, 9008),
        ]
        .map(|(kind, function, depth, at)| event(kind, function, depth, (at > 0).then_some(at)))
        .into();
        replay(&events, &returning(events.iter()), Stacks::Many).expect("good");
        events.truncate(7);
        events.extend([(Return, 6, 1, 18908)].map(|(kind, f, d, at)| event(kind, f, d, Some(at))));
        assert!(replay(&events, &returning(events.iter()), Stacks::Many).is_err(), "that one is gone");
    }

    #[test]
    fn the_stack_is_after_a_return_where_it_was_before_the_call() {
        with_pointers(Stacks::One, &[(Call, 1, 0, 900), (Return, 1, 0, 908)]).expect("good");
        assert!(with_pointers(Stacks::One, &[(Call, 1, 0, 900), (Return, 1, 0, 916)]).is_err());
    }

    #[test]
    fn many_stacks_do_not_excuse_what_fits_none() {
        let skipped = [(Call, 1, 0, 900), (Call, 2, 1, 800), (Call, 5, 0, 9000), (Call, 6, 3, 8900)];
        assert!(with_pointers(Stacks::Many, &skipped).is_err());
        let unknown = [(Call, 1, 0, 900), (Call, 5, 0, 9000), (Return, 6, 0, 9008)];
        assert!(with_pointers(Stacks::Many, &unknown).is_err());
    }

    #[test]
    fn runtime_events_are_no_calls() {
        let mut events: Vec<_> = [(Call, 1, 0), (Call, 2, 1)].map(|(kind, f, d)| event(kind, f, d, None)).into();
        events.push(Recorded { function: FunctionId::new(ModuleId(0), 1), ..event(Return, 1, 0, None) });
        events.extend([(Return, 2, 1), (Return, 1, 0)].map(|(kind, f, d)| event(kind, f, d, None)));
        replay(&events, &returning(events.iter()), Stacks::One).expect("good");
    }
}
