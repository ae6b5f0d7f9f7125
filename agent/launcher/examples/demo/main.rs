//! `cargo demo`: a collector, an agent and a small program with threads, on this machine, from nothing to a trace.

mod sample;

use std::{
    env,
    error::Error,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The argument that makes this program the one that is traced.
const SAMPLE: &str = "sample";

fn main() -> Result<()> {
    if env::args().nth(1).as_deref() == Some(SAMPLE) {
        sample::run();
        return Ok(());
    }
    let folder = build()?;
    let traces = folder.with_file_name("demo-traces");
    // What an earlier demo has left.
    if traces.exists() {
        std::fs::remove_dir_all(&traces)?;
    }
    // It does without where that fails.
    let _ = Command::new(folder.join("agent")).arg("setup").status();
    let (mut collector, port) = start_collector(&folder.join("collector"), &traces)?;
    println!("\n3. Trace a program with four threads, every function of it and of its libraries:");
    let traced = trace(&folder.join("agent"), port);
    // Told to end after one session, so it does by itself; where there was none it is ended here.
    if traced.is_err() {
        collector.kill()?;
    }
    collector.wait()?;
    traced?;
    show(&folder.join("collector"), &traces)
}

/// Builds both commands, with the profile and the features that this program was built with, and returns where they are.
fn build() -> Result<PathBuf> {
    println!("1. Build the two commands, agent and collector.");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--workspace", "--bin", "agent", "--bin", "collector"]);
    // What the cargo outside says of this package looks like a change to the build scripts of others.
    let of_outside =
        |name: &str| name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars().filter(|(name, _)| of_outside(name)) {
        build.env_remove(name);
    }
    if !build.status()?.success() {
        return Err("cargo build failed".into());
    }
    // This is target/debug/examples/demo.
    let own = env::current_exe()?;
    Ok(own.parent().and_then(Path::parent).ok_or("this program is not where cargo puts examples")?.to_path_buf())
}

fn start_collector(command: &Path, traces: &Path) -> Result<(Child, u16)> {
    let sink = format!("disk:{}", traces.display());
    println!("2. Start a collector on loopback, which writes to {}.", traces.display());
    let mut collector = Command::new(command)
        .args(["--listen", "127.0.0.1:0", "--once", "--sink", &sink])
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(collector.stderr.take().ok_or("no stderr")?).lines();
    let port = loop {
        let line = lines.next().ok_or("the collector ended")??;
        println!("   {line}");
        if let Some(port) = line.strip_prefix("listening udp 127.0.0.1:").and_then(|rest| rest.split(' ').next()) {
            break port.parse()?;
        }
    };
    thread::spawn(move || lines.map_while(std::result::Result::ok).for_each(|line| println!("   {line}")));
    Ok((collector, port))
}

fn trace(agent: &Path, port: u16) -> Result<()> {
    let to = format!("127.0.0.1:{port}");
    println!("   agent run --to {to} -- {} {SAMPLE}\n", env::current_exe()?.display());
    let status = Command::new(agent)
        .args(["run", "--to", &to, "--complete", "--"])
        .arg(env::current_exe()?)
        .arg(SAMPLE)
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("the agent ended with {status}; `agent doctor` says what is missing").into()),
    }
}

fn show(collector: &Path, traces: &Path) -> Result<()> {
    let mut sessions = std::fs::read_dir(traces)?;
    let session = sessions.next().ok_or("the collector has written nothing")??.path();
    let output = |arguments: &[&str]| -> Result<String> {
        let output = Command::new(collector).args(arguments).arg(&session).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    };
    println!("\n4. What was captured, and what was lost:\n");
    println!("{}", output(&["info"])?);
    print!("{}", output(&["verify"])?);
    println!("\n5. What the sample's own functions did:\n");
    let events = output(&["events"])?;
    let own = events.lines().filter(|line| sample::FUNCTIONS.iter().any(|name| line.contains(name)));
    own.take(12).for_each(|line| println!("{line}"));
    println!("\n6. What its threads came to, and what took the time:\n");
    println!("{}", output(&["spans", "--runtime", "pthread", "--sort", "start"])?);
    print!("{}", output(&["top", "--limit", "8"])?);
    println!("\nLook further:");
    for command in ["spans", "top", "tree", "stats", "events", "info", "verify"] {
        println!("  {} {command} {}", collector.display(), session.display());
    }
    println!("Trace something of your own:");
    println!("  {} --listen 127.0.0.1:7000", collector.display());
    println!("  {} run -- ls -l", collector.with_file_name("agent").display());
    Ok(())
}
