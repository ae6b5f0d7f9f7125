//! Measuring a piece of work beside its baseline, in one run.

#![forbid(unsafe_code)]

pub mod agent;
pub mod built;
pub mod load;
pub mod ran;
pub mod running;
pub mod samples;
pub mod sender;
pub mod uftrace;
pub mod walk;

use std::{
    env,
    hint::black_box,
    time::{Duration, Instant},
};

/// How long each case is measured, baseline included.
const TIME_PER_CASE: Duration = Duration::from_millis(1500);

/// A table of measurements, printed row by row as Markdown.
#[derive(Debug)]
pub struct Table {
    /// Only rows whose names contain this are measured.
    filter: String,
}

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
        // `cargo bench -- WORDS` measures only some; cargo itself adds options.
        let words: Vec<_> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
        Self { filter: words.join(" ") }
    }

    /// Measures `run`, alternating with a memcpy of `work.bytes`, and prints the medians.
    pub fn row(&mut self, name: &str, work: Work, mut run: impl FnMut()) {
        if !name.contains(&self.filter) {
            return;
        }
        let source = vec![0x5a_u8; work.bytes];
        let mut target = vec![0_u8; work.bytes];
        let mut copy = || black_box(&mut target).copy_from_slice(black_box(&source));
        let (mut own, mut copies) = (Vec::new(), Vec::new());
        run();
        copy();
        let started = Instant::now();
        while started.elapsed() < TIME_PER_CASE || own.len() < 5 {
            own.push(seconds(&mut run));
            copies.push(seconds(&mut copy));
        }
        let (own, copies) = (median(own), median(copies));
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

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}
