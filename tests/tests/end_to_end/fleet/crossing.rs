//! Agents at full speed through two edges, a cluster of three and three recorders, each of which is killed and started again in
//! turn. `SPOOR_FLEET_KILLS=20` kills twenty times.

use std::{
    env, fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use codec::{
    FunctionId,
    atf::{IndexEvent, IndexReader, Manifest},
};
use tests::{
    Collector, Folder, Process, Random, Target, Transport, agent_command, collector::verified, process::Stdout, trace,
    wait::eventually,
};

use crate::fleet::{jetstream::Server, parts::Parts};

const AGENTS: usize = 8;
const EDGES: usize = 2;
const RECORDERS: usize = 3;

/// The variable that says how often something is killed, and how often that is otherwise: a server, an edge and a recorder.
const KILLS: &str = "SPOOR_FLEET_KILLS";
const FEW_KILLS: usize = 3;

/// What edges and recorders are told besides. What was written leaves a stream that is half full.
const OPTIONS: [&str; 4] = ["--nats-replicas", "3", "--nats-max-bytes", "256MiB"];

/// What is called from one kill to the next by each program, at least. It is more than an agent keeps: the way is free again.
const CALLS_BETWEEN: u64 = 300_000;

/// How long something stays away, in milliseconds.
const AWAY_MS: [u64; 3] = [200, 1_000, 3_000];

/// How long agents may take to hand over what is left.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn nothing_is_lost_where_recorders_share_a_directory() {
    cross(true);
}

#[test]
fn nothing_is_lost_where_each_recorder_has_a_directory() {
    cross(false);
}

fn cross(is_shared: bool) {
    // Each needs the whole machine.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let kills = env::var(KILLS).ok().and_then(|kills| kills.parse().ok()).unwrap_or(FEW_KILLS);
    let Some(mut fleet) = Fleet::start(is_shared) else { return };
    let slots = Folder::new("fleet-slots");
    let mut programs: Vec<_> = (0..AGENTS).map(|number| Program::start(number, &slots, &fleet)).collect();
    let mut random = Random::new(u64::from(is_shared));
    let started = Instant::now();
    for kill in 0..kills {
        let before: Vec<_> = programs.iter().map(Program::calls).collect();
        let away = AWAY_MS[random.below(AWAY_MS.len() as u64) as usize];
        let part = fleet.kill(kill, Duration::from_millis(away));
        eprintln!("{:5.1} s: {part} was away for {away} ms", started.elapsed().as_secs_f64());
        eventually("all programs go on", || {
            fleet.supervise();
            programs.iter().zip(&before).all(|(program, before)| program.calls() >= before + CALLS_BETWEEN)
        });
    }
    programs.iter().for_each(Program::finish);
    let exits = programs.iter_mut().map(|program| {
        let deadline = Instant::now() + PATIENCE;
        while program.agent.is_running() && Instant::now() < deadline {
            fleet.supervise();
            thread::park_timeout(Duration::from_millis(50));
        }
        program.agent.said()
    });
    for said in exits.collect::<Vec<_>>() {
        assert!(said.contains(", nothing lost"), "{said}");
    }
    eventually("all sessions are complete, each once", || {
        fleet.supervise();
        let sessions = fleet.sessions();
        sessions.len() == AGENTS && sessions.iter().all(|session| !session.join("journal.heph").exists())
    });
    let seconds = started.elapsed().as_secs_f64();
    let mut events = 0;
    for session in fleet.sessions() {
        verified(&session);
        let manifest = Manifest::parse(&fs::read(session.join("manifest.json")).expect("it is finished"));
        let manifest = manifest.expect("it is whole");
        let arguments = &manifest.process.as_ref().expect("its agent has told").arguments;
        let program =
            programs.iter().find(|program| arguments.iter().any(|argument| Path::new(argument) == program.slot));
        let (calls, returns) = program.expect("it is one of them").counted();
        let tiny = manifest.functions.iter().find(|function| function.name == "tiny").expect("it is called").id;
        let is_tiny = |event: &IndexEvent| event.function == FunctionId(tiny);
        let written: u64 = manifest.threads.iter().map(|thread| count(&session, thread.id, is_tiny)).sum();
        assert_eq!((written, manifest.gaps), (calls + returns, Vec::new()), "{}", session.display());
        events += written;
    }
    eprintln!(
        "{kills} kills, {} started again by the supervisor: {events} events of {AGENTS} programs in {seconds:.0} s, each once",
        fleet.ended
    );
}

/// How many events of a thread are such.
fn count(session: &Path, thread: u32, is_one: impl Fn(&IndexEvent) -> bool) -> u64 {
    let index = fs::read(session.join(format!("thread_{thread}/index.atf"))).expect("it is there");
    let events = IndexReader::open(&index).expect("it is whole").events();
    events.filter(|event| event.as_ref().is_ok_and(&is_one)).count() as u64
}

/// A program that calls until it is told to end, and its agent.
struct Program {
    slot: PathBuf,
    agent: Process,
}

impl Program {
    fn start(number: usize, slots: &Folder, fleet: &Fleet) -> Self {
        let slot = slots.join(&number.to_string());
        let transport = if number.is_multiple_of(2) { Transport::Udp } else { Transport::Tcp };
        let options = [
            &["--complete", "--stall", "never", "--linger", "300s", "--engine", "native", "--only", "tiny"][..],
            &["--no-detail", "--ring-bytes", "64KiB", "--replay-bytes", "1MiB"],
        ];
        let edge = &fleet.edges[number % EDGES];
        let mut command = agent_command::run_to(edge.address(transport), transport, &options.concat());
        command.arg(Target::named("endless").program()).arg(&slot);
        Self { slot, agent: Process::start(command, Stdout::Collect) }
    }

    /// The calls and returns that it has counted.
    fn counted(&self) -> (u64, u64) {
        let bytes = fs::read(&self.slot).unwrap_or_default();
        let word =
            |at: usize| bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        (word(0), word(8))
    }

    fn calls(&self) -> u64 {
        self.counted().0
    }

    /// Has it end.
    fn finish(&self) {
        let slot = fs::OpenOptions::new().write(true).open(&self.slot).expect("it counts there");
        slot.write_all_at(&1_u64.to_le_bytes(), 16).expect("it is shared");
    }
}

/// What lies between the agents and the files.
struct Fleet {
    parts: Parts,
    servers: Vec<Server>,
    edges: Vec<Collector>,
    recorders: Vec<Collector>,
    /// Where each recorder writes.
    folders: Vec<PathBuf>,
    /// How many collectors have ended by themselves, and were started again.
    ended: u32,
}

impl Fleet {
    fn start(is_shared: bool) -> Option<Self> {
        let servers = Server::cluster()?;
        let parts = Parts::at_full_speed(Server::stream_of_all(&servers));
        let folder = |number: usize| parts.folder.join(&if is_shared { "all".into() } else { number.to_string() });
        let folders: Vec<_> = (0..RECORDERS).map(folder).collect();
        let edges = (0..EDGES).map(|_| parts.edge(&OPTIONS)).collect();
        let recorders = folders.iter().map(|folder| parts.recorder_to(folder, &OPTIONS)).collect();
        Some(Self { parts, servers, edges, recorders, folders, ended: 0 })
    }

    /// Kills something and starts it again after a while. What that was.
    fn kill(&mut self, number: usize, away: Duration) -> String {
        let (kind, number) = (number % 3, number / 3);
        match kind {
            0 => {
                let number = number % self.servers.len();
                self.servers[number].kill();
                thread::sleep(away);
                self.servers[number].start_again();
                format!("server {number}")
            }
            1 => {
                let number = number % EDGES;
                self.edges[number].process().signal("KILL");
                thread::sleep(away);
                self.start_edge(number);
                format!("edge {number}")
            }
            _ => {
                let number = number % RECORDERS;
                self.recorders[number].process().signal("KILL");
                thread::sleep(away);
                self.start_recorder(number);
                format!("recorder {number}")
            }
        }
    }

    fn start_edge(&mut self, number: usize) {
        self.edges[number] = self.parts.edge_at(self.edges[number].tcp(), &OPTIONS);
    }

    fn start_recorder(&mut self, number: usize) {
        self.recorders[number] = self.parts.recorder_to(&self.folders[number], &OPTIONS);
    }

    /// Starts again what has ended by itself, as a supervisor does: a recorder that has lost a session to another.
    fn supervise(&mut self) {
        for number in 0..RECORDERS {
            if !self.recorders[number].process().is_running() {
                let said = self.recorders[number].said();
                assert!(said.contains("another recorder has taken session"), "recorder {number}: {said}");
                self.ended += 1;
                self.start_recorder(number);
            }
        }
        for (number, edge) in self.edges.iter_mut().enumerate() {
            assert!(edge.process().is_running(), "edge {number} ended: {}", edge.said());
        }
    }

    /// All sessions, wherever they are.
    fn sessions(&self) -> Vec<PathBuf> {
        let mut folders = self.folders.clone();
        folders.dedup();
        folders.iter().flat_map(|folder| trace::folders(folder)).collect()
    }
}
