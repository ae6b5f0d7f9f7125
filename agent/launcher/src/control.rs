//! Answering `agent ctl`: what is traced, and changes of what is recorded of it, while it runs.
//!
//! Each connection to the agent's socket is one request, in a line: the process, a word, and what it is about. The answer is a
//! line, too: a word and, behind a space, an object or a text. All of that is done on a thread of its own; who empties the
//! rings is only asked for numbers and given lists.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use agent::{
    drain::{Functions, LevelCounts},
    shared::Level,
};
use serde::{Deserialize, Serialize};

use crate::{
    delivery::{Order, many},
    family::Family,
    rules::{Names, Pattern},
    run_folder::{self, Socket},
    settings::Pace,
};

/// How long somebody who has connected may take, and who empties the rings.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest request.
const MOST_BYTES: u64 = 4096;

/// How long events are counted to tell how many there are in a second.
const COUNTING: Duration = Duration::from_millis(250);

/// What answers begin with: that it was done, that it cannot be, and that the process is not traced by this agent.
pub(crate) const DONE: &str = "done";
pub(crate) const REFUSED: &str = "refused";
pub(crate) const UNKNOWN: &str = "unknown";

/// The sessions of an agent that can be asked.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Vec<Session>>);

/// How a session is asked.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) pid: i32,
    pub(crate) orders: Sender<Order>,
    pub(crate) functions: Arc<Functions>,
}

/// What is known of a session while it runs. The document describes the fields.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) session: String,
    pub(crate) agent: u32,
    pub(crate) sessions: usize,
    pub(crate) threads: u64,
    pub(crate) events: u64,
    pub(crate) events_per_second: u64,
    pub(crate) budget: String,
    pub(crate) functions: ByLevel,
    pub(crate) dropped: BTreeMap<String, u64>,
    pub(crate) lost: BTreeMap<String, u64>,
    pub(crate) unconfirmed: u64,
}

/// How many functions have which level, and of how many it was set.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ByLevel {
    pub(crate) full: u64,
    pub(crate) counted: u64,
    pub(crate) off: u64,
    pub(crate) set: u64,
}

impl From<LevelCounts> for ByLevel {
    fn from(counts: LevelCounts) -> Self {
        let LevelCounts { full, counted, off, set } = counts;
        Self { full, counted, off, set }
    }
}

impl Sessions {
    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a session be asked from here on.
    pub(crate) fn add(&self, session: Session) {
        let mut list = self.list();
        // A process that runs another program has another session.
        list.retain(|other| other.pid != session.pid);
        list.push(session);
    }

    /// The session of a process, if it can still be asked, and how many there are that can.
    fn find(&self, pid: i32) -> (Option<Session>, usize) {
        let mut list = self.list();
        // One that is over has nobody who would hear this.
        list.retain(|session| session.orders.send(Order::Nothing).is_ok());
        (list.iter().find(|session| session.pid == pid).cloned(), list.len())
    }
}

/// Answers whoever connects, as long as the socket is kept. Nobody needs to be able to: an agent that cannot be reached traces
/// all the same.
pub(crate) fn listen(family: &Arc<Family>) -> Option<Socket> {
    let started = Socket::make(&run_folder::path()).and_then(|socket| {
        let listener = socket.listener.try_clone()?;
        let family = Arc::downgrade(family);
        thread::Builder::new().name("control".into()).spawn(move || {
            for stream in listener.incoming() {
                // Whoever it was has gone.
                let _ = stream.and_then(|stream| serve(&stream, &family));
            }
        })?;
        Ok(socket)
    });
    if let Err(error) = &started
        && family.settings.verbose
    {
        say!("`agent ctl` cannot reach this agent: {error}");
    }
    started.ok()
}

/// Answers one request.
fn serve(stream: &UnixStream, family: &Weak<Family>) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if peer != rustix::process::geteuid() && !peer.is_root() {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(MOST_BYTES)).read_line(&mut line)?;
    let Some(family) = family.upgrade() else { return Ok(()) };
    let (word, text) = match answer(line.trim_end_matches('\n'), &family) {
        Ok(Some(text)) => (DONE, text),
        Ok(None) => (UNKNOWN, String::new()),
        Err(why) => (REFUSED, why),
    };
    let mut stream = stream;
    writeln!(stream, "{word} {text}")
}

/// Does what a request asks for. None where the process is not one of ours.
fn answer(line: &str, family: &Family) -> Result<Option<String>, String> {
    let mut words = line.splitn(3, ' ');
    let pid = words.next().and_then(|word| word.parse().ok()).ok_or("expected a process")?;
    let (Some(session), sessions) = family.sessions.find(pid) else { return Ok(None) };
    let (word, about) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match word {
        "status" => status(&session, sessions, family),
        "budget" => {
            family.settings.pace.set(about.parse::<Pace>()?);
            family.sessions.list().iter().for_each(|session| drop(session.orders.send(Order::Pace)));
            Ok(format!("the budget is {}", family.settings.pace.get()))
        }
        "level" => {
            let (level, glob) = about.split_once(' ').ok_or("expected a level and a pattern")?;
            set_levels(&session, level, glob)
        }
        "start" | "stop" => {
            let is_start = word == "start";
            match ask(&session, |done| Order::Trigger { is_start, done })? {
                true if is_start => Ok("what is asked for is sent".into()),
                true => Ok("nothing more is sent".into()),
                false => Err("everything is sent: the agent runs without --keep, --start-on and --stop-on".into()),
            }
        }
        _ => Err(format!("expected status, level, budget, start or stop, and not {word}")),
    }
    .map(Some)
}

/// Asks who empties the rings of a session.
fn ask<T>(session: &Session, order: impl FnOnce(Sender<T>) -> Order) -> Result<T, String> {
    let (tell, told) = mpsc::channel();
    let sent = session.orders.send(order(tell)).ok();
    sent.and_then(|()| told.recv_timeout(PATIENCE).ok())
        .ok_or_else(|| "the session has ended, or does not answer".into())
}

fn status(session: &Session, sessions: usize, family: &Family) -> Result<String, String> {
    let (before, since) = (ask(session, Order::Status)?, Instant::now());
    thread::sleep(COUNTING);
    let now = ask(session, Order::Status)?;
    let rate = (now.events - before.events) as f64 / since.elapsed().as_secs_f64();
    let budget = family.settings.pace.get().to_string();
    let status = Status { sessions, budget, events_per_second: rate.round() as u64, ..now };
    serde_json::to_string(&status).map_err(|error| error.to_string())
}

fn set_levels(session: &Session, word: &str, glob: &str) -> Result<String, String> {
    let level = match word {
        "full" => Some(Level::Full),
        "counted" => Some(Level::Counted),
        "off" => Some(Level::Off),
        "auto" => None,
        _ => return Err(format!("expected full, counted, off or auto, and not {word}")),
    };
    let functions = matching(session, glob)?;
    let matched = functions.len();
    if matched == 0 {
        return Err(format!("{glob}: no module and no function has such a name"));
    }
    let result = ask(session, |done| Order::Levels { functions, level, done })?;
    let fixed = match result.fixed {
        0 => String::new(),
        fixed => format!("; {fixed} others stay as they are: not hooked, or needed to join events together"),
    };
    let functions = |count| many(count, "function");
    match (level, result.set) {
        (Some(_), 0) => {
            Err(format!("{glob}: {} cannot be set: not hooked, or needed as they are", functions(result.fixed)))
        }
        (Some(_), set) => Ok(format!("{}: {word}{fixed}", functions(set))),
        (None, set) => Ok(format!("{}: as the budget allows", functions(set))),
    }
}

/// The functions that a pattern is about, by their numbers.
fn matching(session: &Session, glob: &str) -> Result<Vec<u32>, String> {
    let pattern = Pattern::new(glob)?;
    if !pattern.is_of_names() {
        return Err(format!("{glob}: what source files functions are from is not known while the program runs"));
    }
    let modules = ask(session, Order::Modules)?;
    let modules: HashMap<_, _> =
        modules.iter().map(|module| (module.id, (pattern.is_module(&module.path), &module.functions))).collect();
    let is_meant = |id: &codec::FunctionId| {
        let Some((whole, functions)) = modules.get(&id.module().0) else { return false };
        let name = functions.get(id.index() as usize).map_or("", |(_, name)| name);
        *whole || !name.is_empty() && pattern.is_function(&Names::of(&[name]))
    };
    Ok((0..).zip(session.functions.ids()).filter(|(_, id)| is_meant(id)).map(|(number, _)| number).collect())
}
