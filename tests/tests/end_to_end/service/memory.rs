//! `--memory` bounds the process, whichever sinks it has and whatever it is sent.

use std::time::Duration;

use benches::attack::Attack;
use tests::{Collector, Folder, process::Stdout};

use crate::service::machine;

const LIMIT: u64 = 128 << 20;
const TIME: Duration = Duration::from_millis(800);

/// Attacks a collector with one sink, over six connections, and returns the most memory that it took.
fn peak(sink: &str, attacks: &[Attack]) -> u64 {
    let _machine = machine();
    let folder = Folder::new("memory");
    let sink = sink.replace("DIR", &folder.path().display().to_string());
    let limit = format!("{}MiB", LIMIT >> 20);
    let arguments = ["--listen", "127.0.0.1:0", "--sink", &sink, "--memory", &limit, "--span-timeout", "1s"];
    let mut collector = Collector::start(&arguments, Stdout::Collect);
    Attack::all(attacks, collector.tcp(), TIME);
    let peak = collector.process().peak_bytes();
    collector.kill();
    peak
}

#[test]
fn no_sink_takes_more_than_the_limit() {
    let sinks = ["disk:DIR", "disk:DIR,spans=live", "perfetto:DIR/p", "chrome:DIR/c", "heph:DIR/h"];
    for sink in sinks.into_iter().chain(["stdout:events", "stdout:spans"]) {
        for attacks in [[Attack::Nested; 6], Attack::ALL] {
            let peak = peak(sink, &attacks);
            println!("{sink}, {attacks:?}: {} MiB", peak >> 20);
            assert!(peak <= LIMIT, "{sink}, {attacks:?}: {} MiB of {}", peak >> 20, LIMIT >> 20);
        }
    }
}
