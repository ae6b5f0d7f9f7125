//! What of all events is sent, where that is not everything.
//!
//! Everything is recorded and read. A thread's events go through three sieves: they are inside of a function that is asked
//! for, their calls took [long enough](super::brief), and they lie in an interval that a trigger has opened. Until it is
//! known which intervals there are, they wait in a [backlog](super::backlog). What is left out has no position in its stream,
//! and so is no gap; it is counted.

use std::{collections::HashMap, time::Duration};

use codec::{FunctionId, SessionNs, text::Glob};

use super::clock::Clock;
use crate::shared::{Kind, Record};

/// What of all events is asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Only calls that take at least so long.
    pub slower_than: Option<Duration>,
    /// Only what runs inside of functions with these names.
    pub around: Vec<Glob>,
    /// Only from when one of these comes.
    pub start_on: Vec<Trigger>,
    /// Only until one of these comes.
    pub stop_on: Vec<Trigger>,
    /// Nothing is sent until something starts that: one of those, or [`trigger`](super::Drain::trigger).
    pub waits: bool,
    /// Keep what came before, for when something happens.
    pub keep: Option<Keep>,
}

impl Wanted {
    /// Whether nothing is sent until something happens.
    pub fn is_waiting(&self) -> bool {
        self.waits || self.keep.is_some()
    }

    fn has_triggers(&self) -> bool {
        self.waits || !self.start_on.is_empty() || !self.stop_on.is_empty() || self.keep.is_some()
    }
}

/// How much is kept back of what came before something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// For how long. What comes that long after it is sent, too.
    pub time: Duration,
    /// At most in so many bytes of memory.
    pub bytes: usize,
}

impl Keep {
    /// The longest time, which stands for as long as there is memory.
    pub const LONGEST: Duration = Duration::from_secs(24 * 3600);
}

/// Something that happens.
#[derive(Debug, Clone)]
pub enum Trigger {
    /// So much time has passed since the session began.
    Time(Duration),
    /// A function is called or has been called, one with such a name or any.
    Call {
        /// Its name.
        name: Option<Glob>,
        /// What else must be so.
        condition: Condition,
    },
}

/// What else must be so of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    None,
    /// It has taken at least so long.
    Slower(Duration),
    /// An integer argument, from 0 to 5, compares so to a value.
    Argument(u8, Comparison, u64),
}

/// How two numbers compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Comparison {
    Equal,
    Unequal,
    Less,
    Greater,
}

impl Comparison {
    fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Less => left < right,
            Self::Greater => left > right,
        }
    }
}

/// How much memory is used for what waits to be sent, where nobody says how much.
const USUAL_BYTES: usize = 64 << 20;

/// The most triggers there may be of calls.
pub const MOST_TRIGGERS: usize = 64;

/// What is asked for, and what has happened.
#[derive(Debug)]
pub(super) struct Selection {
    wanted: Wanted,
    /// The triggers that are calls, and whether each starts or stops.
    calls: Vec<(Option<Glob>, Condition, bool)>,
    /// Those of them that any function may set off, as bits.
    by_any: u64,
    /// What functions have to do with it, by their numbers.
    marks: Vec<Mark>,
    by_id: HashMap<FunctionId, Mark>,
    /// What has happened since the last look, and will: triggers that are times.
    moments: Vec<Moment>,
    intervals: Intervals,
    /// When the last record was that was read. What is kept lies before that: a program that has been idle,
    /// or takes its time to die, has done nothing since.
    newest: SessionNs,
    /// Up to when there was no memory for what might have been asked for, and how much time of what was is missing for that.
    forgotten: SessionNs,
    missing_ns: u64,
}

/// What a function has to do with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// What runs inside of it is asked for.
    pub(super) is_around: bool,
    /// Its returns are not seen.
    pub(super) is_entry_only: bool,
    /// The triggers that name it, as bits.
    triggers: u64,
}

/// Something starts or stops sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    at: SessionNs,
    is_start: bool,
}

impl Selection {
    /// None where everything is asked for.
    pub(super) fn new(wanted: Wanted) -> Option<Self> {
        let Wanted { slower_than, around, start_on, stop_on, waits, keep } = &wanted;
        if slower_than.is_none() && around.is_empty() && !wanted.has_triggers() {
            return None;
        }
        let (mut calls, mut moments) = (Vec::new(), Vec::new());
        let starts = start_on.iter().map(|trigger| (trigger, true));
        for (trigger, is_start) in starts.chain(stop_on.iter().map(|trigger| (trigger, false))) {
            match trigger {
                Trigger::Time(time) => moments.push(Moment { at: SessionNs(time.as_nanos() as u64), is_start }),
                Trigger::Call { name, condition } => calls.push((name.clone(), *condition, is_start)),
            }
        }
        calls.truncate(MOST_TRIGGERS);
        let by_any = bits(&calls, |(name, ..)| name.is_none());
        let intervals = Intervals::new(!waits && keep.is_none());
        Some(Self {
            calls,
            by_any,
            marks: Vec::new(),
            by_id: HashMap::new(),
            moments,
            intervals,
            newest: SessionNs(0),
            forgotten: SessionNs(0),
            missing_ns: 0,
            wanted,
        })
    }

    /// Whether events wait until it is known what happens.
    pub(super) fn has_triggers(&self) -> bool {
        self.wanted.has_triggers()
    }

    /// Whether only what runs inside of some functions is asked for.
    pub(super) fn is_around(&self) -> bool {
        !self.wanted.around.is_empty()
    }

    /// How long a call takes at least that is asked for.
    pub(super) fn slower_than_ns(&self) -> Option<u64> {
        self.wanted.slower_than.map(|time| time.as_nanos() as u64)
    }

    /// How many bytes may wait.
    pub(super) fn most_bytes(&self) -> usize {
        self.wanted.keep.map_or(USUAL_BYTES, |keep| keep.bytes)
    }

    /// A function has these names. To be said before it is called.
    pub(super) fn learn(&mut self, function: FunctionId, names: impl Iterator<Item: AsRef<str>>, is_entry_only: bool) {
        let mut mark = Mark { is_entry_only, ..Mark::default() };
        for name in names {
            let is_named = |glob: &Glob| glob.matches(name.as_ref());
            mark.is_around |= self.wanted.around.iter().any(is_named);
            mark.triggers |= bits(&self.calls, |(glob, ..)| glob.as_ref().is_some_and(is_named));
        }
        if mark != Mark::default() {
            self.by_id.insert(function, mark);
        }
    }

    /// What a function has to do with it, by its number.
    pub(super) fn mark(&mut self, function: u32, known: &[FunctionId]) -> Mark {
        if self.marks.len() < known.len() {
            let new = known.get(self.marks.len()..).unwrap_or_default();
            self.marks.extend(new.iter().map(|id| self.by_id.get(id).copied().unwrap_or_default()));
        }
        self.marks.get(function as usize).copied().unwrap_or_default()
    }

    /// Looks whether a call or return sets off a trigger.
    pub(super) fn watch(&mut self, record: &Record<'_>, mark: Mark, clock: &Clock) {
        let mut triggers = mark.triggers | self.by_any;
        while triggers != 0 {
            let place = triggers.trailing_zeros() as usize;
            triggers &= triggers - 1;
            let Some((_, condition, is_start)) = self.calls.get(place) else { continue };
            let at = clock.at(record.time);
            let holds = match (record.kind, condition, record.rest) {
                (Kind::Call, Condition::None, _) => true,
                (Kind::Call, Condition::Argument(index, comparison, value), [_, _, _, _, _, _, ..]) => {
                    record.rest.get(usize::from(*index)).is_some_and(|word| comparison.holds(*word, *value))
                }
                (Kind::Return | Kind::Exception, Condition::Slower(time), [entered, ..]) => {
                    u128::from(at.0.saturating_sub(clock.at(*entered).0)) >= time.as_nanos()
                }
                _ => false,
            };
            if holds {
                self.moments.push(Moment { at, is_start: *is_start });
            }
        }
    }

    /// A record was read.
    pub(super) fn read(&mut self, at: SessionNs) {
        self.newest = self.newest.max(at);
    }

    /// Something has happened that is no call, and starts or stops sending.
    pub(super) fn trigger(&mut self, is_start: bool) {
        self.moments.push(Moment { at: self.newest, is_start });
    }

    /// Takes note of what has happened up to a time, after which nothing more is learned of it. Which events are sent now.
    pub(super) fn settle(&mut self, up_to: SessionNs) -> (SessionNs, &Intervals) {
        let Self { wanted, moments, intervals, newest, forgotten, missing_ns, .. } = self;
        moments.sort_unstable();
        let around = wanted.keep.map(|keep| keep.time.as_nanos() as u64);
        for moment in moments.extract_if(.., |moment| moment.at <= up_to) {
            match moment.is_start {
                true => {
                    let from = intervals.start(moment.at, around);
                    if wanted.keep.is_none_or(|keep| keep.time < Keep::LONGEST) {
                        *missing_ns = (*missing_ns).max(forgotten.0.saturating_sub(from.0));
                    }
                }
                false => intervals.stop(moment.at),
            }
        }
        let newest = (*newest).min(up_to);
        let oldest = around.map_or(up_to, |around| SessionNs(newest.0.saturating_sub(around)));
        (oldest, intervals)
    }

    /// There was no memory for what came before a time.
    pub(super) fn forget(&mut self, before: SessionNs) {
        self.forgotten = self.forgotten.max(before);
    }

    /// How much time is missing of what was asked for, since there was no memory to keep it until that was known.
    pub(super) fn missing_ns(&self) -> u64 {
        self.missing_ns
    }
}

/// Which of these are so, as bits.
fn bits<T>(all: &[T], is_so: impl Fn(&T) -> bool) -> u64 {
    all.iter().enumerate().filter(|(_, one)| is_so(one)).fold(0, |bits, (place, _)| bits | 1 << place)
}

/// When what happens is sent: from each start until before the end, in their order.
#[derive(Debug)]
pub(super) struct Intervals(Vec<(SessionNs, SessionNs)>);

/// How many intervals that are over are remembered.
const MOST_INTERVALS: usize = 4_096;

impl Intervals {
    fn new(is_open: bool) -> Self {
        Self(is_open.then_some((SessionNs(0), SessionNs(u64::MAX))).into_iter().collect())
    }

    /// From then on, and if it is said how long, only as long, and as long before. From when on that was not so already.
    fn start(&mut self, at: SessionNs, around: Option<u64>) -> SessionNs {
        let start = SessionNs(at.0.saturating_sub(around.unwrap_or(0)));
        let end = SessionNs(around.map_or(u64::MAX, |time| at.0.saturating_add(time)));
        let new = self.0.last().map_or(start, |last| start.max(last.1));
        match self.0.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => self.0.push((start, end)),
        }
        if self.0.len() > MOST_INTERVALS {
            self.0.remove(0);
        }
        new
    }

    /// Until then, and with what happened then.
    fn stop(&mut self, at: SessionNs) {
        if let Some(last) = self.0.last_mut().filter(|last| last.0 <= at) {
            last.1 = last.1.min(SessionNs(at.0.saturating_add(1)));
        }
    }

    /// Whether a time is in one of them; and if not, when the next one starts.
    pub(super) fn find(&self, at: SessionNs) -> Result<(), Option<SessionNs>> {
        let after = self.0.partition_point(|(start, _)| *start <= at);
        match after.checked_sub(1).and_then(|place| self.0.get(place)) {
            Some((_, end)) if at < *end => Ok(()),
            _ => Err(self.0.get(after).map(|(start, _)| *start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str) -> Trigger {
        Trigger::Call { name: Some(Glob::new(name)), condition: Condition::None }
    }

    fn found(intervals: &Intervals, times: &[u64]) -> Vec<bool> {
        times.iter().map(|time| intervals.find(SessionNs(*time)).is_ok()).collect()
    }

    #[test]
    fn nothing_asked_for_is_everything() {
        assert!(Selection::new(Wanted::default()).is_none());
    }

    #[test]
    fn sending_starts_and_stops() {
        let wanted = Wanted { start_on: vec![call("a")], waits: true, stop_on: vec![call("b")], ..Wanted::default() };
        let mut selection = Selection::new(wanted).expect("not everything");
        // They are found thread by thread, not in the order of time.
        for (at, is_start) in [(900, true), (100, true), (200, false), (950, false)] {
            selection.moments.push(Moment { at: SessionNs(at), is_start });
        }
        let (oldest, intervals) = selection.settle(SessionNs(800));
        assert_eq!(oldest, SessionNs(800));
        assert_eq!(found(intervals, &[99, 100, 200, 201, 900]), [false, true, true, false, false]);
        let (_, intervals) = selection.settle(SessionNs(1_000));
        assert_eq!(found(intervals, &[899, 900, 950, 951]), [false, true, true, false]);
        assert_eq!(intervals.find(SessionNs(500)), Err(Some(SessionNs(900))));
    }

    #[test]
    fn what_is_kept_lies_around_what_happens() {
        let keep = Keep { time: Duration::from_nanos(50), bytes: 1 << 20 };
        let mut selection = Selection::new(Wanted { keep: Some(keep), ..Wanted::default() }).expect("not everything");
        for at in [100, 130, 300] {
            selection.read(SessionNs(at));
            selection.trigger(true);
        }
        selection.read(SessionNs(700));
        let (oldest, intervals) = selection.settle(SessionNs(1_000));
        assert_eq!(oldest, SessionNs(650), "what came before the last that happened, whenever that was");
        let times = [49, 50, 149, 179, 180, 249, 250, 349, 350];
        assert_eq!(found(intervals, &times), [false, true, true, true, false, false, true, true, false]);
        assert_eq!(selection.missing_ns(), 0);
        // There is no memory for all of the next, of which a part was sent already.
        selection.forget(SessionNs(680));
        selection.trigger(true);
        selection.settle(SessionNs(1_000));
        assert_eq!(selection.missing_ns(), 30);
        selection.read(SessionNs(760));
        selection.forget(SessionNs(740));
        selection.trigger(true);
        selection.settle(SessionNs(1_000));
        assert_eq!(selection.missing_ns(), 30, "it was asked for before");
    }

    #[test]
    fn without_a_start_it_is_sent_from_the_beginning_and_times_are_triggers() {
        let wanted = Wanted { stop_on: vec![Trigger::Time(Duration::from_nanos(500))], ..Wanted::default() };
        let mut selection = Selection::new(wanted).expect("not everything");
        assert_eq!(found(selection.settle(SessionNs(400)).1, &[0, 499, 700]), [true, true, true]);
        assert_eq!(found(selection.settle(SessionNs(600)).1, &[0, 500, 501]), [true, true, false]);
    }
}
