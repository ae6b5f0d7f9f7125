//! What it costs to follow what a program starts: a shell that starts programs, one after the other.

use std::process::Command;

use benches::{
    agent,
    built::installed,
    ran::Ran,
    running::Running,
    samples::{Samples, figure},
};

use super::Settings;

/// How many programs are started.
const STARTED: u32 = 1000;

pub(super) fn measure(settings: &Settings) {
    let rounds = settings.rounds.unwrap_or(3);
    let script = format!("i=0; while [ $i -lt {STARTED} ]; do /bin/true; i=$((i+1)); done");
    let collector = Running::start_with(&["--sink", "heph:/dev/null"]);
    let traced = |follow: &str| {
        let options = ["--transport", "tcp", "--no-detail", "--engine", "native", "--follow", follow];
        let mut command = agent::run(collector.address, &options);
        command.args(["sh", "-c", &script]);
        command
    };
    let plain = |program: &[&str]| {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).args(["sh", "-c", &script]);
        command
    };
    let mut untraced = Command::new("sh");
    untraced.args(["-c", &script]);
    let mut ways = vec![("untraced", untraced), ("agent, --follow none", traced("none")), ("agent", traced("all"))];
    if installed("strace").is_some() {
        ways.push(("strace -f", plain(&["strace", "-f", "-o", "/dev/null"])));
    }
    println!("\n### Following {STARTED} programs that a shell starts\n");
    println!("Medians of {rounds} rounds. Native engine, index only, over TCP.\n");
    println!("| | ms for each |");
    println!("|---|---:|");
    for (name, mut command) in ways {
        let mut samples = Samples::default();
        (0..rounds).for_each(|_| samples.push(Ran::well(&mut command).seconds));
        println!("| {name} | {} |", figure(samples.median() * 1e3 / f64::from(STARTED), 2));
    }
}
