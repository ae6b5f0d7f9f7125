//! A server under load, with all its functions hooked.

use std::{
    net::{TcpListener, TcpStream},
    process::Command,
};

use tests::{
    Collector, Exit, Folder, Process, Trace, Transport, agent_command,
    depths::{self, Stacks},
    process::Stdout,
    traced::LOSSLESS,
};

use crate::tracing::{LONG, answer, programs::installed};

/// What is asked of it, and how often.
const REQUESTS: u32 = 2000;

#[test]
fn a_server_answers_all_that_its_benchmark_asks() {
    let Some(server) = installed("redis-server", "redis-server") else { return };
    let Some(benchmark) = installed("redis-benchmark", "redis-tools") else { return };
    agent_command::prepare();
    let folder = Folder::new("redis");
    let collector = Collector::events_to_disk(&folder.join("traces"));
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let port = address.port().to_string();

    let options = [LOSSLESS, &["--no-detail"]].concat();
    let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, &options);
    command.arg(server).args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--dir"]).arg(folder.path());
    let mut server = Process::start(command, Stdout::Collect);
    answer("the server listens", || {
        assert!(server.is_running(), "the server ended: {}", server.said());
        TcpStream::connect(address).ok()
    });

    let requests = REQUESTS.to_string();
    let mut command = Command::new(benchmark);
    command.args(["-p", &port, "-n", &requests, "-c", "10", "-t", "set,get,lpush,lrange_100", "--csv"]);
    let load = Process::start(command, Stdout::Collect).exit(LONG).success();
    let rows: Vec<_> = load.text().lines().map(|line| line.split(',').next().unwrap_or_default()).collect();
    for test in ["SET", "GET", "LPUSH"] {
        assert!(rows.iter().any(|row| row.contains(test)), "{test} in {rows:?}");
    }

    // As its users end it; the agent passes it on.
    server.signal("TERM");
    let Exit { code, stderr, stdout, .. } = server.exit(LONG);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(String::from_utf8_lossy(&stdout).contains("bye bye"), "it shut down in order");
    collector.stop().success();
    let trace = Trace::only(&folder.join("traces"));
    assert!(trace.manifest.gaps.is_empty(), "{:?}", trace.manifest.gaps);
    depths::consistent(&trace, Stacks::One);
    let commands = trace.threads.values().flatten().filter(|event| event.name.as_deref() == Some("processCommand"));
    let named = trace.manifest.functions.iter().any(|function| function.name == "processCommand");
    // Debian's is stripped. Where it is not, every request is there.
    assert!(!named || commands.count() as u32 >= 2 * 4 * REQUESTS);
    assert!(trace.len() as u32 > 10 * REQUESTS, "{} events", trace.len());
}
