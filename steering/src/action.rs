//! What can be asked of a running trace.

use clap::{Subcommand, ValueEnum};
use codec::profile::MAX_REQUEST_BYTES;

use crate::Pace;

/// A request for the status, or a change.
#[derive(Debug, Clone, Subcommand)]
pub enum Action {
    /// Print the status of the trace, as without a command
    Status,
    /// Set how much of functions the agent records, until it is set again
    Level {
        /// How much to record
        level: LevelWord,
        /// A GLOB for names of functions, or for the file name of a module: * stands for any characters, ? for one
        glob: String,
    },
    /// Record nothing of these functions, until `level auto` resets them
    Exclude {
        /// A GLOB for names of functions, or for the file name of a module: * stands for any characters, ? for one
        glob: String,
    },
    /// Record only these of the hooked functions, until `level auto '*'` resets them
    Only {
        /// A GLOB for names of functions, or for the file name of a module: * stands for any characters, ? for one
        glob: String,
    },
    /// Set what tracing may cost, for all processes that the agent traces
    Budget {
        /// 10%, 2x, none, rings (what fits), or complete
        #[arg(value_parser = pace)]
        budget: String,
    },
    /// Send the events that --keep has kept in memory, and those after them
    Dump,
    /// Start sending, as if a condition of --start-on had happened
    Start,
    /// Stop sending, as if a condition of --stop-on had happened
    Stop,
}

/// How much of a function is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LevelWord {
    /// Every call and return
    Full,
    /// The number of calls
    Counted,
    /// Nothing
    Off,
    /// What the budget allows
    Auto,
}

impl LevelWord {
    fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Counted => "counted",
            Self::Off => "off",
            Self::Auto => "auto",
        }
    }
}

impl Action {
    /// The request, in one line: a word, and what it is about. An error where that cannot be said in a line.
    pub fn request(&self) -> Result<String, String> {
        let request = match self {
            Self::Status => "status".into(),
            Self::Level { level, glob } => format!("level {} {glob}", level.as_str()),
            Self::Exclude { glob } => format!("exclude {glob}"),
            Self::Only { glob } => format!("only {glob}"),
            Self::Budget { budget } => format!("budget {budget}"),
            Self::Dump | Self::Start => "start".into(),
            Self::Stop => "stop".into(),
        };
        match request {
            long if long.len() > MAX_REQUEST_BYTES => Err(format!("a pattern has at most {MAX_REQUEST_BYTES} bytes")),
            lines if lines.contains('\n') => Err("a pattern has one line".into()),
            request => Ok(request),
        }
    }
}

fn pace(text: &str) -> Result<String, String> {
    text.parse::<Pace>().map(|_| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_line() {
        let glob = |glob: &str| Action::Level { level: LevelWord::Off, glob: glob.into() }.request();
        assert_eq!(glob("a b*"), Ok("level off a b*".into()));
        assert!(glob("a\nb").is_err() && glob(&"a".repeat(5_000)).is_err());
        assert_eq!((Action::Dump.request(), Action::Status.request()), (Ok("start".into()), Ok("status".into())));
    }
}
