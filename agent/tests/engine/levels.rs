//! Functions that are turned down and up again while they are called.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
};

use agent::shared::{Kind, Level};

use crate::{
    caught_test, counted_test,
    harness::{engine, told},
    turned_test,
};

pub(crate) const LEVELS: [Level; 3] = [Level::Full, Level::Counted, Level::Off];

/// Called in the middle of a function that is then turned down.
pub(crate) fn turn_down() {
    // The test that calls it has the turn.
    let engine = crate::harness::opened();
    assert!(engine.set_level("turned_test", Level::Counted));
}

#[test]
fn counted_calls_are_exact_on_every_thread_and_not_recorded() {
    let (_turn, engine) = engine();
    engine.hook("", |name| name == "counted_test");
    const CALLS: u64 = 100_000;
    let call = || (0..CALLS).for_each(|n| assert_eq!(black_box(counted_test)(n), n + 1));
    engine.take();
    assert_eq!(counted_test(1), 2);
    assert_eq!(told(&engine.take()), ["> counted_test 0", "< counted_test 0"]);
    assert!(engine.set_level("counted_test", Level::Counted));
    let before = engine.counted("counted_test");
    call();
    assert_eq!((engine.counted("counted_test") - before, engine.take().len()), (CALLS, 0));
    // The first call of a thread is how it becomes known.
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(call)).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it counts"));
    let recorded = engine.take().iter().filter(|event| event.kind == Kind::Call).count() as u64;
    assert_eq!((engine.counted("counted_test") - before, recorded), (5 * CALLS - 4, 4));
    assert!(engine.set_level("counted_test", Level::Off));
    call();
    assert_eq!((engine.counted("counted_test") - before, engine.take().len()), (5 * CALLS - 4, 0));
    assert!(engine.set_level("counted_test", Level::Full));
    assert_eq!(counted_test(1), 2);
    assert_eq!(told(&engine.take()), ["> counted_test 0", "< counted_test 0"]);
}

#[test]
fn what_is_entered_before_it_is_turned_down_ends_as_itself() {
    let (_turn, engine) = engine();
    engine.hook("", |name| name == "turned_test");
    engine.take();
    assert_eq!(turned_test(3), 3);
    let calls = ["> turned_test 0", "> turned_test 1", "> turned_test 2", "> turned_test 3"];
    let returns = ["< turned_test 3", "< turned_test 2", "< turned_test 1", "< turned_test 0"];
    assert_eq!(told(&engine.take()), [calls, returns].concat());
    let before = engine.counted("turned_test");
    assert_eq!(turned_test(3), 3);
    assert_eq!((engine.counted("turned_test") - before, engine.take().len()), (4, 0));
}

#[test]
fn exceptions_pass_through_what_goes_up_and_down_at_random() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let (_turn, engine) = engine();
    let names = ["thrown_test", "caught_test"];
    assert_eq!(engine.hook("", |name| names.contains(&name)), 2);
    engine.hook("libgcc_s", |name| name.starts_with("_Unwind_"));
    let changing = std::thread::spawn(move || {
        let mut random = 1_u64;
        let mut changes = 0;
        while !IS_OVER.load(Ordering::Relaxed) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (name, level) = (names[(random >> 40) as usize % 2], LEVELS[(random >> 50) as usize % 3]);
            assert!(engine.set_level(name, level));
            changes += 1;
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        changes
    });
    for round in 0..3_000 {
        assert_eq!(caught_test(round % 9), 1);
        engine.take();
    }
    IS_OVER.store(true, Ordering::Relaxed);
    assert!(changing.join().expect("it changes") > 100);
    names.iter().for_each(|name| assert!(engine.set_level(name, Level::Full)));
    engine.take();
}
