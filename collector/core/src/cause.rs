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
    Collector(Arc<str>),
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
        match reason.strip_prefix("collector:") {
            _ if reason == "network" => Cause::Network,
            Some(reason) => Cause::Collector(self.keep(reason)),
            None => Cause::Agent(self.keep(reason)),
        }
    }

    fn keep(&mut self, reason: &str) -> Arc<str> {
        let reason = codec::text::cut(reason, Self::MAX_BYTES);
        // It will be printed.
        let reason = reason.replace(|c: char| c.is_control(), "?");
        if let Some(known) = self.0.iter().find(|known| known.as_ref() == reason) {
            return known.clone();
        }
        if self.0.len() >= Self::MAX {
            return "other".into();
        }
        let reason: Arc<str> = reason.into();
        self.0.push(reason.clone());
        reason
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
        assert_eq!(reasons.cause("\x1b[31mred\n").to_string(), "agent:?[31mred?");
        assert_eq!(reasons.cause("collector:stopped"), Cause::Collector("stopped".into()));
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
