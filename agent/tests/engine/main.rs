//! The engine in this very process: what is recorded of functions that the test itself calls.
#![cfg(target_arch = "x86_64")]

mod assembly;
mod harness;
mod levels;

use std::{hint::black_box, panic, sync::atomic::Ordering};

use agent::shared::Kind;
use harness::{STACK_BYTES, engine, told};

macro_rules! function {
    ($name:ident($($parameter:ident),*) $body:block) => {
        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C-unwind" fn $name($($parameter: u64),*) -> u64 $body
    };
}

function! { outer_test(n) { black_box(inner_test(n + 1)) + 1 } }
function! { inner_test(n) { black_box(n) * 2 } }
function! { down_test(n) { if n == 0 { 0 } else { black_box(down_test(n - 1)) + 1 } } }
function! { thrower_test(n) { if n == 0 { panic::resume_unwind(Box::new(7)) } else { black_box(thrower_test(n - 1)) + 1 } } }
function! { catcher_test(n) {
    let caught = panic::catch_unwind(|| black_box(thrower_test(n)));
    black_box(inner_test(u64::from(caught.is_err())))
} }
function! { many_test(a, b, c, d, e, f, g, h) { black_box(a + b + c + d + e + f) + g * h } }
function! { flood_test(n) { black_box(n) + 1 } }
function! { thread_test(n) { black_box(n) + 1 } }
function! { counted_test(n) { black_box(n) + 1 } }
function! { turned_test(n) { if n == 0 { levels::turn_down(); 0 } else { black_box(turned_test(n - 1)) + 1 } } }
function! { thrown_test(n) { if n == 0 { panic::resume_unwind(Box::new(7)) } else { black_box(thrown_test(n - 1)) + 1 } } }
function! { caught_test(n) { u64::from(panic::catch_unwind(|| black_box(thrown_test(n))).is_err()) } }

#[test]
fn calls_and_returns_are_recorded_with_their_depths_and_values() {
    let (_turn, engine) = engine();
    assert_eq!(engine.hook("", |name| name == "outer_test" || name == "inner_test"), 2);
    engine.take();
    assert_eq!(black_box(outer_test as extern "C-unwind" fn(u64) -> u64)(20), 43);
    let events = engine.take();
    let expected = ["> outer_test 0", "> inner_test 1", "< inner_test 1", "< outer_test 0"];
    assert_eq!(told(&events), expected);
    assert_eq!((events[0].rest[0], events[1].rest[0]), (20, 21), "first arguments");
    assert_eq!((events[2].rest[1], events[3].rest[1]), (42, 43), "results");
    // Return address, frame pointer, stack pointer; and the stack starts with the return address.
    assert_eq!(events[0].rest[6], events[0].rest[9]);
    assert_eq!(events[0].rest.len(), 9 + STACK_BYTES as usize / 8);
    assert_eq!(events[3].rest[3], events[0].rest[6], "it returns to where it was called from");
    // The caller's return address is in the callee's window as the program would see it, not as a stub.
    let slot = events[0].rest[8];
    let place = (slot - events[1].rest[8]) / 8;
    assert!(place < u64::from(STACK_BYTES) / 8, "the frame is small");
    assert_eq!(events[1].rest[9 + place as usize], events[0].rest[6]);
}

#[test]
fn deep_recursion_is_exact() {
    let (_turn, engine) = engine();
    engine.hook("", |name| name == "down_test");
    engine.take();
    assert_eq!(down_test(1000), 1000);
    let events = engine.take();
    assert_eq!(events.len(), 2002);
    for (place, event) in events.iter().enumerate() {
        let (kind, depth) = if place <= 1000 { (Kind::Call, place) } else { (Kind::Return, 2001 - place) };
        assert_eq!((event.kind, event.depth), (kind, depth as u32));
    }
}

#[test]
fn exceptions_pass_and_are_recorded() {
    let (_turn, engine) = engine();
    assert_eq!(engine.hook("", |name| ["thrower_test", "catcher_test"].contains(&name)), 2);
    assert!(engine.hook("libgcc_s", |name| name.starts_with("_Unwind_")) > 10);
    engine.hook("", |name| name.contains("catch_unwind") || name.contains("cleanup"));
    engine.take();
    for _ in 0..3 {
        assert_eq!(catcher_test(5), 2);
    }
    let mine = |event: &harness::Event| ["thrower_test", "catcher_test"].contains(&event.name.as_str());
    let events: Vec<_> = engine.take().into_iter().filter(mine).collect();
    let count = |kind, name: &str| events.iter().filter(|event| event.kind == kind && event.name == name).count();
    assert_eq!((count(Kind::Call, "thrower_test"), count(Kind::Exception, "thrower_test")), (18, 18));
    assert_eq!(count(Kind::Return, "thrower_test"), 0);
    assert_eq!((count(Kind::Call, "catcher_test"), count(Kind::Return, "catcher_test")), (3, 3));
}

#[test]
fn arguments_on_the_stack_stay_where_they_are() {
    let (_turn, engine) = engine();
    engine.hook("", |name| name == "many_test");
    engine.take();
    assert_eq!(
        black_box(many_test as extern "C-unwind" fn(u64, u64, u64, u64, u64, u64, u64, u64) -> u64)(
            1, 2, 3, 4, 5, 6, 7, 8
        ),
        21 + 56
    );
    let events = engine.take();
    assert_eq!(events[0].rest[..6], [1, 2, 3, 4, 5, 6]);
    // Behind the return address: the seventh and the eighth argument.
    assert_eq!(events[0].rest[10..12], [7, 8]);
}

#[test]
fn every_thread_has_its_ring() {
    let (_turn, engine) = engine();
    engine.hook("", |name| name == "thread_test");
    engine.take();
    let threads: Vec<_> =
        (0..8).map(|n| std::thread::spawn(move || (0..100).map(|_| thread_test(n)).sum::<u64>())).collect();
    let sum: u64 = threads.into_iter().map(|thread| thread.join().expect("a sum")).sum();
    assert_eq!(sum, (1..=8).map(|n| n * 100).sum::<u64>());
    let events = engine.take();
    assert_eq!(events.iter().filter(|event| event.kind == Kind::Call).count(), 800);
    assert_eq!(events.iter().filter(|event| event.kind == Kind::Return).count(), 800);
}

#[test]
fn a_tail_call_takes_the_place_of_its_caller() {
    let (_turn, engine) = engine();
    assert_eq!(engine.hook("", |name| name.starts_with("tail_") && name.ends_with("_test")), 3);
    engine.take();
    // SAFETY: assembly that keeps to the calling convention.
    let result = unsafe { assembly::tail_first_test(5) };
    assert_eq!(result, 8);
    let events = engine.take();
    let expected = ["> tail_first_test 0", "> tail_second_test 0", "> tail_third_test 0", "< tail_third_test 0"];
    assert_eq!(told(&events), expected);
    assert_eq!(events[3].rest[1], 8, "its result");
    assert!(events.windows(2).all(|pair| pair[0].kind != Kind::Call || pair[0].rest[6] == events[0].rest[6]));
}

#[test]
fn a_function_may_take_its_arguments_off_the_stack() {
    let (_turn, engine) = engine();
    assert_eq!(engine.hook("", |name| name.starts_with("jumps_to_pops_")), 2);
    engine.take();
    // SAFETY: as above.
    assert_eq!(unsafe { assembly::jumps_to_pops_check_test() }, 321);
    // It is the other that returns, which is not hooked yet.
    let expected = ["> jumps_to_pops_check_test 0", "> jumps_to_pops_test 1"];
    let returns = ["< jumps_to_pops_test 1", "< jumps_to_pops_check_test 0"];
    assert_eq!(told(&engine.take()), [expected, returns].concat());
    assert_eq!(engine.hook("", |name| name.starts_with("pops_")), 2);
    engine.take();
    // SAFETY: as above.
    assert_eq!(unsafe { (assembly::pops_check_test(), assembly::jumps_to_pops_check_test()) }, (321, 321));
    let first = ["> pops_check_test 0", "> pops_test 1", "< pops_test 1", "< pops_check_test 0"];
    let jumped = ["> pops_test 1", "< pops_test 1", "< jumps_to_pops_check_test 0"];
    assert_eq!(told(&engine.take()), [&first[..], &expected, &jumped].concat());
}

#[test]
fn a_jump_to_the_own_start_is_no_call() {
    let (_turn, engine) = engine();
    assert_eq!(engine.hook("", |name| name == "loop_test"), 1);
    engine.take();
    // SAFETY: as above.
    assert_eq!(unsafe { assembly::loop_test(10) }, 0);
    assert_eq!(told(&engine.take()), ["> loop_test 0", "< loop_test 0"]);
}

#[test]
fn registers_and_flags_are_as_they_were() {
    let (_turn, engine) = engine();
    assert_eq!(engine.hook("", |name| name == "keeper_test"), 1);
    engine.take();
    for level in levels::LEVELS {
        assert!(engine.set_level("keeper_test", level));
        // The first call of a thread takes the slow way, the second the fast one.
        for _ in 0..3 {
            // SAFETY: as above. It tells how many registers and flags differ from what they should be.
            assert_eq!(unsafe { assembly::keeper_check_test() }, 0, "{level:?}");
        }
    }
    assert_eq!((engine.take().len(), engine.counted("keeper_test")), (6, 3));
}

#[test]
fn a_full_ring_drops_and_says_how_many() {
    let (_turn, engine) = engine();
    assert_eq!(engine.hook("", |name| name == "flood_test"), 1);
    engine.take();
    const CALLS: u64 = 40_000;
    let ring = std::thread::spawn(|| {
        for n in 0..CALLS {
            assert_eq!(flood_test(n), n + 1);
        }
    });
    ring.join().expect("the thread ends");
    let first = engine.take();
    let dropped: u64 =
        (0..engine.arena.rings_used()).map(|at| engine.arena.head(at).dropped.load(Ordering::Relaxed)).sum();
    let kept = first.iter().filter(|event| event.name == "flood_test").count() as u64;
    assert!(dropped > 0 && kept > 0);
    assert_eq!(kept + dropped, 2 * CALLS);
}
