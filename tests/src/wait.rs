//! Waiting, with a deadline.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Longer than anything takes, even on a machine that is busy with other tests.
pub const LONG: Duration = Duration::from_secs(120);

/// Asks until the answer is yes. Fails the test where it never is.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    answer(what, || holds().then_some(()));
}

/// Asks until there is an answer. Fails the test where there never is one.
#[track_caller]
pub fn answer<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        // Others get the processor between two looks.
        thread::park_timeout(Duration::from_millis(10));
    }
}
