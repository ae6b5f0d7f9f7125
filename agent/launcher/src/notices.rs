//! What is said while the program waits for the collector.

use std::time::{Duration, Instant};

use agent::{
    drain::{Drain, Waiting},
    ship::Shipper,
};

/// After how long it is said for the first time that the program waits, and how often after that.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(10);

/// Says why the program waits, that it does so no longer, and that the collector takes events again.
#[derive(Debug, Clone)]
pub(crate) struct Notices {
    collector: String,
    stall: Option<Duration>,
    state: State,
}

/// What was said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Nothing,
    /// That threads wait since then, and when.
    Waits {
        since: Instant,
        said: Instant,
    },
    /// That they go on, after they waited since then.
    GoesOn {
        since: Instant,
    },
}

impl Notices {
    pub(crate) fn new(collector: &str, stall: Option<Duration>) -> Self {
        Self { collector: collector.into(), stall, state: State::Nothing }
    }

    /// Looks whether there is something to say, and says it.
    pub(crate) fn look(&mut self, drain: &Drain, shipper: &Shipper) {
        // Nearly always.
        if self.state == State::Nothing && drain.waiting() == Waiting::No {
            return;
        }
        if let Some(line) = self.next(drain.waiting(), Instant::now(), || why(shipper)) {
            say!("{line}");
        }
    }

    fn next(&mut self, waiting: Waiting, now: Instant, why: impl FnOnce() -> String) -> Option<String> {
        let collector = &self.collector;
        let seconds = |since: Instant| now.saturating_duration_since(since).as_secs();
        match (self.state, waiting) {
            (State::Waits { said, .. }, Waiting::Since(_)) if now < said + EVERY => None,
            (_, Waiting::Since(since)) if now < since + FIRST => None,
            (_, Waiting::Since(since)) => {
                self.state = State::Waits { since, said: now };
                let then = match self.stall {
                    Some(limit) => format!("after {} s it goes on, and events are dropped", limit.as_secs_f64()),
                    None => "it waits for ever (--stall never)".into(),
                };
                let (waited, why) = (seconds(since), why());
                Some(format!("the program has waited {waited} s for the collector at {collector}: {why}; {then}"))
            }
            (State::GoesOn { .. }, Waiting::Over(_)) => None,
            (_, Waiting::Over(since)) => {
                self.state = State::GoesOn { since };
                let (waited, why) = (seconds(since), why());
                Some(format!(
                    "the program goes on after {waited} s without the collector at {collector}: {why}; events are \
                     dropped until the collector takes some (--stall)"
                ))
            }
            (State::Waits { since, .. } | State::GoesOn { since }, Waiting::No) => {
                self.state = State::Nothing;
                Some(format!("the collector at {collector} takes events again, after {} s", seconds(since)))
            }
            (State::Nothing, Waiting::No) => None,
        }
    }
}

/// Why the collector takes nothing.
fn why(shipper: &Shipper) -> String {
    let silence = shipper.heard_ago();
    match shipper.last_error() {
        _ if shipper.is_connected() && silence >= FIRST => {
            format!("it has not answered for {} s (is it stopped?)", silence.as_secs())
        }
        _ if shipper.is_connected() => "it answers, but does not keep what it gets (is its disk full?)".into(),
        Some((_, error)) => format!("it cannot be reached: {error}"),
        None => "it does not answer".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_said_and_at_the_right_time() {
        let start = Instant::now();
        let mut notices = Notices::new("there:7000", Some(Duration::from_secs(15)));
        let mut said = Vec::new();
        for tenth in 0..400 {
            let now = start + Duration::from_millis(100 * tenth);
            let waiting = match tenth {
                ..20 | 23..30 | 300.. => Waiting::No,
                20..23 => Waiting::Since(start + Duration::from_secs(2)),
                30..180 => Waiting::Since(start + Duration::from_secs(3)),
                180..300 => Waiting::Over(start + Duration::from_secs(3)),
            };
            said.extend(notices.next(waiting, now, || "why".into()).map(|line| (tenth, line)));
        }
        let said: Vec<_> = said.iter().map(|(tenth, line)| (*tenth, line.as_str())).collect();
        let then = "why; after 15 s it goes on, and events are dropped";
        assert_eq!(
            said,
            [
                (40, format!("the program has waited 1 s for the collector at there:7000: {then}").as_str()),
                (140, format!("the program has waited 11 s for the collector at there:7000: {then}").as_str()),
                (
                    180,
                    "the program goes on after 15 s without the collector at there:7000: why; events are dropped \
                     until the collector takes some (--stall)"
                ),
                (300, "the collector at there:7000 takes events again, after 27 s"),
            ]
        );
    }
}
