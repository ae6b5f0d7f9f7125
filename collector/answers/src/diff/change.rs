//! How a function differs.

use crate::{spread::Spread, top::Function};

/// Within how many standard errors nineteen of twenty sums lie.
const ERRORS: f64 = 2.0;

/// A function of two sessions, or of one of them.
#[derive(Debug, Clone)]
pub struct Change {
    /// Its name for people.
    pub name: String,
    /// The name of its module's file.
    pub module: Option<String>,
    /// What it comes to in the first session, where it ran there.
    pub a: Option<Side>,
    /// The same in the second.
    pub b: Option<Side>,
}

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// How often it was called.
    Calls,
    /// How long the calls took.
    Total,
    /// How long they took themselves.
    Own,
}

/// What the calls of a function come to in one session.
#[derive(Debug, Clone, Default)]
pub struct Side {
    calls: Known,
    total: Known,
    own: Known,
    spread: Spread,
    self_spread: Spread,
}

/// A number, and how far it may be off, squared, as far as that is known beside the spread of calls.
#[derive(Debug, Clone, Copy)]
struct Known {
    value: u64,
    variance: Option<f64>,
}

impl Default for Known {
    fn default() -> Self {
        Self { value: 0, variance: Some(0.0) }
    }
}

impl Known {
    fn add(&mut self, value: u64, variance: Option<f64>) {
        self.value = self.value.saturating_add(value);
        self.variance = self.variance.zip(variance).map(|(one, other)| one + other);
    }
}

impl Side {
    /// Adds a function.
    pub(super) fn add(&mut self, function: &Function) {
        // Of calls that are missing nobody knows which they were: each that is there stands for several.
        let estimate = function.estimate.max(function.count as f64);
        let missing = estimate - function.count as f64;
        let variance = if function.count == 0 { 0.0 } else { missing * estimate / function.count as f64 };
        let others = function.counted.saturating_add(function.brief);
        self.calls.add((estimate.round() as u64).saturating_add(others), Some(variance));
        let known_ns = function.total_ns.saturating_add(function.brief_ns);
        match function.in_all.filter(|_| function.counted > 0) {
            // Nineteen cases of twenty.
            Some(all) => self.total.add(all.ns, all.error_ns.map(|error| (error as f64 / ERRORS).powi(2))),
            None if function.counted > 0 => self.total.add(known_ns, None),
            None => self.total.add(known_ns, Some(0.0)),
        }
        self.own.add(function.self_ns, Some(0.0));
        self.spread.absorb(&function.spread);
        self.self_spread.absorb(&function.self_spread);
    }

    /// The mean duration of the calls that were followed from end to end, if there are any.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.spread.count() > 0).then(|| self.spread.mean())
    }

    fn of(&self, measure: Measure) -> (u64, Option<f64>) {
        let (known, spread) = match measure {
            Measure::Calls => return (self.calls.value, self.calls.variance),
            Measure::Total => (self.total, self.spread),
            Measure::Own => (self.own, self.self_spread),
        };
        (known.value, known.variance.zip(spread.variance_of_sum()).map(|(one, other)| one + other))
    }
}

/// One number of both sessions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Value {
    /// In the first.
    pub a: u64,
    /// In the second.
    pub b: u64,
    /// By how much the difference may be off in nineteen cases of twenty, by how far single calls lie apart; none where that
    /// cannot be told.
    pub error: Option<u64>,
}

impl Value {
    /// How much more the second has.
    pub fn change(&self) -> i64 {
        let change = i128::from(self.b) - i128::from(self.a);
        i64::try_from(change).unwrap_or(if change < 0 { i64::MIN } else { i64::MAX })
    }

    /// Whether the difference is none, or no larger than chance makes it.
    pub fn is_noise(&self) -> bool {
        let size = self.change().unsigned_abs();
        size == 0 || self.error.is_some_and(|error| size <= error)
    }
}

impl Change {
    /// One number of both sessions.
    pub fn value(&self, measure: Measure) -> Value {
        // What did not run took no time, for sure.
        let side = |side: &Option<Side>| side.as_ref().map_or((0, Some(0.0)), |side| side.of(measure));
        let ((a, of_a), (b, of_b)) = (side(&self.a), side(&self.b));
        let error = of_a.zip(of_b).map(|(one, other)| (ERRORS * (one + other).sqrt()).ceil() as u64);
        Value { a, b, error }
    }

    /// The session that alone has it: `A` or `B`.
    pub fn only_in(&self) -> Option<char> {
        match (&self.a, &self.b) {
            (Some(_), None) => Some('A'),
            (None, Some(_)) => Some('B'),
            _ => None,
        }
    }
}
