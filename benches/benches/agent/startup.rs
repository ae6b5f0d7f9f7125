//! How long programs take that do nothing: by themselves, and traced with each engine, from the start of the command to its end.

use std::{path::Path, process::Command};

use benches::{
    agent,
    built::installed,
    ran::Ran,
    running::Running,
    samples::{Samples, figure},
};

use super::Settings;

const PROGRAMS: [(&str, &[&str]); 3] = [("true", &[]), ("python3", &["-c", "0"]), ("node", &["-e", "0"])];
const ENGINES: [&str; 2] = ["frida", "native"];

pub(super) fn measure(settings: &Settings) {
    let rounds = settings.rounds.unwrap_or(11);
    println!("\n### Start-up, by engine\n");
    println!(
        "Medians of {rounds} rounds, ms: the program by itself, and how much longer it takes traced, with everything hooked.\n"
    );
    println!("| program | untraced | Frida | native |");
    println!("|---|---:|---:|---:|");
    let collector = Running::start_with(&["--sink", "heph:/dev/null"]);
    for (name, arguments) in PROGRAMS {
        let Some(program) = installed(name) else {
            println!("| {name}: skipped, not installed | | | |");
            continue;
        };
        let [untraced, frida, native] = case(&collector, &program, arguments, rounds);
        println!("| {name} | {} | + {} | + {} |", figure(untraced, 1), figure(frida, 0), figure(native, 0));
    }
}

/// What a program takes by itself, and how much longer it takes with each engine, in ms.
fn case(collector: &Running, program: &Path, arguments: &[&str], rounds: usize) -> [f64; 3] {
    let mut samples: [Samples; 3] = Default::default();
    for _ in 0..rounds {
        samples[0].push(Ran::well(Command::new(program).args(arguments)).seconds);
        for (engine, samples) in ENGINES.iter().zip(&mut samples[1..]) {
            let options = ["--transport", "tcp", "--no-detail", "--engine", engine];
            samples.push(Ran::well(agent::run(collector.address, &options).arg(program).args(arguments)).seconds);
        }
    }
    let [untraced, frida, native] = samples.map(|samples| samples.median() * 1e3);
    [untraced, frida - untraced, native - untraced]
}
