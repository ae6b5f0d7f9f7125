//! `cargo foreign [--install] [NAME…]`: programs that nobody here wrote, each as it is and traced, and a table of what was
//! hooked, what was lost, and whether it did the same. All of them, or those that are named.

use std::{
    env,
    error::Error,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    process::{self, Command, ExitCode},
    time::Duration,
};

use codec::quantity::count;
use rustix::process::set_child_subreaper;
use tests::{
    agent_command,
    foreign::{Beside, Foreign, sweep},
};

/// What all are traced with: the default settings, without registers and stacks.
const OPTIONS: &[&str] = &["--no-detail"];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (flags, names): (Vec<_>, Vec<_>) = env::args().skip(1).partition(|argument| argument.starts_with('-'));
    if let Some(flag) = flags.iter().find(|flag| *flag != "--install") {
        return Err(format!("{flag} is not known: cargo foreign [--install] [NAME…]").into());
    }
    let all = Foreign::all();
    if let Some(name) = names.iter().find(|name| all.iter().all(|foreign| foreign.name != *name)) {
        let known: Vec<_> = all.iter().map(|foreign| foreign.name).collect();
        return Err(format!("{name} is not in the catalogue, which has: {}", known.join(", ")).into());
    }
    let chosen: Vec<_> =
        all.into_iter().filter(|foreign| names.is_empty() || names.iter().any(|name| name == foreign.name)).collect();
    if !flags.is_empty() {
        install(&chosen)?;
    }
    // What programs leave running comes to this process, and is killed.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    agent_command::prepare();
    println!(
        "| program | group | untraced, s | traced, s | hooked / found | entry only | threads | events | lost | the same |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---|");
    let (mut harmed, mut missing, mut total) = (Vec::new(), Vec::new(), Total::default());
    for foreign in &chosen {
        if !foreign.missing().is_empty() {
            missing.push(foreign);
            continue;
        }
        let beside = catch_unwind(AssertUnwindSafe(|| foreign.beside(OPTIONS)));
        sweep();
        let beside = beside.unwrap_or_else(|_| Err("the comparison failed, see above".into()));
        if let Ok(beside) = &beside {
            total.add(beside);
        }
        if !print(foreign, beside) {
            harmed.push(foreign.name);
        }
    }
    clear_up();
    for foreign in &missing {
        println!("\n{} cannot be run here: apt-get install {}", foreign.name, foreign.missing().join(" "));
    }
    let (compared, Total { events, lost, whole }) = (chosen.len() - missing.len(), total);
    println!(
        "\n{compared} programs compared, {} cannot be run here, {} harmed: {}",
        missing.len(),
        harmed.len(),
        harmed.join(", ")
    );
    println!("{} events, {} of them lost and counted; {whole} programs lost nothing", count(events), count(lost));
    Ok(if harmed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Removes the folders of comparisons that failed.
fn clear_up() {
    let own = format!("spoor-service-{}-", process::id());
    for entry in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&own) {
            // What cannot be removed is left to whoever cleans the machine.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The sums of all rows.
#[derive(Default)]
struct Total {
    events: u64,
    lost: u64,
    /// How many programs lost nothing.
    whole: u32,
}

impl Total {
    fn add(&mut self, beside: &Beside) {
        let lost: u64 = beside.missing().values().sum();
        self.events += beside.produced();
        self.lost += lost;
        self.whole += u32::from(lost == 0);
    }
}

/// Prints the row of a program. Returns whether it was unharmed.
fn print(foreign: &Foreign, beside: Result<Beside, String>) -> bool {
    let Foreign { name, group, .. } = foreign;
    let beside = match beside {
        Ok(beside) => beside,
        Err(why) => {
            println!("| {name} | {group} | | | | | | | | **no**: {} |", one_line(&why));
            return false;
        }
    };
    let (hooked, found, entries) = beside.functions();
    let produced = beside.produced();
    let missing: Vec<_> = beside.missing().into_iter().map(|(cause, count)| lost(cause, count, produced)).collect();
    let lost = if missing.is_empty() { "0".into() } else { missing.join(", ") };
    let passed: Vec<_> = beside.passed_through().iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let same = beside.harm.as_ref().map_or_else(|| "yes".into(), |harm| format!("**no**: {}", one_line(harm)));
    let notes = if passed.is_empty() { String::new() } else { format!(" ({})", passed.join(", ")) };
    let seconds = |time: Duration| format!("{:.2}", time.as_secs_f64());
    println!(
        "| {name} | {group} | {} | {} | {} / {} | {} | {} | {} | {lost} | {same}{notes} |",
        seconds(beside.untraced),
        seconds(beside.traced),
        count(hooked),
        count(found),
        count(entries),
        beside.manifest.threads.len(),
        count(produced),
    );
    beside.harm.is_none()
}

fn lost(cause: &str, events: u64, of: u64) -> String {
    format!("{} ({:.1} %, {cause})", count(events), events as f64 * 100.0 / of as f64)
}

fn one_line(text: &str) -> String {
    let line = text.replace('\n', " ").replace('|', "/");
    line.chars().take(400).collect()
}

/// Installs the packages of programs that are missing. No service is started by that.
fn install(chosen: &[Foreign]) -> Result<(), Box<dyn Error>> {
    let packages: Vec<_> = chosen.iter().flat_map(Foreign::missing).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let mut command = Command::new("apt-get");
    command.args(["install", "-y", "-qq", "--no-install-recommends"]).args(&packages);
    // In this runlevel packages start nothing that they bring along.
    command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    let done = command.status()?.success();
    if done { Ok(()) } else { Err(format!("apt-get install {} failed", packages.join(" ")).into()) }
}
