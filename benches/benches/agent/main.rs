//! The agent: `cargo bench -p benches --bench agent -- [WORDS] [rounds=N]`. The whole way is in `pipeline`.
//!
//! `hooking`, `cost` and `programs` measure only that. Every figure stands beside what the same program
//! does untraced and what a peer makes of it, all in turn in one run.

mod cost;
mod hooking;
mod programs;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use benches::{
    agent,
    ran::Ran,
    running::{Account, Running},
};

/// What is to be measured, and where.
#[derive(Debug)]
struct Settings {
    words: Vec<String>,
    rounds: Option<usize>,
    folder: PathBuf,
}

fn main() {
    let settings = Settings::read();
    agent::prepare(Running::start_with(&["--sink", "heph:/dev/null"]).address);
    let measured = |name: &str, measure: fn(&Settings)| {
        if settings.words.is_empty() || settings.words.iter().any(|word| name.contains(word.as_str())) {
            measure(&settings);
        }
    };
    measured("hooking", hooking::measure);
    measured("cost", cost::measure);
    measured("programs", programs::measure);
    _ = fs::remove_dir_all(&settings.folder);
}

impl Settings {
    fn read() -> Self {
        // Cargo itself adds options.
        let arguments: Vec<_> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
        let value = |key: &str| arguments.iter().find_map(|argument| argument.strip_prefix(key)?.parse::<f64>().ok());
        Self {
            rounds: value("rounds=").map(|rounds| rounds as usize),
            folder: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("agent-bench"),
            words: arguments.into_iter().filter(|argument| !argument.contains('=')).collect(),
        }
    }

    /// The folder of this benchmark, with nothing in it.
    fn fresh(&self) -> &Path {
        _ = fs::remove_dir_all(&self.folder);
        fs::create_dir_all(&self.folder).expect("a folder");
        &self.folder
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
