//! Why events are missing.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use codec::text::cut;

/// Why events are missing: `network`, `agent:<reason>` or `collector:<reason>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause(Arc<str>);

/// Contact with the agent was lost before they came.
const LOST_CONTACT: &str = "collector:lost-contact";

/// The collector was stopped before they came.
const STOPPED: &str = "collector:stopped";

/// The collector was killed before they were in its files.
const KILLED: &str = "collector:killed";

impl Cause {
    /// They were produced, nobody reported them dropped, and they did not arrive.
    pub fn network() -> Self {
        static NETWORK: LazyLock<Arc<str>> = LazyLock::new(|| "network".into());
        Self(Arc::clone(&NETWORK))
    }

    /// The agent dropped them, for this reason.
    pub fn agent(reason: &str) -> Self {
        Self(format!("agent:{reason}").into())
    }

    /// Contact with the agent was lost before they came.
    pub(crate) fn lost_contact() -> Self {
        Self(LOST_CONTACT.into())
    }

    /// The collector was stopped before they came.
    pub fn stopped() -> Self {
        Self(STOPPED.into())
    }

    /// The collector was killed before they were in its files.
    pub fn killed() -> Self {
        Self(KILLED.into())
    }

    /// The collector did not keep them, for this reason.
    pub fn collector(reason: &str) -> Self {
        Self(format!("collector:{reason}").into())
    }

    /// The session was given up for now, and its agent may still have them: where it comes back, the session goes on
    /// with these.
    pub fn is_provisional(&self) -> bool {
        matches!(self.as_str(), LOST_CONTACT | STOPPED | KILLED)
    }

    /// The agent was told that they are kept, by whoever collected them before.
    pub fn is_kept_before(&self) -> bool {
        self.agent_reason() == Some("kept-before")
    }

    /// They are of a stream that the session has too many of.
    pub fn streams() -> Self {
        Self::collector("streams")
    }

    /// The cause in words.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Why the agent dropped them, if it did.
    pub fn agent_reason(&self) -> Option<&str> {
        self.0.strip_prefix("agent:")
    }
}

impl From<&str> for Cause {
    fn from(words: &str) -> Self {
        Self(words.into())
    }
}

impl From<String> for Cause {
    fn from(words: String) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The causes that one session's agent gave. They come from the wire, so there are not many of them, nor long ones.
#[derive(Debug, Default)]
pub(crate) struct AgentCauses(Vec<Cause>);

impl AgentCauses {
    const MAX: usize = 64;
    const MAX_BYTES: usize = 64;

    /// The cause for this reason, or `agent:other` where there have been too many. What another collector found
    /// missing, and wrote to a file that is read again, keeps its cause.
    pub(crate) fn cause(&mut self, reason: &str) -> Cause {
        if reason == "network" {
            return Cause::network();
        }
        let (prefix, reason) = match reason.strip_prefix("collector:") {
            Some(reason) => ("collector:", reason),
            None => ("agent:", reason),
        };
        // It will be printed.
        let words = format!("{prefix}{}", cut(reason, Self::MAX_BYTES)).replace(|c: char| c.is_control(), "?");
        if let Some(known) = self.0.iter().find(|known| known.as_str() == words) {
            return known.clone();
        }
        if self.0.len() >= Self::MAX {
            return Cause::agent("other");
        }
        let cause = Cause::from(words.as_str());
        self.0.push(cause.clone());
        cause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_few_and_short() {
        let mut causes = AgentCauses::default();
        assert_eq!(causes.cause("ring-full").as_str(), "agent:ring-full");
        assert_eq!(causes.cause("network"), Cause::network());
        assert_eq!(causes.cause("\x1b[31mred\n").as_str(), "agent:?[31mred?");
        assert_eq!(causes.cause("collector:stopped"), Cause::collector("stopped"));
        let long = "ä".repeat(1000);
        assert_eq!(causes.cause(&long).to_string(), format!("agent:{}", "ä".repeat(32)));
        for number in 0..1000 {
            causes.cause(&number.to_string());
        }
        assert_eq!(causes.0.len(), AgentCauses::MAX);
        assert_eq!(causes.cause("one more").as_str(), "agent:other");
        assert_eq!(causes.cause("ring-full").as_str(), "agent:ring-full");
    }
}
