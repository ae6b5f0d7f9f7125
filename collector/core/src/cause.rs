//! Why events are missing.

use std::{fmt, sync::Arc};

/// Why events are missing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// They were produced, nobody said that they were dropped, and they did not arrive.
    Network,
    /// The agent dropped them, and said why.
    Agent(Arc<str>),
    /// The collector did not keep them.
    Collector(&'static str),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network => f.write_str("network"),
            Self::Agent(reason) => write!(f, "agent:{reason}"),
            Self::Collector(reason) => write!(f, "collector:{reason}"),
        }
    }
}

/// The reasons that one session's agent gave. They come from the wire, so there are not many of them, nor long ones.
#[derive(Debug, Default)]
pub(crate) struct Reasons(Vec<Arc<str>>);

impl Reasons {
    const MAX: usize = 64;
    const MAX_BYTES: usize = 64;

    /// The cause for this reason, or `agent:other` where there have been too many. What another collector found
    /// missing, and wrote to a file that is read again, keeps its cause.
    pub(crate) fn cause(&mut self, reason: &str) -> Cause {
        if reason == "network" {
            return Cause::Network;
        }
        let reason = reason.get(..reason.floor_char_boundary_at(Self::MAX_BYTES)).unwrap_or_default();
        if let Some(known) = self.0.iter().find(|known| known.as_ref() == reason) {
            return Cause::Agent(known.clone());
        }
        let reason: Arc<str> = if self.0.len() < Self::MAX { reason.into() } else { "other".into() };
        if self.0.len() < Self::MAX {
            self.0.push(reason.clone());
        }
        Cause::Agent(reason)
    }
}

/// Cutting a string where a character ends.
trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, bytes: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_at(&self, bytes: usize) -> usize {
        let bytes = bytes.min(self.len());
        (0..=bytes).rev().find(|&at| self.is_char_boundary(at)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_few_and_short() {
        let mut reasons = Reasons::default();
        assert_eq!(reasons.cause("ring-full").to_string(), "agent:ring-full");
        assert_eq!(reasons.cause("network"), Cause::Network);
        let long = "ä".repeat(1000);
        assert_eq!(reasons.cause(&long).to_string(), format!("agent:{}", "ä".repeat(32)));
        for number in 0..1000 {
            reasons.cause(&number.to_string());
        }
        assert_eq!(reasons.0.len(), Reasons::MAX);
        assert_eq!(reasons.cause("one more").to_string(), "agent:other");
        assert_eq!(reasons.cause("ring-full").to_string(), "agent:ring-full");
    }
}
