//! How fast functions are hooked, and how long it takes from the start until the program runs.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use benches::{
    agent::{self, Hooked},
    built::{compiled, installed, own_file, version},
    ran::Ran,
    running::Running,
    samples::{Samples, at_most, figure},
    uftrace,
};

use super::Settings;

/// How many functions Gum hooks at most: it takes about as long for each.
const MOST_BY_GUM: &str = "5000";

/// A program with all its libraries hooked.
#[derive(Debug)]
struct Case {
    name: String,
    program: PathBuf,
    arguments: &'static [&'static str],
    /// What planning and installing, and what all until the program runs, may take, in seconds.
    most: (Option<f64>, Option<f64>),
    /// Whether the peer can hook all functions of the program itself.
    by_peer: bool,
}

pub(super) fn measure(settings: &Settings) {
    let rounds = settings.rounds.unwrap_or(5);
    println!("\n### Hooking every function of a program and its libraries\n");
    println!(
        "Medians of {rounds} rounds. Gum hooks up to {MOST_BY_GUM} functions of the program itself, uftrace all of it.\n"
    );
    println!(
        "| program | functions | modules | planned ms | installed ms | both s | Frida ms | until it runs s | hooked /s | Gum's attach /s | times Gum | untraced s | traced s | uftrace -P . s |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let collector = Running::start_with(&["--sink", "heph:/dev/null"]);
    let callbacks = compiled("benches/programs/gum_callbacks.c", &["-O2", "-shared", "-fPIC"]);
    for case in cases() {
        case.measure(settings, rounds, &collector, &callbacks);
    }
}

fn cases() -> Vec<Case> {
    let many = Case {
        name: "5,000 functions".into(),
        program: compiled("fixtures/targets/many_functions.c", &["-O1"]),
        arguments: &[],
        most: (Some(0.5), None),
        by_peer: true,
    };
    let of_the_system = [("python3", &["-c", "0"], 1.0), ("node", &["-e", "0"], 3.0)];
    let of_the_system = of_the_system.into_iter().filter_map(|(name, arguments, most)| {
        let Some(program) = installed(name) else {
            println!("| {name}: skipped, not installed | | | | | | | | | | | | | |");
            return None;
        };
        let name = format!("{name} ({})", version(&program));
        Some(Case { name, program, arguments, most: (None, Some(most)), by_peer: false })
    });
    [many].into_iter().chain(of_the_system).collect()
}

impl Case {
    fn measure(&self, settings: &Settings, rounds: usize, collector: &Running, callbacks: &Path) {
        let (mut untraced, mut traced, mut peer) = (Samples::default(), Samples::default(), Samples::default());
        let mut gum = Samples::default();
        let mut phases = Vec::new();
        for _ in 0..rounds {
            untraced.push(Ran::well(Command::new(&self.program).args(self.arguments)).seconds);
            let mut command = agent::run(collector.address, &["--verbose", "--no-detail"]);
            let ran = Ran::well(command.arg(&self.program).args(self.arguments));
            traced.push(ran.seconds);
            phases.extend(Hooked::parse(&ran.stderr));
            gum.push(self.by_gum(callbacks).unwrap_or(f64::NAN));
            if self.by_peer && uftrace::available().is_ok() {
                let folder = settings.fresh().join("uftrace");
                let mut command = uftrace::record(&folder, ".", &[] as &[&str]);
                peer.push(Ran::well(command.arg(&self.program).args(self.arguments)).seconds);
            }
        }
        let of = |phase: fn(&Hooked) -> f64| phases.iter().map(phase).collect::<Samples>().median();
        let both = of(|phases| (phases.planned + phases.installed) / 1e3);
        let in_all = of(|phases| phases.in_all / 1e3);
        let per_second = of(|phases| phases.functions / (phases.planned + phases.installed) * 1e3);
        let beside = |value, most: Option<f64>| most.map_or_else(|| figure(value, 2), |most| at_most(value, most));
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            self.name,
            figure(of(|phases| phases.functions), 0),
            figure(of(|phases| phases.modules), 0),
            figure(of(|phases| phases.planned), 1),
            figure(of(|phases| phases.installed), 1),
            beside(both, self.most.0),
            figure(of(|phases| phases.frida), 0),
            beside(in_all, self.most.1),
            figure(per_second, 0),
            figure(gum.median(), 0),
            figure(per_second / gum.median(), 1),
            figure(untraced.median(), 3),
            figure(traced.median(), 3),
            figure(peer.median(), 3),
        );
    }

    /// How many functions a second Gum's own `attach` hooks.
    fn by_gum(&self, callbacks: &Path) -> Option<f64> {
        let mut python = agent::python()?;
        python.arg(own_file("programs/gum.py")).arg(callbacks).args(["index", MOST_BY_GUM]);
        let ran = Ran::new(python.arg(&self.program).args(self.arguments));
        let words: Vec<_> = ran.lines("gum hooked ").next()?.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
        Some(number(0)? / number(4)? * 1e3)
    }
}
