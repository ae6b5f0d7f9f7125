//! Measuring a piece of work beside its baseline, in one run.

#![forbid(unsafe_code)]

pub mod agent;
pub mod attack;
pub mod built;
pub mod load;
pub mod ran;
pub mod recorded;
pub mod running;
pub mod samples;
pub mod sender;
pub mod uftrace;
pub mod walk;

use std::{
    env, fs,
    hint::black_box,
    path::Path,
    str::FromStr,
    time::{Duration, Instant},
};

use samples::Samples;

/// How long each case is measured, baseline included.
const TIME_PER_CASE: Duration = Duration::from_millis(1500);

/// What was said behind `cargo bench --`: words, and values such as `rounds=5`.
#[derive(Debug)]
pub struct Arguments(Vec<String>);

impl Arguments {
    /// Reads them. Cargo itself adds options.
    pub fn read() -> Self {
        Self(env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect())
    }

    /// The value of a key, which ends with `=`.
    pub fn value<T: FromStr>(&self, key: &str) -> Option<T> {
        self.0.iter().find_map(|argument| argument.strip_prefix(key)?.parse().ok())
    }

    /// Whether something is to be measured: its name contains all words together or is one of them, or there are none.
    pub fn wants(&self, name: &str) -> bool {
        let words: Vec<_> = self.0.iter().filter(|argument| !argument.contains('=')).map(String::as_str).collect();
        name.contains(&words.join(" ")) || words.contains(&name)
    }
}

/// Makes sure that a folder is there, with nothing in it.
pub fn fresh(folder: &Path) -> &Path {
    _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).expect("a folder");
    folder
}

/// A table of measurements, printed row by row as Markdown.
#[derive(Debug)]
pub struct Table(Arguments);

/// What one run of a piece of work does.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Events it processes.
    pub events: usize,
    /// Bytes it reads or writes for them.
    pub bytes: usize,
}

impl Table {
    /// Prints the heading. Every row's baseline is a memcpy of the same bytes.
    pub fn start(title: &str) -> Self {
        println!("\n### {title}\n");
        println!("| case | bytes/event | ns/event | M events/s | GB/s | memcpy GB/s | time / memcpy |");
        println!("|---|---:|---:|---:|---:|---:|---:|");
        Self(Arguments::read())
    }

    /// Measures `run`, alternating with a memcpy of `work.bytes`, and prints the medians.
    pub fn row(&mut self, name: &str, work: Work, mut run: impl FnMut()) {
        if !self.0.wants(name) {
            return;
        }
        let source = vec![0x5a_u8; work.bytes];
        let mut target = vec![0_u8; work.bytes];
        let mut copy = || black_box(&mut target).copy_from_slice(black_box(&source));
        let (mut own, mut copies) = (Samples::default(), Samples::default());
        run();
        copy();
        let started = Instant::now();
        while started.elapsed() < TIME_PER_CASE || own.count() < 5 {
            own.push(seconds(&mut run));
            copies.push(seconds(&mut copy));
        }
        let (own, copies) = (own.median(), copies.median());
        println!(
            "| {name} | {:.0} | {:.1} | {:.1} | {:.2} | {:.2} | {:.1} |",
            work.bytes as f64 / work.events as f64,
            own * 1e9 / work.events as f64,
            work.events as f64 / own / 1e6,
            work.bytes as f64 / own / 1e9,
            work.bytes as f64 / copies / 1e9,
            own / copies,
        );
    }
}

fn seconds(work: &mut impl FnMut()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64()
}
