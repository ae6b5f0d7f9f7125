//! Functions that are turned down and up while the program runs.

use tests::{Run, counts};

/// What goes on on stacks that is not calling and returning, with functions that go up and down at random: the program does
/// what it does by itself.
#[track_caller]
fn shaken(target: &str, arguments: &[&str]) {
    for (seed, engine) in [(1, "native"), (2, "native"), (3, "frida")] {
        let run = Run::target(target).arguments(arguments).with(&["--engine", engine, "--no-detail"]);
        run.shaken(seed).trace().same_behaviour().nothing_lost().times_rise();
    }
}

macro_rules! shaken {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                shaken(stringify!($name), &[]);
            }
        )*
    };
}

shaken! {
    plain recursion threads64 short_threads pthreads exceptions rust_panics longjmp contexts fibers fibers_throw signals fork
    fork_throws vfork_exec spawn exec family tail_calls callbacks dlopen_loop
}

#[test]
fn a_function_that_is_left_by_jumps_is_turned_down_and_up() {
    for seed in 0..4 {
        let traced = Run::target("crossings").with(&["--engine", "native", "--no-detail"]).shaken(seed).trace();
        traced.same_behaviour().nothing_lost().times_rise();
        let calls = counts::of_functions(&traced.trace, "_Z6jumperi").calls;
        assert!((1..200_000).contains(&calls), "some of 200,000 calls are recorded: {calls}");
    }
}
