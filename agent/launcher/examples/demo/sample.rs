//! What is traced: four threads that compute a little.

use std::{hint::black_box, thread};

/// The functions to look at.
pub(crate) const FUNCTIONS: [&str; 2] = ["sample_work", "sample_report"];

/// How many threads there are, and what each computes.
const THREADS: u64 = 4;
const NUMBER: u64 = 12;

pub(crate) fn run() {
    let worker = |n: u64| {
        let thread = thread::Builder::new().name(format!("worker {n}"));
        thread.spawn(move || sample_work(n)).expect("a thread starts")
    };
    let workers: Vec<_> = (0..THREADS).map(worker).collect();
    let results: Vec<u64> = workers.into_iter().map(|worker| worker.join().expect("a result")).collect();
    sample_report(&results);
}

#[inline(never)]
#[unsafe(no_mangle)]
fn sample_work(n: u64) -> u64 {
    black_box(sample_fibonacci(black_box(NUMBER + n)))
}

#[inline(never)]
#[unsafe(no_mangle)]
fn sample_fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { black_box(sample_fibonacci(n - 1)) + black_box(sample_fibonacci(n - 2)) }
}

#[inline(never)]
#[unsafe(no_mangle)]
fn sample_report(results: &[u64]) {
    println!("the sample says: {results:?}");
}
