use super::*;
use crate::drain::Functions;
use crate::drain::fake::FakeTarget;

const HEADER: u64 = 0x10_0000;

/// A target with so many functions, all full, and what looks after their levels.
fn levels(functions: u32, pace: Pace) -> (FakeTarget, Levels, Instant) {
    let target = FakeTarget::new(1 << 16, 1);
    let now = Instant::now();
    let mut levels = Levels::new(now);
    levels.begin(&target.arena, pace, SessionNs(0));
    for function in 0..functions {
        let full = Level::Full.slot(HEADER + 0x100 * u64::from(function));
        target.arena.slot(function).expect("a slot").store(full, Ordering::Relaxed);
    }
    target.arena.control().slots_used.store(functions.into(), Ordering::Relaxed);
    (target, levels, now)
}

fn count(target: &FakeTarget, function: u32, calls: u64) {
    target.arena.counter(0, function).expect("a counter").fetch_add(calls, Ordering::Relaxed);
}

fn turn_down(target: &FakeTarget, levels: &mut Levels, function: u32) {
    assert!(set_slot(target.arena.slot(function).expect("a slot"), Level::Counted));
    levels.changed(SessionNs(0), function, Level::Counted);
}

#[test]
fn what_is_called_little_is_followed_again_and_the_hottest_now_and_then() {
    let share = Pace::Share { share: 0.1, call_ns: 100.0 };
    let (target, mut levels, start) = levels(3, share);
    let arena = &target.arena;
    let level = |function| level_of(arena, function).expect("a level");
    [0, 1].into_iter().for_each(|function| turn_down(&target, &mut levels, function));
    let mut was_full = [0; 2];
    let looks = 400;
    for look in 1..=looks {
        count(&target, 0, 3);
        count(&target, 1, 40_000);
        levels.look(arena, &[0], start + EVERY * look, SessionNs(0), || Some(EVERY * look));
        for function in [0, 1] {
            was_full[function as usize] += u32::from(level(function) == Level::Full);
        }
        // It makes more calls than it may, and finds that out by itself.
        if level(1) == Level::Full {
            (0..20_000).for_each(|_| levels.called(1));
            turn_down(&target, &mut levels, 1);
        }
    }
    assert!(was_full[0] > looks - 5, "{was_full:?}");
    assert!((3..12).contains(&was_full[1]), "bursts become rare: {was_full:?}");
    assert_eq!(levels.spent.excess(), None);
    let down = levels.turned_down();
    assert_eq!((down.functions, down.followed, down.counted), (2, u64::from(was_full[1]) * 20_000, 0));
    levels.thread_ends(arena, 0);
    assert_eq!(levels.turned_down().counted, u64::from(looks) * 40_003);
    (0..8_000_000).for_each(|_| levels.called(1));
    levels.look(arena, &[0], start + EVERY * 500, SessionNs(0), || Some(EVERY * 500));
    let excess = levels.spent.excess().expect("it took more");
    assert!(excess.contains("tracing took 2") && excess.contains("or more, and not the 10 % of --budget"), "{excess}");
}

/// Threads that end before they have recorded enough to find out.
#[test]
fn what_no_thread_turns_down_is_turned_down_all_the_same() {
    let (target, mut levels, _) = levels(2, Pace::Share { share: 0.1, call_ns: 100.0 });
    let arena = &target.arena;
    let mut looks_with = |calls: u32| {
        let mut looks = 0;
        while level_of(arena, 0) == Some(Level::Full) && looks < 100 {
            looks += 1;
            (0..calls).for_each(|_| levels.called(0));
            (0..10).for_each(|_| levels.called(1));
            let (now, cpu) = (levels.looked + EVERY, levels.cpu + EVERY);
            levels.look(arena, &[], now, SessionNs(0), || Some(cpu));
        }
        looks
    };
    assert_eq!(looks_with(8_000), 100, "it stays within the budget");
    assert!((2..10).contains(&looks_with(60_000)));
    assert_eq!(level_of(arena, 1), Some(Level::Full));
}

#[test]
fn what_costs_too_much_even_to_count_is_turned_off() {
    let share = Pace::Share { share: 0.1, call_ns: 100.0 };
    let (target, mut levels, start) = levels(2, share);
    [0, 1].into_iter().for_each(|function| turn_down(&target, &mut levels, function));
    count(&target, 0, 1_000_000);
    count(&target, 1, 2_000);
    levels.look(&target.arena, &[0], start + EVERY, SessionNs(0), || Some(EVERY));
    let level = |function| level_of(&target.arena, function);
    assert_eq!((level(0), level(1)), (Some(Level::Off), Some(Level::Counted)));
    assert_eq!(levels.turned_down().off, 1);
    // A forked child begins with the levels of its parent.
    let mut child = Levels::new(start);
    child.begin(&target.arena, share, SessionNs(0));
    assert_eq!(child.turned_down().off, 1);
}

#[test]
fn what_takes_much_just_to_be_counted_is_left_alone_and_what_is_turned_off_again_and_again() {
    let share = Pace::Share { share: 0.1, call_ns: 100.0 };
    let (target, mut levels, start) = levels(3, share);
    let (arena, functions) = (&target.arena, Functions::default());
    [0, 1].into_iter().for_each(|function| turn_down(&target, &mut levels, function));
    count(&target, 0, 1_000_000);
    count(&target, 1, 2_000);
    levels.look(arena, &[0], start + EVERY, SessionNs(0), || Some(EVERY));
    levels.settle_hooks(&functions, arena, SessionNs(0));
    assert_eq!(functions.take_unwanted(), [0]);
    for look in 2..100 {
        levels.look(arena, &[0], start + EVERY * look, SessionNs(0), || Some(EVERY * look));
        assert_eq!(level_of(arena, 0), Some(Level::Off));
    }
    for times in 1..=3 {
        levels.turned_off(1, 0.0);
        levels.settle_hooks(&functions, arena, SessionNs(0));
        assert_eq!(functions.take_unwanted().len(), usize::from(times == 3));
    }
    assert_eq!(functions.left_alone(), [0, 1]);
}

/// Each of them costs little, and what is off is not even counted.
#[test]
fn what_costs_too_much_together_is_left_alone_from_the_hottest_on() {
    let (target, mut levels, start) = levels(64, Pace::Share { share: 0.1, call_ns: 100.0 });
    let (arena, functions) = (&target.arena, Functions::default());
    for function in 0..64 {
        turn_down(&target, &mut levels, function);
        count(&target, function, 10_000 + 100 * u64::from(function));
    }
    levels.look(arena, &[0], start + EVERY, SessionNs(0), || Some(EVERY));
    levels.settle_hooks(&functions, arena, SessionNs(0));
    let out = functions.take_unwanted();
    let off = (0..64).filter(|function| level_of(arena, *function) == Some(Level::Off)).count();
    assert!(out.len() > 20 && out.len() < off, "{} of {off}", out.len());
    assert!((64 - out.len() as u32..64).all(|function| out.contains(&function)), "{out:?}");
    assert!(levels.passing_ns(EVERY.as_secs_f64()) < 0.1 / 4.0 * EVERY.as_nanos() as f64);
}

#[test]
fn what_was_left_alone_is_what_is_asked_for_as_soon_as_its_hook_is_back() {
    let share = Pace::Share { share: 0.1, call_ns: 100.0 };
    let (target, mut levels, start) = levels(3, share);
    let (arena, functions) = (&target.arena, Functions::default());
    for function in 0..3 {
        turn_down(&target, &mut levels, function);
        set_slot(arena.slot(function).expect("a slot"), Level::Off);
        levels.changed(SessionNs(0), function, Level::Off);
        levels.take_out(function);
    }
    levels.settle_hooks(&functions, arena, SessionNs(0));
    assert_eq!(functions.take_unwanted(), [0, 1, 2]);
    let level = |function| level_of(arena, function);
    // The user asks for one, and a child that is forked meanwhile for another.
    assert_eq!(levels.set(arena, &[0], Some(Level::Full), SessionNs(0)), SetLevels { set: 1, fixed: 0 });
    levels.settle_hooks(&functions, arena, SessionNs(0));
    let (inherited, mut child) = (functions.inherit(), Levels::new(start));
    child.begin(arena, share, SessionNs(0));
    child.inherit_left_alone(&inherited.left_alone());
    assert_eq!(child.set(arena, &[1], Some(Level::Off), SessionNs(0)).set, 1);
    assert_eq!((functions.wanted_again(), level(0)), (vec![0], Some(Level::Off)));
    functions.found(0, true);
    levels.settle_hooks(&functions, arena, SessionNs(0));
    assert_eq!((level(0), level(1), functions.wanted_again()), (Some(Level::Full), Some(Level::Off), vec![]));
    // After a while others are tried again, and are left alone again at once where they are called as often.
    levels.look(arena, &[0], start + Duration::from_secs(40), SessionNs(0), || Some(EVERY));
    levels.settle_hooks(&functions, arena, SessionNs(0));
    assert_eq!(functions.wanted_again(), [1, 2]);
    functions.found(1, true);
    levels.settle_hooks(&functions, arena, SessionNs(0));
    levels.look(arena, &[0], start + Duration::from_secs(41), SessionNs(0), || Some(EVERY));
    assert_eq!((level(1), level(2)), (Some(Level::Counted), Some(Level::Off)));
    levels.turned_off(1, 0.0);
    levels.settle_hooks(&functions, arena, SessionNs(0));
    assert_eq!(functions.take_unwanted(), [1]);
    // Where everything may be followed, everything is that has its hook.
    levels.set_pace(Pace::Any);
    levels.settle_hooks(&functions, arena, SessionNs(0));
    assert_eq!(functions.wanted_again(), [1, 2]);
    levels.look(arena, &[0], start + Duration::from_secs(42), SessionNs(0), || None);
    assert_eq!(level(2), Some(Level::Off));
    [1, 2].into_iter().for_each(|function| functions.found(function, true));
    levels.settle_hooks(&functions, arena, SessionNs(0));
    levels.look(arena, &[0], start + Duration::from_secs(43), SessionNs(0), || None);
    assert_eq!([0, 1, 2].map(level), [Some(Level::Full); 3]);
}

#[test]
fn what_turned_itself_down_is_found_without_a_word() {
    let (target, mut levels, start) = levels(2, Pace::Rings);
    set_slot(target.arena.slot(1).expect("a slot"), Level::Counted);
    levels.look(&target.arena, &[], start + ALL_EVERY, SessionNs(0), || None);
    assert_eq!(levels.turned_down().functions, 1);
    // It is called by nobody, so there is room for it.
    levels.look(&target.arena, &[], start + ALL_EVERY + EVERY * 20, SessionNs(0), || None);
    assert_eq!(level_of(&target.arena, 1), Some(Level::Full));
}
