//! What a budget makes of programs that call much: how long they take, and how much is seen of them.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use benches::{
    agent,
    built::{compiled, installed},
    ran::Ran,
    running::{Account, Running},
    samples::{Samples, at_most, figure},
};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    Settings,
    programs::{lasted, many_lines},
};

/// A budget, by the options that ask for it.
const BUDGETS: [(&str, &[&str]); 4] =
    [("none", &["--budget", "none"]), ("default", &[]), ("100%", &["--budget", "100%"]), ("10%", &["--budget", "10%"])];

/// What a program may take with 10 %, of what it takes untraced; and what it may take within its first 200 ms.
const MOST: f64 = 1.15;
const MOST_AT_FIRST: f64 = 3.0;

/// How long servers are asked.
const ASKING: Duration = Duration::from_secs(3);

const SQL: &str = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 1400000) \
                   insert into t select i, i * 7919 % 1400000 from n; create index u on t(b); \
                   select sum(a) from t where b > 2500;";

pub(super) fn measure(settings: &Settings) {
    let rounds = settings.rounds.unwrap_or(3);
    println!(
        "\n### Budgets: programs that call much, every function hooked, index only, native engine, over TCP to disk\n"
    );
    println!(
        "Medians of {rounds} rounds, in turn with untraced. A program takes from its first event to its last; a server is asked \
         for {} s by two connections, and its figures are requests a second and, since clients, agent and collector share the \
         processors with it, its own processor time. Those of the first 200 ms are rounds of work.\n",
        ASKING.as_secs()
    );
    println!(
        "| program | budget | untraced | traced | times untraced | turned down | of their calls followed | events | lost |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|");
    let lines = settings.fresh().with_extension("lines");
    fs::write(&lines, many_lines(2_000_000)).expect("room for a file");
    let file = lines.to_str().expect("UTF-8");
    let python = "print(sum(len(str(n)) for n in range(36_000_000)))";
    let quadratic =
        compiled("benches/programs/quadratic.cpp", &["-O1", "-fno-inline", "-Wl,--no-as-needed", "-lstdc++"]);
    for (name, program, arguments) in [
        ("sort", installed("sort"), &["--parallel=1", "-k1,1", file][..]),
        ("gzip", installed("gzip"), &["-c", "-6", file]),
        ("sqlite3", installed("sqlite3"), &[":memory:", SQL]),
        ("python3", installed("python3"), &["-c", python]),
        ("C++, quadratic", Some(quadratic), &["14000"]),
    ] {
        let Some(program) = program else {
            println!("| {name}: skipped, not installed | | | | | | | | |");
            continue;
        };
        case(settings, name, rounds, MOST, |budget| match budget {
            None => Seen { figure: Ran::well(Command::new(&program).args(arguments)).seconds, ..Seen::default() },
            Some(options) => traced_program(settings, options, &program, arguments),
        });
    }
    for (name, server) in [("redis-server", redis as fn(&Path) -> Server), ("nginx", nginx)] {
        match installed(name).or_else(|| Some(PathBuf::from("/usr/sbin").join(name)).filter(|path| path.exists())) {
            Some(_) => case(settings, name, rounds, MOST, |budget| asked(settings, budget, server)),
            None => println!("| {name}: skipped, not installed | | | | | | | | |"),
        }
    }
    let program = compiled("benches/programs/rounds.c", &["-O2"]);
    case(settings, "C, its first 200 ms", rounds, MOST_AT_FIRST, |budget| match budget {
        None => Seen { figure: worked(&Ran::well(&mut Command::new(&program)).stderr), ..Seen::default() },
        Some(options) => {
            let seen = traced_program(settings, options, &program, &[]);
            Seen { figure: worked(&seen.said), ..seen }
        }
    });
    _ = fs::remove_file(lines);
}

/// How many rounds a program says to have done.
fn worked(said: &str) -> f64 {
    let rounds = said.lines().find_map(|line| line.strip_prefix("rounds ")).expect("what it prints");
    rounds.parse().expect("a number")
}

/// What came of a run.
#[derive(Debug, Default)]
struct Seen {
    /// Seconds, or requests a second, or rounds of work.
    figure: f64,
    /// Processor time that a server took for a request itself, in microseconds.
    own_us: Option<f64>,
    /// What the agent said last, and what the collector wrote.
    said: String,
    account: Account,
}

fn case(settings: &Settings, name: &str, rounds: usize, most: f64, mut run: impl FnMut(Option<&[&str]>) -> Seen) {
    let is_wanted = |(budget, _): &&(&str, &[&str])| settings.budget.as_deref().is_none_or(|wanted| wanted == *budget);
    let (mut untraced, mut untraced_own) = (Samples::default(), Samples::default());
    let mut ways: Vec<_> = BUDGETS
        .iter()
        .filter(is_wanted)
        .map(|(budget, options)| (budget, options, Samples::default(), Samples::default(), None))
        .collect();
    for _ in 0..rounds {
        let seen = run(None);
        untraced.push(seen.figure);
        seen.own_us.into_iter().for_each(|own| untraced_own.push(own));
        for (_, options, samples, own, last) in &mut ways {
            settings.fresh();
            let seen = run(Some(options));
            samples.push(seen.figure);
            seen.own_us.into_iter().for_each(|time| own.push(time));
            *last = Some(seen);
        }
    }
    for (budget, _, samples, own, last) in ways {
        let Some(Seen { said, account, .. }) = last else { continue };
        let is_rate = untraced.median() > 500.0;
        let times = if is_rate { untraced.by(&samples) } else { samples.by(&untraced) }.median();
        let times = if *budget == "10%" { at_most(times, most) } else { figure(times, 2) };
        let (down, followed) = turned_down(&said).unwrap_or(("0", "–"));
        let digits = if is_rate { 0 } else { 2 };
        println!(
            "| {name} | {budget} | {} | {} | {times} | {down} | {followed} | {} | {} |",
            figure(untraced.median(), digits),
            figure(samples.median(), digits),
            account.written,
            account.missing
        );
        if own.median() > 0.0 {
            let times = own.by(&untraced_own).median();
            let times = if *budget == "10%" { at_most(times, most) } else { figure(times, 2) };
            let (before, now) = (figure(untraced_own.median(), 2), figure(own.median(), 2));
            println!(
                "| {name}, µs of its own processor time a request | {budget} | {before} | {now} | {times} | | | | |"
            );
        }
    }
}

/// How many functions were turned down and which part of their calls was followed, as the agent's last line says it:
/// `… 3 of 4943 functions made 94 % of the calls: counted, 0.4 % followed…`.
fn turned_down(said: &str) -> Option<(&str, &str)> {
    let (before, behind) = said.split_once(" of the calls: counted, ")?;
    let (down, _) = before.rsplit_once("; ")?.1.split_once(" of ")?;
    Some((down, behind.split_once(" followed")?.0))
}

const OPTIONS: [&str; 5] = ["--no-detail", "--engine", "native", "--transport", "tcp"];

fn traced_program(settings: &Settings, options: &[&str], program: &Path, arguments: &[&str]) -> Seen {
    let traces = settings.folder.join("traces");
    let (ran, account) =
        super::traced(&format!("disk:{}", traces.display()), &[&OPTIONS, options].concat(), program, arguments);
    let sessions = fs::read_dir(&traces).expect("sessions").flatten().map(|entry| entry.path());
    let figure = sessions.map(|session| lasted(&session)).fold(0.0, f64::max);
    Seen { figure, own_us: None, said: ran.stderr, account: account.unwrap_or_default() }
}

/// A server: how it is started, at which port, and what it is asked, to which it answers with so many bytes at least.
struct Server {
    program: &'static str,
    arguments: Vec<String>,
    port: u16,
    request: &'static [u8],
    answer: usize,
}

fn redis(_: &Path) -> Server {
    let port = free_port();
    let arguments = format!("--port {port} --bind 127.0.0.1 --save --appendonly no --io-threads 1");
    // The save option needs an empty argument.
    let mut arguments: Vec<String> = arguments.split(' ').map(Into::into).collect();
    arguments.insert(5, String::new());
    Server { program: "redis-server", arguments, port, request: b"INCR counter\r\n", answer: 4 }
}

fn nginx(folder: &Path) -> Server {
    let (port, configuration) = (free_port(), folder.join("nginx.conf"));
    let place = folder.display();
    let text = format!(
        "daemon off; master_process off; pid {place}/pid; error_log {place}/error; events {{}} http {{ access_log off; \
         keepalive_requests 1000000000; server {{ listen 127.0.0.1:{port}; location / {{ return 200 'hello'; }} }} }}"
    );
    fs::write(&configuration, text).expect("room for a file");
    let arguments = vec!["-c".into(), configuration.display().to_string(), "-p".into(), place.to_string()];
    Server { program: "nginx", arguments, port, request: b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", answer: 100 }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Starts a server, as it is or traced, and asks it for a while.
fn asked(settings: &Settings, budget: Option<&[&str]>, server: fn(&Path) -> Server) -> Seen {
    let server = server(settings.fresh());
    let traces = settings.folder.join("traces");
    let collector = budget.map(|_| Running::start_with(&["--sink", &format!("disk:{}", traces.display())]));
    let mut command = match (&collector, budget) {
        (Some(collector), Some(options)) => {
            let mut command = agent::run(collector.address, &[&OPTIONS, options].concat());
            command.arg(server.program);
            command
        }
        _ => Command::new(server.program),
    };
    command.args(&server.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", server.port)).is_err() {
        assert!(Instant::now() < deadline, "{} listens", server.program);
        thread::sleep(Duration::from_millis(20));
    }
    let pid = Pid::from_child(&child).as_raw_nonzero().get();
    let pid = if budget.is_some() { program_of(pid).expect("the agent has started it") } else { pid };
    let before = processor_time(pid);
    let (answered, seconds) = ask(&server);
    let own_us = before.zip(processor_time(pid)).map(|(from, to)| (to - from).as_secs_f64() * 1e6 / answered as f64);
    let figure = answered as f64 / seconds;
    let said = stop(child);
    let account = collector.and_then(|collector| Account::parse(&collector.stop())).unwrap_or_default();
    Seen { figure, own_us, said, account }
}

/// The program that an agent has started.
fn program_of(agent: i32) -> Option<i32> {
    let threads = fs::read_dir(format!("/proc/{agent}/task")).ok()?;
    threads.flatten().find_map(|thread| {
        let children = fs::read_to_string(thread.path().join("children")).ok()?;
        children.split_whitespace().find_map(|child| child.parse().ok())
    })
}

/// How much processor time a process has taken.
fn processor_time(pid: i32) -> Option<Duration> {
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which is in brackets: user and system time are the 12th and the 13th.
    let ticks: u64 =
        stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u64>().ok()).sum();
    Some(Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64))
}

/// How many requests are answered, on two connections, and in how many seconds.
fn ask(server: &Server) -> (u64, f64) {
    let begun = Instant::now();
    let connection = || {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        let (mut answered, mut buffer) = (0_u64, [0; 4096]);
        while begun.elapsed() < ASKING {
            stream.write_all(server.request).expect("it reads");
            let mut got = 0;
            while got < server.answer {
                got += stream.read(&mut buffer).expect("it answers").max(1);
            }
            answered += 1;
        }
        answered
    };
    let answered = thread::scope(|scope| {
        let both = [scope.spawn(connection), scope.spawn(connection)];
        both.into_iter().map(|one| one.join().expect("it is answered")).sum::<u64>()
    });
    (answered, begun.elapsed().as_secs_f64())
}

/// Ends a server, whose agent hands the signal on. What was said.
fn stop(mut child: Child) -> String {
    _ = kill_process(Pid::from_child(&child), Signal::TERM);
    let mut said = String::new();
    _ = child.stderr.take().expect("a pipe").read_to_string(&mut said);
    _ = child.wait();
    said
}
