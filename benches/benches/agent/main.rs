//! The agent: `cargo bench -p benches --bench agent -- [WORDS] [rounds=N] [budget=10%]`. The whole way is in `pipeline`.
//!
//! `hooking`, `cost`, `programs`, `names`, `startup`, `children` and `budget` measure only that. Every figure stands beside what the same program
//! does untraced and what a peer makes of it, all in turn in one run.

mod budget;
mod children;
mod cost;
mod hooking;
mod names;
mod programs;
mod startup;

use std::{
    fs,
    path::{Path, PathBuf},
};

use benches::{
    Arguments, agent, fresh,
    ran::Ran,
    running::{Account, Running},
};

/// What is to be measured, and where.
#[derive(Debug)]
struct Settings {
    rounds: Option<usize>,
    /// The only budget, where one is named.
    budget: Option<String>,
    folder: PathBuf,
}

fn main() {
    let arguments = Arguments::read();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("agent-bench");
    let settings = Settings { rounds: arguments.value("rounds="), budget: arguments.value("budget="), folder };
    agent::prepare(Running::start_with(&["--sink", "heph:/dev/null"]).address);
    let measured = |name: &str, measure: fn(&Settings)| {
        if arguments.wants(name) {
            measure(&settings);
        }
    };
    measured("hooking", hooking::measure);
    measured("cost", cost::measure);
    measured("programs", programs::measure);
    measured("names", names::measure);
    measured("startup", startup::measure);
    measured("children", children::measure);
    measured("budget", budget::measure);
    _ = fs::remove_dir_all(&settings.folder);
}

impl Settings {
    /// The folder of this benchmark, with nothing in it.
    fn fresh(&self) -> &Path {
        fresh(&self.folder)
    }
}

/// Traces a program to a collector of its own with this sink. Returns how the agent ran, and what the collector made
/// of it, if anything reached it.
fn traced(sink: &str, options: &[&str], program: &Path, arguments: &[&str]) -> (Ran, Option<Account>) {
    let collector = Running::start_with(&["--sink", sink]);
    let mut command = agent::run(collector.address, options);
    let ran = Ran::well(command.arg(program).args(arguments));
    (ran, Account::parse(&collector.stop()))
}

/// What is missing of a session, for a table.
fn missing(account: Option<Account>) -> String {
    account.map_or_else(|| "–".into(), |account| account.missing.to_string())
}
