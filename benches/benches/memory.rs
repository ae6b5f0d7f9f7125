//! The most memory that a collector takes, whichever sink it has, when senders have it remember as much as it will.
//!
//! Each row is a collector with default limits but for `--memory`, attacked over six connections: by calls that never
//! return on all of them, and by another attack on each.

use std::{fs, time::Duration};

use benches::{Arguments, attack::Attack, built::target_folder, running::Running};

fn main() {
    let arguments = Arguments::read();
    let limit = arguments.value::<u64>("limit=").unwrap_or(512);
    let time = Duration::from_secs(arguments.value("seconds=").unwrap_or(10));
    println!("| sink | attack | peak memory, MiB | limit, MiB |\n|---|---|---:|---:|");
    let folder = target_folder().join("measured/memory");
    let sinks = ["disk:DIR", "disk:DIR,spans=live", "perfetto:DIR/p", "chrome:DIR/c", "heph:DIR/h"];
    for sink in sinks.into_iter().chain(["stdout:events", "stdout:spans"]) {
        for (name, attacks) in [("nested calls", [Attack::Nested; 6]), ("mixed", Attack::ALL)] {
            _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).expect("the target folder can be written to");
            let to = sink.replace("DIR", &folder.display().to_string());
            let collector = Running::start_with(&["--sink", &to, "--memory", &format!("{limit}MiB")]);
            Attack::all(&attacks, collector.address, time);
            println!("| `{sink}` | {name} | {} | {limit} |", collector.peak_memory() >> 20);
        }
    }
    _ = fs::remove_dir_all(&folder);
}
