//! How a session is doing while it runs.

use std::collections::BTreeMap;

use codec::{quantity::count, text::printable};
use serde::{Deserialize, Serialize};

/// What is known of a session while it runs. The document describes the fields.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)] // the document says what they are
pub struct Status {
    pub pid: u32,
    pub program: String,
    pub session: String,
    pub agent: u32,
    pub sessions: usize,
    pub threads: u64,
    pub events: u64,
    pub events_per_second: u64,
    pub budget: String,
    pub functions: ByLevel,
    pub dropped: BTreeMap<String, u64>,
    pub lost: BTreeMap<String, u64>,
    pub unconfirmed: u64,
}

/// How many functions have which level, and of how many it was set.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[allow(missing_docs)] // the document says what they are
pub struct ByLevel {
    pub full: u64,
    pub counted: u64,
    pub off: u64,
    pub set: u64,
}

impl Status {
    /// What an agent has told of it, for people. It may come from far away, and be anything.
    pub fn describe(json: &str) -> Result<String, serde_json::Error> {
        serde_json::from_str::<Self>(json).map(|status| status.text())
    }

    fn text(&self) -> String {
        let Self { pid, agent, sessions, threads, events, events_per_second, functions, .. } = self;
        let list = |counts: &BTreeMap<String, u64>| match counts.is_empty() {
            true => "nothing".into(),
            false => {
                let each = counts.iter().map(|(why, number)| format!("{} {}", count(*number), printable(why)));
                each.collect::<Vec<_>>().join(", ")
            }
        };
        format!(
            "{}, process {pid}, session {}, traced by agent {agent} ({sessions} in all)\n\
             events       {} of {threads} threads, {} a second, {} not confirmed yet\n\
             budget       {}\n\
             functions    {} full, {} counted, {} off; set by hand: {}\n\
             dropped      {}\n\
             lost         {}\n",
            printable(&self.program),
            printable(&self.session),
            count(*events),
            count(*events_per_second),
            count(self.unconfirmed),
            printable(&self.budget),
            count(functions.full),
            count(functions.counted),
            count(functions.off),
            count(functions.set),
            list(&self.dropped),
            list(&self.lost),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_far_away_moves_no_cursor() {
        let json = r#"{"pid":1,"program":"\u001b[2J","session":"a\nb","agent":2,"sessions":1,"threads":3,"events":4,
            "events_per_second":5,"budget":"rings\r","functions":{"full":1,"counted":2,"off":3,"set":0},
            "dropped":{"ring\u0007":6},"lost":{},"unconfirmed":0,"later":true}"#;
        let text = Status::describe(json).expect("a status");
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(Status::describe("{}").is_err() && Status::describe("done").is_err());
    }
}
