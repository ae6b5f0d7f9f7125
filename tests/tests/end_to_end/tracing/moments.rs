//! What a program may do at any moment of an attach.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::Command,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tests::{Collector, Process, Target, Transport, agent_command, process::Stdout};

use crate::tracing::{
    LONG, answer,
    attach::{ENGINES, Steady, has_frida, is_kept, keeper_of},
    eventually,
};

/// How it leaves, see the program.
const WAYS: [&str; 3] = ["end", "exec", "exec-elsewhere"];

/// While its main thread is kept out of the way it does nothing, so that all of it happens when that goes on, or later.
#[test]
fn a_program_may_end_its_main_thread_or_run_another_one_in_its_place() {
    agent_command::prepare();
    let (_folder, collector) = Collector::in_folder("leaves", &[]);
    let moments_ms = [0, 30, 80, 150];
    for (engine, how) in ENGINES.into_iter().flat_map(|engine| WAYS.map(|how| (engine, how))) {
        for moment_ms in moments_ms {
            let mut command = Command::new(Target::named("leaves").program());
            command.arg(how);
            let mut program = Process::start(command, Stdout::Hold);
            let mut stdout = BufReader::new(program.take_stdout().expect("it is held"));
            let mut said = String::new();
            stdout.read_line(&mut said).expect("it says something");
            let pid = program.pid();
            let options = ["--no-detail", "--verbose", "--engine", engine];
            let attach = agent_command::attach_to(collector.tcp(), Transport::Tcp, &options, pid);
            let mut agent = Process::start(attach, Stdout::Collect);
            if engine == "frida" {
                eventually("Frida comes in", || is_kept(pid) || has_frida(pid));
            }
            thread::sleep(Duration::from_millis(moment_ms));
            let mut stdin = program.take_stdin().expect("it is held");
            stdin.write_all(b"go\n").expect("it reads");
            let about = format!("{engine}, {how}, {moment_ms} ms");
            // What is left of it goes on meanwhile.
            eventually("it is traced, or given up", || agent.said().contains("agent: hooked ") || !agent.is_running());
            drop(stdin);
            let exit = program.exit(LONG);
            let _ = stdout.read_to_string(&mut said);
            assert_eq!((exit.code, exit.signal, said.as_str()), (Some(7), None, "working\ndone\n"), "{about}");
            // Either it is traced to its end, or it is said why not.
            let exit = agent.exit(LONG);
            // Where another thread runs another program, the main one has ended before.
            let why = ["its main thread has ended", "the program ran another one in its place"];
            let is_why = why.iter().any(|why| exit.stderr.contains(why));
            let is_told = exit.code == Some(1) && exit.stderr.lines().count() == 1 && is_why;
            assert!(exit.code == Some(0) || is_told, "{about}: {:?} {}", exit.code, exit.stderr);
        }
    }
    collector.stop();
}

/// Its main thread goes back by itself, with all its registers, and is hooked only then.
#[test]
fn a_program_goes_on_whose_keeper_is_killed_at_any_moment() {
    agent_command::prepare();
    let (_folder, collector) = Collector::in_folder("keepers", &[]);
    for moment_ms in [0, 20, 50, 100] {
        let steady = Steady::of("registers");
        let pid = steady.process.pid();
        let kill_keeper = |when: &str| {
            let keeper = answer(when, || keeper_of(pid));
            thread::sleep(Duration::from_millis(moment_ms));
            // It may be done.
            let keeper = Pid::from_raw(keeper as i32).expect("a process");
            let _ = kill_process(keeper, Signal::KILL);
        };
        let options = ["--no-detail", "--verbose", "--engine", "frida"];
        let mut agent =
            Process::start(agent_command::attach_to(collector.tcp(), Transport::Tcp, &options, pid), Stdout::Collect);
        kill_keeper("Frida comes in");
        eventually("it is traced, or given up", || agent.said().contains("agent: hooked ") || !agent.is_running());
        if agent.is_running() {
            agent.signal("INT");
            kill_keeper("Frida leaves");
        }
        let exit = agent.exit(LONG);
        let is_told = exit.code == Some(1) && exit.stderr.contains("the keeper of its main thread has ended");
        assert!(exit.code == Some(0) || is_told, "{moment_ms} ms: {:?} {}", exit.code, exit.stderr);
        steady.finish();
    }
    collector.stop();
}

/// Frida's threads end one after the other, and the program when so many have.
#[test]
fn a_program_may_end_at_any_moment_in_which_frida_leaves_it() {
    agent_command::prepare();
    let (_folder, collector) = Collector::in_folder("exits", &[]);
    let options = ["--no-detail", "--verbose", "--engine", "frida"];
    for (ended, signal) in (1..=5).flat_map(|ended| ["INT", "KILL"].map(|signal| (ended, signal))) {
        let mut program = Process::start(Command::new(Target::named("exits").program()), Stdout::Hold);
        let mut stdout = BufReader::new(program.take_stdout().expect("it is held"));
        let mut said = String::new();
        stdout.read_line(&mut said).expect("it says something");
        let pid = program.pid();
        let mut agent =
            Process::start(agent_command::attach_to(collector.tcp(), Transport::Tcp, &options, pid), Stdout::Collect);
        eventually("it is traced", || agent.said().contains("agent: hooked "));
        let mut stdin = program.take_stdin().expect("it is held");
        writeln!(stdin, "{ended}").expect("it reads");
        eventually("it waits for that", || is_busy(pid));
        agent.signal(signal);
        let exit = program.exit(LONG);
        let _ = stdout.read_to_string(&mut said);
        let about = format!("{signal}, {ended} threads");
        assert_eq!((exit.code, exit.signal, said.as_str()), (Some(7), None, "working\ndone\n"), "{about}");
        agent.exit(LONG);
    }
    collector.stop();
}

/// It is killed as a whole while its threads are stopped. Its parent hears of its end all the same, without another signal.
#[test]
fn a_program_of_several_threads_may_end_at_any_moment_in_which_it_is_left() {
    agent_command::prepare();
    let (_folder, collector) = Collector::in_folder("ends", &[]);
    let options = ["--no-detail", "--verbose", "--engine", "native"];
    for moment_ms in (0..24).map(|moment| moment % 12 * 2) {
        let mut command = Command::new(Target::named("exits").program());
        command.arg("6");
        let mut program = Process::start(command, Stdout::Collect);
        let stdin = program.take_stdin().expect("it is held");
        let options = agent_command::attach_to(collector.tcp(), Transport::Tcp, &options, program.pid());
        let mut agent = Process::start(options, Stdout::Collect);
        eventually("it is traced", || agent.said().contains("agent: hooked "));
        agent.signal("INT");
        thread::sleep(Duration::from_millis(moment_ms));
        drop(stdin);
        assert_eq!(program.exit(LONG).code, Some(7), "{moment_ms} ms");
        let exit = agent.exit(LONG);
        assert_eq!(exit.code, Some(0), "{moment_ms} ms: {}", exit.stderr);
    }
    collector.stop();
}

/// Whether a thread of a process other than the main one is at work.
fn is_busy(pid: u32) -> bool {
    let is_at_work = |task: &fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'))
    };
    fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten().any(|task| is_at_work(&task))
}
