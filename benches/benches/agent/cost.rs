//! What a traced call costs the program: entering and leaving a function that does almost nothing.
//!
//! The program calls it in bursts that fit the agent's ring as it is by default, and pauses between them, so that all
//! of them are recorded and none is dropped. The first bursts are left out: they touch memory for the first time.

use std::{path::PathBuf, process::Command};

use benches::{
    agent,
    built::{compiled, own_file},
    load::Carries,
    ran::Ran,
    running::Account,
    samples::{Samples, at_most, figure},
    uftrace,
};

use super::{Settings, missing, traced};

/// Calls that fit a ring of 4 MiB by three quarters: 40 bytes each, or 280 with registers and stack.
const fn calls(carries: Carries) -> u64 {
    match carries {
        Carries::Index => 75_000,
        Carries::Detail => 11_000,
    }
}

const BURSTS: usize = 14;
const WARM_UP: usize = 4;
const PAUSE_MS: u64 = 80;
const THREADS: [u64; 2] = [1, 2];

/// Who watches the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Nobody,
    /// The agent, with its own engine or Frida's: whether what it records is sent meanwhile, or waits until the burst is
    /// over.
    Spoor {
        by: &'static str,
        carries: Carries,
        sending: bool,
    },
    Gum(Carries),
    Uftrace {
        values: bool,
    },
}

const ENGINES: [Engine; 11] = [
    Engine::Nobody,
    Engine::Spoor { by: "frida", carries: Carries::Index, sending: false },
    Engine::Spoor { by: "native", carries: Carries::Index, sending: false },
    Engine::Spoor { by: "frida", carries: Carries::Index, sending: true },
    Engine::Spoor { by: "frida", carries: Carries::Detail, sending: false },
    Engine::Spoor { by: "native", carries: Carries::Detail, sending: false },
    Engine::Spoor { by: "frida", carries: Carries::Detail, sending: true },
    Engine::Gum(Carries::Index),
    Engine::Gum(Carries::Detail),
    PEER,
    Engine::Uftrace { values: true },
];

/// What all others are compared with.
const PEER: Engine = Engine::Uftrace { values: false };

/// The figures of an engine on one number of threads, in ns a call.
#[derive(Debug, Default)]
struct Figures {
    /// By the time that the threads ran.
    cpu: Samples,
    /// By the clock.
    wall: Samples,
    missing: Option<Account>,
}

pub(super) fn measure(settings: &Settings) {
    let bench = Bench::new(settings);
    let rounds = settings.rounds.unwrap_or(7);
    println!("\n### Cost of a traced call, ns\n");
    println!(
        "Medians of {rounds} rounds, with the lowest in brackets: the time that a thread ran, and by the clock.\n"
    );
    let engines: Vec<_> = ENGINES.into_iter().filter(|engine| bench.can(*engine)).collect();
    let mut figures: Vec<[Figures; 2]> = engines.iter().map(|_| Default::default()).collect();
    for _ in 0..rounds {
        for (engine, figures) in engines.iter().zip(&mut figures) {
            for (threads, figures) in THREADS.into_iter().zip(figures) {
                bench.round(*engine, threads, figures);
            }
        }
    }
    let peer = engines.iter().position(|engine| *engine == PEER).map(|peer| &figures[peer]);
    let nothing = Default::default();
    println!(
        "| engine | one thread | by the clock | two threads | by the clock | two / one | one / uftrace | two / uftrace | missing |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (engine, [one, two]) in engines.iter().zip(&figures) {
        let peer = peer.unwrap_or(&nothing);
        let by_peer = |figures: &Figures, peer: &Figures| engine.beside(figures.cpu.by(&peer.cpu).median());
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            engine.name(),
            with_lowest(&one.cpu),
            with_lowest(&one.wall),
            with_lowest(&two.cpu),
            with_lowest(&two.wall),
            engine.threads_beside(two.cpu.by(&one.cpu).median()),
            by_peer(one, &peer[0]),
            by_peer(two, &peer[1]),
            engine.missing(one, two),
        );
    }
}

fn with_lowest(samples: &Samples) -> String {
    format!("{} ({})", figure(samples.median(), 1), figure(samples.lowest(), 1))
}

impl Engine {
    fn name(self) -> String {
        match self {
            Self::Nobody => "untraced".into(),
            Self::Spoor { by, carries, sending } => {
                format!("Spoor ({by}), {}, {}", carries.name(), if sending { "sending" } else { "sending held" })
            }
            Self::Gum(carries) => format!("Gum's attach, native callbacks, {}", carries.name()),
            Self::Uftrace { values: false } => "uftrace record -P".into(),
            Self::Uftrace { values: true } => "uftrace record -P, six arguments and result".into(),
        }
    }

    /// A ratio to the peer, with what it should be.
    fn beside(self, ratio: f64) -> String {
        match self {
            Self::Spoor { carries: Carries::Index, .. } => at_most(ratio, 0.35),
            Self::Spoor { carries: Carries::Detail, .. } => at_most(ratio, 0.6),
            _ => figure(ratio, 2),
        }
    }

    /// A ratio of two threads to one, with what it should be.
    fn threads_beside(self, ratio: f64) -> String {
        match self {
            Self::Spoor { .. } => at_most(ratio, 1.2),
            _ => figure(ratio, 2),
        }
    }

    fn missing(self, one: &Figures, two: &Figures) -> String {
        match self {
            Self::Spoor { .. } => format!("{}, {}", missing(one.missing), missing(two.missing)),
            _ => String::new(),
        }
    }
}

/// What the rounds are made with.
#[derive(Debug)]
struct Bench<'a> {
    settings: &'a Settings,
    program: PathBuf,
    callbacks: PathBuf,
}

impl<'a> Bench<'a> {
    fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            program: compiled("benches/programs/calls.c", &["-O2"]),
            callbacks: compiled("benches/programs/gum_callbacks.c", &["-O2", "-shared", "-fPIC"]),
        }
    }

    /// Whether an engine can be measured here; says why where it cannot.
    fn can(&self, engine: Engine) -> bool {
        let why = match engine {
            Engine::Gum(_) if agent::python().is_none() => "the agent has no Python of its own",
            Engine::Uftrace { .. } => match uftrace::available() {
                Ok(_) => return true,
                Err(why) => why,
            },
            _ => return true,
        };
        println!("Skipped: {}: {why}.\n", engine.name());
        false
    }

    /// Runs the program once, and adds the median of its bursts to the figures.
    fn round(&self, engine: Engine, threads: u64, figures: &mut Figures) {
        let carries = match engine {
            Engine::Spoor { carries, .. } | Engine::Gum(carries) => carries,
            _ => Carries::Index,
        };
        let numbers = [threads, calls(carries), BURSTS as u64, PAUSE_MS].map(|number| number.to_string());
        let mut arguments: Vec<_> = numbers.iter().map(String::as_str).collect();
        let ran = match engine {
            Engine::Nobody => Ran::well(Command::new(&self.program).args(arguments)),
            Engine::Spoor { by, sending, .. } => {
                if !sending {
                    arguments.push("hold");
                }
                let options = [agent::options(carries), &["--engine", by]].concat();
                let (ran, account) = traced("heph:/dev/null", &options, &self.program, &arguments);
                let before = figures.missing.map_or(0, |before| before.missing);
                figures.missing = account.map(|now| Account { missing: now.missing + before, ..now });
                ran
            }
            Engine::Gum(_) => {
                let flavour = if carries == Carries::Index { "index" } else { "detail" };
                let mut python = agent::python().expect("there was one before");
                python.arg(own_file("programs/gum.py")).arg(&self.callbacks).args([flavour, "tiny"]);
                Ran::well(python.arg(&self.program).args(arguments))
            }
            Engine::Uftrace { values } => {
                let folder = self.settings.fresh().join("uftrace");
                let options = if values { uftrace::with_values("tiny").to_vec() } else { Vec::new() };
                let mut record = uftrace::record(&folder, "tiny", &options);
                let ran = Ran::well(record.arg(&self.program).args(arguments));
                assert_eq!(
                    uftrace::calls(&folder, "tiny"),
                    threads * calls(carries) * BURSTS as u64,
                    "uftrace lost calls"
                );
                ran
            }
        };
        let (mut wall, mut cpu) = (Samples::default(), Samples::default());
        for line in ran.lines("burst ").skip(WARM_UP) {
            let mut numbers = line.split(' ').filter_map(|number| number.parse().ok());
            wall.push(numbers.next().expect("the program says how long a call took"));
            cpu.push(numbers.next().expect("the program says how long it ran for a call"));
        }
        figures.wall.push(wall.median());
        figures.cpu.push(cpu.median());
    }
}
