//! Ids, counters and times, each a type of its own so that they cannot be mixed up.

use std::{fmt, num::ParseIntError, str::FromStr};

/// A stream: one thread of the traced program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(pub u32);

/// A substream: the task that a thread is running. Zero is the thread itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SubstreamId(pub u64);

/// The number an event carries on the wire: its [`Position`] in the stream, modulo 2³².
///
/// It has no order of its own, since it wraps around; compare positions, or use [`Counter::ahead_of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counter(pub u32);

impl Counter {
    /// The counter of the event after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// How many events this counter is ahead of `other`, by the shorter way around; negative if behind.
    pub fn ahead_of(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }
}

/// An event's place in its stream, counted from the stream's start and never wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// The counter that the event at this position carries on the wire.
    #[allow(clippy::cast_possible_truncation)] // the low half is what is meant
    pub fn counter(self) -> Counter {
        Counter(self.0 as u32)
    }

    /// The position nearest to this one whose event carries `counter`.
    ///
    /// Never below the stream's start: from position 5, the counter 2³²−1 is 2³²−1 and not −1.
    #[must_use]
    pub fn nearest(self, counter: Counter) -> Self {
        let ahead = counter.ahead_of(self.counter());
        match self.0.checked_add_signed(ahead.into()) {
            Some(position) => Self(position),
            None if ahead < 0 => Self(counter.0.into()),
            // Past 2⁶⁴ events there is nothing to be near to.
            None => Self(u64::MAX),
        }
    }
}

/// A module (executable or library) of the traced program; 0 holds the functions made up for runtime events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ModuleId(pub u32);

/// A function: its module in the upper half, its index in the module's function table in the lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FunctionId(pub u64);

impl FunctionId {
    /// The id of function `index` of `module`.
    pub fn new(module: ModuleId, index: u32) -> Self {
        Self(u64::from(module.0) << 32 | u64::from(index))
    }

    /// The module that holds the function.
    #[allow(clippy::cast_possible_truncation)] // the upper half fits
    pub fn module(self) -> ModuleId {
        ModuleId((self.0 >> 32) as u32)
    }

    /// The function's index in its module's table.
    #[allow(clippy::cast_possible_truncation)] // the low half is what is meant
    pub fn index(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.module().0, self.index())
    }
}

impl fmt::Debug for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FunctionId({self})")
    }
}

/// One traced run of one process, chosen at random by the agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// No session.
    pub const NONE: Self = Self([0; 16]);
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for SessionId {
    type Err = ParseIntError;

    /// Reads what [`Display`](fmt::Display) writes: hexadecimal digits.
    fn from_str(digits: &str) -> Result<Self, ParseIntError> {
        u128::from_str_radix(digits, 16).map(|id| Self(id.to_be_bytes()))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// Nanoseconds since the session's zero, as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionNs(pub u64);

/// Nanoseconds of the traced machine's clock, as on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClockNs(pub u64);

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;

    #[test]
    fn counters_compare_across_the_wrap() {
        assert_eq!(Counter(u32::MAX).next(), Counter(0));
        assert_eq!(Counter(2).ahead_of(Counter(u32::MAX)), 3);
        assert_eq!(Counter(u32::MAX).ahead_of(Counter(2)), -3);
    }

    #[test]
    fn nearest_goes_either_way_but_never_below_the_start() {
        let at = Position((7 << 32) + 1);
        assert_eq!(at.nearest(Counter(4)), Position((7 << 32) + 4));
        assert_eq!(at.nearest(Counter(u32::MAX)), Position((7 << 32) - 1));
        assert_eq!(Position(5).nearest(Counter(u32::MAX)), Position(u32::MAX.into()));
        assert_eq!(Position(u64::MAX).nearest(Counter(0)), Position(u64::MAX));
    }

    quickcheck! {
        fn nearest_inverts_counter(at: u64, step: i32) -> bool {
            let Some(there) = at.checked_add_signed(step.into()) else { return true };
            Position(at).nearest(Position(there).counter()) == Position(there)
        }

        fn function_ids_split_back(module: u32, index: u32) -> bool {
            let id = FunctionId::new(ModuleId(module), index);
            id.module() == ModuleId(module) && id.index() == index
        }
    }
}
