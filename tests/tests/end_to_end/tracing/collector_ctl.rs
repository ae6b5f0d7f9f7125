//! `collector ctl`: looking at a trace from the collector's side while it runs, and changing what its agent records.

use std::{fs, net::SocketAddr, path::Path, process::Command, thread, time::Duration};

use codec::{
    atf::Manifest,
    heph::{MAX_PACKET_BYTES, Packets},
    profile::{Known, Message},
};
use serde_json::Value;
use tests::{
    Cable, Collector, Exit, Faults, Folder, Process, Relay, Target, Trace, Transport, agent_command,
    collector::{binary, run, verified},
    process::Stdout,
};

use crate::tracing::{BOTH, LONG, answer, child};

/// What is hooked of the program: enough to be told of, and no more than a slow network takes.
const HOOKED: [&str; 9] =
    ["--engine", "native", "--no-detail", "--only", "tick", "--only", "jumps", "--only", "round_of"];

/// A program that works until its input ends, and the agent that traces it.
struct Traced {
    agent: Process,
    pid: u32,
}

impl Traced {
    #[track_caller]
    fn start(to: SocketAddr, transport: Transport, options: &[&str]) -> Self {
        agent_command::prepare();
        let program = Target::named("steady").program();
        let options = [&HOOKED, options].concat();
        let mut command = agent_command::run_to(to, transport, &options);
        command.arg(&program);
        let agent = Process::start(command, Stdout::Collect);
        let pid = child(agent.pid(), &program);
        Self { agent, pid }
    }

    #[track_caller]
    fn finish(mut self) -> Exit {
        drop(self.agent.take_stdin());
        let exit = self.agent.exit(LONG);
        assert_eq!(exit.code, Some(4), "{}", exit.stderr);
        exit
    }
}

fn ctl(session: &str, arguments: &[&str]) -> Exit {
    run(&[&["ctl", session], arguments].concat())
}

#[track_caller]
fn done(session: &str, arguments: &[&str]) -> String {
    ctl(session, arguments).success().text().trim_end().into()
}

#[track_caller]
fn status(session: &str) -> Value {
    serde_json::from_str(&done(session, &["--json"])).expect("JSON")
}

#[track_caller]
fn wrong(session: &str, arguments: &[&str], why: &str) {
    let exit = ctl(session, arguments);
    assert!(exit.code == Some(1) && exit.stderr.contains(why), "{arguments:?}: {:?} {}", exit.code, exit.stderr);
    let lines = exit.stderr.lines().filter(|line| line.starts_with("collector: ")).count();
    assert_eq!(lines, 1, "{}", exit.stderr);
}

/// The sessions of programs with this name whose agents can be asked, in a folder: others are of other tests.
#[track_caller]
fn sessions_in(folder: &Path, program: &str) -> Vec<(String, u32)> {
    let listed = run(&["ctl", "--json"]).success();
    let entries = listed.text().lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let is_here = |entry: &Value| {
        let named = entry["program"].as_str().is_some_and(|path| path.ends_with(&format!("/{program}")));
        // Collectors of other tests may give the same names.
        let manifest = entry["name"].as_str().and_then(|name| fs::read(folder.join(name).join("manifest.json")).ok());
        let manifest = manifest.and_then(|json| Manifest::parse(&json).ok());
        named && manifest.is_some_and(|manifest| manifest.session.as_deref() == entry["session"].as_str())
    };
    let id = |entry: Value| {
        let pid = entry["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        (entry["session"].as_str().expect("an id").to_string(), pid.expect("a process"))
    };
    entries.filter(is_here).map(id).collect()
}

/// The session of a program that has just been started.
#[track_caller]
fn session_in(folder: &Path) -> String {
    let id = answer("the session is known", || sessions_in(folder, "steady").pop().map(|(id, _)| id));
    answer("its agent answers", || (ctl(&id, &[]).code == Some(0)).then_some(()));
    id
}

/// The names of all options in a file of packets.
fn options_in(file: &Path) -> Vec<String> {
    let bytes = fs::read(file).expect("the file is there");
    let mut packets = Packets::new(&bytes, MAX_PACKET_BYTES);
    let mut names = Vec::new();
    while let Some(message) = packets.next_with(Message::decode) {
        match message.expect("a packet") {
            Message::Option(Known { option, .. }) => names.push(option.name().into()),
            Message::Metadata(metadata) => names.push(metadata.name.into()),
            _ => {}
        }
    }
    names
}

#[test]
fn a_session_is_steered_over_both_transports() {
    for transport in BOTH {
        let folder = Folder::new("collector-ctl");
        let (traces, packets) = (folder.join("traces"), folder.join("packets.heph"));
        let sink = format!("heph:{},on-full=block", packets.display());
        let collector = Collector::to_disk(&traces, &["--sink", &sink]);
        // Datagrams are lost both ways, doubled and late.
        let relay = Relay::start(collector.udp(), 11, Faults { lose: 0.1, lose_answers: 0.3, ..Faults::BAD });
        let relay = relay.expect("a relay");
        let to = if transport == Transport::Udp { relay.address() } else { collector.tcp() };
        let traced = Traced::start(to, transport, &["--complete"]);
        let id = session_in(&traces);

        let told = status(&id);
        assert_eq!((told["pid"].as_u64(), told["session"].as_str()), (Some(traced.pid.into()), Some(&*id)));
        let text = done(&id, &["status"]);
        assert!(text.contains(&format!("process {}, session {id}", traced.pid)), "{text}");
        // By digits behind what all ids begin with, and by the directory.
        assert_eq!(status(&id[8..])["pid"], traced.pid);
        let directory = fs::read_dir(&traces).expect("a folder").flatten().next().expect("a session").path();
        assert_eq!(status(&directory.display().to_string())["pid"], traced.pid);

        assert_eq!(done(&id, &["level", "off", "tick"]), "1 function: off");
        assert_eq!(status(&id)["functions"]["set"], 1);
        assert_eq!(done(&id, &["exclude", "function:jumps"]), "1 function: off");
        let only = done(&id, &["only", "round_of"]);
        assert!(only.starts_with("1 function: as the budget allows; 2 others: off; "), "{only}");
        let functions = status(&id)["functions"].clone();
        assert_eq!((&functions["off"], &functions["set"]), (&2.into(), &2.into()), "{functions}");
        let auto = done(&id, &["level", "auto", "*"]);
        assert_eq!(auto, "2 functions: as the budget allows");
        answer("all are followed again", || (status(&id)["functions"]["off"] == 0).then_some(()));
        assert_eq!(done(&id, &["level", "off", "tick"]), "1 function: off");
        assert_eq!(done(&id, &["budget", "50%"]), "the budget is 50%");
        assert_eq!(status(&id)["budget"], "50%");
        assert_eq!(done(&id, &["budget", "complete"]), "the budget is complete");
        wrong(&id, &["level", "off", "no_such_*"], "no_such_*: no module and no function has such a name");
        wrong(&id, &["dump"], "everything is sent");
        // It was left out when the program was hooked.
        wrong(&id, &["only", "dives"], "dives: 1 function cannot be followed: not hooked");
        wrong(&id, &["exclude", "dives"], "dives: 1 function cannot be set: not hooked");
        // A status takes the agent a quarter of a second.
        let events = || status(&id)["events"].as_u64();
        let before = events();
        answer("others are recorded meanwhile", || (events() > before).then_some(()));
        assert_eq!(done(&id, &["level", "full", "tick"]), "1 function: full");

        traced.finish();
        wrong(&id, &[], "has ended");
        wrong(&directory.display().to_string(), &["stop"], "has ended");
        let exit = collector.stop().success();
        assert!(exit.stderr.contains("`level off tick`: 1 function: off"), "{}", exit.stderr);
        verified(&directory);
        // What was off is not there, although it was called all the time.
        let trace = Trace::read(&directory);
        let tick = trace.manifest.functions.iter().find(|function| function.name == "tick").expect("tick").id;
        let changes: Vec<_> = trace.manifest.levels.iter().filter(|entry| entry.function == tick).collect();
        let zero = trace.manifest.clock_zero_ns.unwrap_or(0);
        let off = changes.iter().rev().find(|entry| entry.level == "off").expect("it was off").at_ns - zero;
        let full = changes.last().expect("it was full again");
        assert!(full.level == "full" && full.at_ns - zero > off + 200_000_000, "{changes:?}");
        // A call that was underway may be told a moment later.
        let silent = off + 100_000_000..full.at_ns - zero - 10_000_000;
        let calls = |name: &str| {
            let events = trace.threads.values().flatten();
            events.filter(|event| event.name.as_deref() == Some(name) && silent.contains(&event.time_ns)).count()
        };
        assert!(calls("tick") == 0 && calls("round_of") > 0, "{} {}", calls("tick"), calls("round_of"));
        let options = options_in(&packets);
        assert!(options.iter().any(|name| name == "session"));
        assert!(!options.iter().any(|name| name == "ask" || name == "answer"), "they are in no file");
    }
}

#[test]
fn who_cannot_be_asked_by_a_collector_is_said_and_why() {
    let (folder, collector) = Collector::in_folder("collector-ctl-errors", &[]);
    wrong("deadbeefdeadbeefdeadbeefdeadbeef", &[], "has a session deadbeefdeadbeefdeadbeefdeadbeef");
    wrong("20000101-000000-1", &["stop"], "has a session 20000101-000000-1");
    wrong(&folder.path().display().to_string(), &[], "");
    let exit = run(&["ctl", "level", "off", "main"]);
    assert!(exit.code == Some(2) && exit.stderr.contains("which session?"), "{}", exit.stderr);
    let exit = run(&["ctl", "c1", "budget", "fast"]);
    assert!(exit.code == Some(2) && exit.stderr.contains("expected a share as 10%"), "{}", exit.stderr);

    let traced = Traced::start(collector.tcp(), Transport::Tcp, &["--no-remote-control"]);
    let id = answer("the session is known", || sessions_in(folder.path(), "steady").pop().map(|(id, _)| id));
    wrong(&id, &["level", "off", "tick"], "--no-remote-control");
    wrong(&id, &[], "--no-remote-control");
    // Who is on the agent's own machine can ask it all the same.
    let pid = traced.pid.to_string();
    let local = agent_command::command(&["ctl", &pid, "level", "off", "tick"]);
    assert_eq!(Process::start(local, Stdout::Collect).exit(LONG).success().text(), "1 function: off\n");
    traced.finish();
    let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, &[]);
    command.arg("true").env("SPOOR_NO_REMOTE_CONTROL", "perhaps");
    let exit = Process::start(command, Stdout::Collect).exit(LONG);
    assert!(exit.code == Some(2) && exit.stderr.contains("SPOOR_NO_REMOTE_CONTROL"), "{}", exit.stderr);
    collector.stop().success();
}

#[test]
fn an_agent_that_comes_back_is_asked_and_by_another_collector_too() {
    let folder = Folder::new("collector-ctl-again");
    let collector = Collector::to_disk(folder.path(), &[]);
    let cable = Cable::start(collector.tcp()).expect("a cable");
    let traced = Traced::start(cable.address(), Transport::Tcp, &[]);
    let id = session_in(folder.path());
    // Cut off again and again, while it is asked.
    thread::scope(|scope| {
        let cutting = scope.spawn(|| {
            (0..8).for_each(|_| {
                thread::sleep(Duration::from_millis(150));
                cable.cut();
            });
        });
        while !cutting.is_finished() {
            assert_eq!(done(&id, &["level", "counted", "tick"]), "1 function: counted");
            assert_eq!(done(&id, &["level", "auto", "tick"]), "1 function: as the budget allows", "not done twice");
        }
    });
    // Killed while it waits for an answer, and another in its place.
    cable.move_to(SocketAddr::from(([127, 0, 0, 1], 9)));
    thread::sleep(Duration::from_millis(100));
    cable.cut();
    let mut command = Command::new(binary());
    command.args(["ctl", &id, "level", "off", "tick"]);
    let mut asking = Process::start(command, Stdout::Collect);
    thread::sleep(Duration::from_millis(500));
    assert!(asking.is_running(), "nobody can have answered");
    collector.kill();
    let exit = asking.exit(LONG);
    assert!(exit.code == Some(1) && exit.stderr.contains("it ended before it answered"), "{exit:?}");
    let collector = Collector::to_disk(folder.path(), &[]);
    cable.move_to(collector.tcp());
    assert_eq!(session_in(folder.path()), id, "it is the same session");
    assert_eq!(done(&id, &["level", "off", "tick"]), "1 function: off");
    traced.finish();
    collector.stop().success();
    verified(&Trace::only(folder.path()).folder);
}

#[test]
fn each_process_of_an_agent_is_asked_by_itself_and_many_at_once() {
    agent_command::prepare();
    let (folder, collector) = Collector::in_folder("collector-ctl-family", &[]);
    let program = Target::named("steady").program();
    let mut command = agent_command::run_to(collector.udp(), Transport::Udp, &HOOKED);
    command.args(["sh", "-c", "exec 3<&0; \"$0\" <&3 & \"$0\" <&3 & wait"]).arg(&program);
    let mut agent = Process::start(command, Stdout::Collect);
    let two = answer("both are traced", || {
        let two = sessions_in(folder.path(), "steady");
        (two.len() == 2).then_some(two)
    });
    let [(one, one_pid), (other, other_pid)] = &two[..] else { panic!("{two:?}") };
    for (id, pid) in [(one, one_pid), (other, other_pid)] {
        answer("its agent answers", || (ctl(id, &[]).code == Some(0)).then_some(()));
        assert_eq!(status(id)["pid"], *pid);
    }
    assert_eq!(done(one, &["level", "off", "tick"]), "1 function: off");
    assert_eq!(
        (status(one)["functions"]["set"].as_u64(), status(other)["functions"]["set"].as_u64()),
        (Some(1), Some(0))
    );
    // What all ids begin with says nothing.
    wrong("c1a13ed0", &[], "may be any of ");
    thread::scope(|scope| {
        let asking: Vec<_> =
            (0..12).map(|at| scope.spawn(move || status([one, other][at % 2])["pid"].as_u64())).collect();
        for (at, asked) in asking.into_iter().enumerate() {
            assert_eq!(asked.join().expect("an answer"), Some(u64::from([*one_pid, *other_pid][at % 2])));
        }
    });
    drop(agent.take_stdin());
    agent.exit(LONG);
    collector.stop().success();
    Trace::all(folder.path()).iter().for_each(|trace| verified(&trace.folder));
}
