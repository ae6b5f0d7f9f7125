//! Arguments of `agent ctl`.

use clap::{Args, Subcommand, ValueEnum};

use crate::settings::Pace;

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The traced process: the program, or one that it has started and that is followed
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,
    /// Print the status as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) action: Option<CtlAction>,
}

/// What is to change.
#[derive(Debug, Subcommand)]
pub(crate) enum CtlAction {
    /// Set how much of functions is recorded, until it is set again
    Level {
        /// How much
        level: LevelWord,
        /// Functions by their names, or all of a module by its file's name: * stands for any characters, ? for one
        glob: String,
    },
    /// Set what tracing may cost, of all processes that the agent traces
    Budget {
        /// 10%, 2x, none, rings (what fits), or complete
        #[arg(value_parser = pace)]
        budget: String,
    },
    /// Send what --keep has kept back, and what comes after it
    Dump,
    /// Send from now on, as if what --start-on waits for had happened
    Start,
    /// Send nothing more, as if what --stop-on waits for had happened
    Stop,
}

/// How much of a function is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LevelWord {
    /// Every call and return
    Full,
    /// How many calls there are
    Counted,
    /// Nothing
    Off,
    /// What the budget allows
    Auto,
}

impl LevelWord {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Counted => "counted",
            Self::Off => "off",
            Self::Auto => "auto",
        }
    }
}

fn pace(text: &str) -> Result<String, String> {
    text.parse::<Pace>().map(|_| text.into())
}
