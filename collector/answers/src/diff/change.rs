//! How a function differs.

use serde_json::{Value as Json, json};

use crate::{
    spread::{Spread, student},
    top::Function,
};

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

    fn of(&self, measure: Measure) -> (u64, Option<Doubt>) {
        let (known, spread) = match measure {
            Measure::Calls => {
                let doubt = |other| Doubt { other, ..Doubt::default() };
                return (self.calls.value, self.calls.variance.map(doubt));
            }
            Measure::Total => (self.total, self.spread),
            Measure::Own => (self.own, self.self_spread),
        };
        let freedom = spread.count().saturating_sub(1) as f64;
        let doubt = |(other, spread)| Doubt { other, spread, freedom };
        (known.value, known.variance.zip(spread.variance_of_sum()).map(doubt))
    }
}

/// How far a number may be off.
#[derive(Debug, Clone, Copy, Default)]
struct Doubt {
    /// Squared, by how far single calls lie apart.
    spread: f64,
    /// One less than the number of calls that this is known from.
    freedom: f64,
    /// Squared, by something else.
    other: f64,
}

impl Doubt {
    /// How far the difference of two numbers may be off in nineteen cases of twenty, after Welch.
    fn error(self, other: Self) -> u64 {
        let sides = [self, other];
        let all: f64 = sides.iter().map(|side| side.spread + side.other).sum();
        let few: f64 =
            sides.iter().filter(|side| side.freedom > 0.0).map(|side| side.spread.powi(2) / side.freedom).sum();
        let times = if few > 0.0 { student(all.powi(2) / few) } else { ERRORS };
        (times * all.sqrt()).ceil() as u64
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

impl Measure {
    /// All of them, with their names.
    pub const ALL: [(&str, Self); 3] = [("calls", Self::Calls), ("total", Self::Total), ("self", Self::Own)];
}

impl Change {
    /// All that is told of it, where this is what is compared.
    pub fn object(&self, by: Measure) -> Json {
        let mut object = json!({
            "function": self.name,
            "module": self.module,
            "only_in": self.only_in().map(String::from),
            "within_noise": self.value(by).is_noise(),
            "mean_a_ns": self.a.as_ref().and_then(Side::mean_ns).map(f64::round),
            "mean_b_ns": self.b.as_ref().and_then(Side::mean_ns).map(f64::round),
        });
        if let Json::Object(object) = &mut object {
            for (name, measure) in Measure::ALL {
                let unit = if measure == Measure::Calls { "" } else { "_ns" };
                let value = self.value(measure);
                object.insert(format!("{name}_a{unit}"), value.a.into());
                object.insert(format!("{name}_b{unit}"), value.b.into());
                object.insert(format!("{name}_change{unit}"), value.change().into());
                object.insert(format!("{name}_error{unit}"), value.error.into());
            }
        }
        object
    }

    /// One number of both sessions.
    pub fn value(&self, measure: Measure) -> Value {
        // What did not run took no time, for sure.
        let side = |side: &Option<Side>| side.as_ref().map_or((0, Some(Doubt::default())), |side| side.of(measure));
        let ((a, of_a), (b, of_b)) = (side(&self.a), side(&self.b));
        let error = of_a.zip(of_b).map(|(one, other)| one.error(other));
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
