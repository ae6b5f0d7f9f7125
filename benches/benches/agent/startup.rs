//! How long programs take that do nothing: by themselves, and traced with each engine. From the start of the command until what they
//! print first, which is at the begin of `main`, and to the end.

use std::{
    io::Read,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use benches::{
    agent,
    built::installed,
    running::Running,
    samples::{Samples, figure},
};

use super::Settings;

const PROGRAMS: [(&str, &[&str]); 5] = [
    ("true", &[]),
    ("python3", &["--version"]),
    ("python3", &["-c", "0"]),
    ("node", &["--version"]),
    ("node", &["-e", "0"]),
];
const ENGINES: [&str; 2] = ["frida", "native"];

/// What a program takes until it prints something, if it does, and to its end, in milliseconds.
type Times = [Samples; 2];

pub(super) fn measure(settings: &Settings) {
    let rounds = settings.rounds.unwrap_or(11);
    println!("\n### Start-up, by engine\n");
    println!(
        "Medians of {rounds} rounds, ms: the program by itself, and how much longer it takes traced, with everything hooked, \
         until it prints something and to the end.\n"
    );
    println!("| program | prints, untraced | Frida | native | ends, untraced | Frida | native |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let collector = Running::start_with(&["--sink", "heph:/dev/null"]);
    for (name, arguments) in PROGRAMS {
        let title = [&[name], arguments].concat().join(" ");
        let Some(program) = installed(name) else {
            println!("| {title}: skipped, not installed | | | | | | |");
            continue;
        };
        let [untraced, frida, native] = case(&collector, &program, arguments, rounds);
        print!("| {title} |");
        for (place, untraced) in untraced.iter().enumerate() {
            let more = |traced: &Times| figure(traced[place].median() - untraced.median(), 0);
            match untraced.median() {
                none if none.is_nan() => print!(" | | |"),
                median => print!(" {} | + {} | + {} |", figure(median, 1), more(&frida), more(&native)),
            }
        }
        println!();
    }
}

/// By itself, and with each engine.
fn case(collector: &Running, program: &Path, arguments: &[&str], rounds: usize) -> [Times; 3] {
    let mut times: [Times; 3] = Default::default();
    for _ in 0..rounds {
        time(Command::new(program).args(arguments), &mut times[0]);
        for (engine, times) in ENGINES.iter().zip(&mut times[1..]) {
            let options = ["--transport", "tcp", "--no-detail", "--engine", engine];
            time(agent::run(collector.address, &options).arg(program).args(arguments), times);
        }
    }
    times
}

fn time(command: &mut Command, [prints, ends]: &mut Times) {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    if stdout.read(&mut [0]).expect("it can be read") > 0 {
        prints.push(started.elapsed().as_secs_f64() * 1e3);
    }
    stdout.read_to_end(&mut Vec::new()).expect("it can be read");
    let status = child.wait().expect("a child");
    ends.push(started.elapsed().as_secs_f64() * 1e3);
    assert!(status.success(), "{command:?}: {status}");
}
