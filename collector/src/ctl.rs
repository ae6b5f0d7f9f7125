//! `collector ctl`: has a running collector ask the agent of a session what it traces, or to record more or less.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use codec::text::printable_json;
use serde_json::Value;
use steering::{Action, Reply, Role, Status};

use crate::{
    args::{self, CtlArgs},
    control::SESSIONS,
    offline::{self, ended_early, printable},
};

/// How long a collector may take to answer: longer than it waits for an agent.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long it may take to say which sessions it has.
const LISTING: Duration = Duration::from_secs(3);

/// How many digits are the same in all ids that agents make.
const COMMON_DIGITS: usize = 8;

/// How many sessions are named where it is not clear which is meant.
const NAMED: usize = 5;

pub(crate) fn run(args: &CtlArgs) -> Result<ExitCode> {
    if args.session.is_none() && args.action.is_some() {
        args::wrong_usage("which session? `collector ctl` prints those that there are".into());
    }
    let known = Known::find()?;
    if known.collectors == 0 {
        bail!("no collector of this user runs on this machine");
    }
    let text = match (&args.session, &args.action) {
        (None, _) => {
            let list = known.list(args.json);
            if list.is_empty() {
                note!("collector: no agent can be asked: none of these collectors has a session that goes on");
            }
            list
        }
        (Some(session), action) => {
            let action = action.as_ref().unwrap_or(&Action::Status);
            let request = action.request().map_err(anyhow::Error::msg)?;
            let answer = known.ask(session, &request)?;
            match (action, args.json) {
                (Action::Status, true) => {
                    let status: Value = serde_json::from_str(&answer).context(OTHER_VERSION)?;
                    format!("{}\n", printable_json(&status.to_string()))
                }
                (Action::Status, false) => Status::describe(&answer).context(OTHER_VERSION)?,
                _ => format!("{}\n", printable(&answer)),
            }
        }
    };
    ended_early(io::stdout().lock().write_all(text.as_bytes())).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

const OTHER_VERSION: &str = "the agent is of another version";

/// The sessions that the collectors of this user know.
#[derive(Debug)]
struct Known {
    /// How many collectors there are, and how many of them do not say what they have.
    collectors: usize,
    silent: usize,
    sessions: Vec<Found>,
}

/// A session, and whom to ask.
#[derive(Debug)]
struct Found {
    socket: PathBuf,
    /// What its collector tells of it.
    entry: Value,
}

impl Found {
    fn text(&self, field: &str) -> &str {
        self.entry[field].as_str().unwrap_or_default()
    }

    fn id(&self) -> &str {
        self.text("session")
    }

    /// Why it is over, if it is.
    fn over(&self) -> Option<&str> {
        self.entry["over"].as_str()
    }

    /// Whether it is meant by a name, an id, or the beginning of one, be it without what all ids of agents begin with.
    fn is(&self, wanted: &str) -> bool {
        let (digits, id) = (wanted.to_ascii_lowercase(), self.id());
        let begins = |id: &str| !digits.is_empty() && id.starts_with(&digits);
        self.text("name") == wanted || begins(id) || id.get(COMMON_DIGITS..).is_some_and(begins)
    }

    /// It in a line, for scripts.
    fn json(&self) -> String {
        let mut entry = self.entry.clone();
        // It is not.
        entry.as_object_mut().map(|fields| fields.remove("over"));
        format!("{}\n", printable_json(&entry.to_string()))
    }

    /// It in a line, for people.
    fn line(&self) -> String {
        let over = self.over().map(|why| if why == "lost" { ", contact lost" } else { ", ended" });
        let process = match (self.text("program"), &self.entry["pid"]) {
            ("", _) => String::new(),
            (program, pid) => format!("  {program}, process {pid} on {}", self.text("host")),
        };
        let (name, from) = (self.text("name"), self.text("source"));
        format!("{}\n", printable(&format!("{}  {name}{process}, from {from}{}", self.id(), over.unwrap_or(""))))
    }
}

impl Known {
    /// Asks all collectors of this user.
    fn find() -> Result<Self> {
        let mut known = Self { collectors: 0, silent: 0, sessions: Vec::new() };
        for socket in steering::sockets(&steering::path(), Role::Collector)? {
            let entries = match steering::ask(&socket, SESSIONS, LISTING) {
                Ok(Some(Reply::Done(list))) => {
                    serde_json::from_str::<Vec<Value>>(&list).map_err(|error| error.to_string())
                }
                Ok(Some(Reply::Refused(why))) => Err(why),
                Ok(Some(Reply::Unknown)) => Err("it is of another version".into()),
                Ok(None) => continue,
                Err(error) => Err(error.to_string()),
            };
            known.collectors += 1;
            match entries {
                Ok(entries) => {
                    known.sessions.extend(entries.into_iter().map(|entry| Found { socket: socket.clone(), entry }));
                }
                // One that hangs keeps nobody from the others.
                Err(why) => {
                    known.silent += 1;
                    note!("collector: the collector at {} does not answer: {why}", socket.display());
                }
            }
        }
        Ok(known)
    }

    /// The sessions whose agents can be asked.
    fn list(&self, as_json: bool) -> String {
        let open = self.sessions.iter().filter(|found| found.over().is_none());
        match as_json {
            true => open.map(Found::json).collect(),
            false => open.map(Found::line).collect(),
        }
    }

    /// Asks the agent of a session.
    fn ask(&self, wanted: &str, request: &str) -> Result<String> {
        let found = self.choose(wanted)?;
        let (id, at) = (found.id(), found.socket.display());
        let reply = steering::ask(&found.socket, &format!("{id} {request}"), PATIENCE);
        match reply.map_err(|error| anyhow!("the collector at {at} does not answer: {error}"))? {
            Some(Reply::Done(text)) => Ok(text),
            Some(Reply::Refused(why)) => bail!("{}", printable(&why)),
            Some(Reply::Unknown) | None => bail!("session {id} has ended, or its collector has"),
        }
    }

    /// The session that is meant. One whose agent can be asked goes before others; of several collectors, the one that has heard
    /// from it last.
    fn choose(&self, wanted: &str) -> Result<&Found> {
        let directory = Path::new(wanted);
        let id = if directory.is_dir() { Some(offline::session_in(directory)?) } else { None };
        let is_meant = |found: &&Found| id.as_deref().map_or_else(|| found.is(wanted), |id| found.id() == id);
        let mut open: Vec<_> = self.sessions.iter().filter(is_meant).filter(|found| found.over().is_none()).collect();
        open.sort_by_key(|found| (found.id(), found.entry["silent_ms"].as_u64()));
        open.dedup_by_key(|found| found.id());
        match open[..] {
            [found] => return Ok(found),
            [] => {}
            _ => {
                let named: Vec<_> = open.iter().take(NAMED).map(|found| found.id()).collect();
                let more = if open.len() > NAMED { ", …" } else { "" };
                bail!("{wanted} may be any of {} sessions: {}{more}", open.len(), named.join(", "));
            }
        }
        match self.sessions.iter().find(is_meant).and_then(Found::over) {
            Some("lost") => bail!("session {wanted}: contact with its agent is lost"),
            Some(_) => bail!("session {wanted} has ended"),
            None if self.silent > 0 => bail!("session {wanted} is none of the collectors' that have answered"),
            None if id.is_some() => {
                bail!("session {wanted} has ended, or is none of a collector of this user that runs")
            }
            None => bail!(
                "no collector of this user that runs has a session {wanted} (`collector ctl` prints those it has)"
            ),
        }
    }
}
