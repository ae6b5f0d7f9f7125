//! Answering `collector ctl`: which sessions there are, and passing on to their agents what is asked of them.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use codec::{SessionId, text::printable};
use collector_core::{Listed, NotAsked, Told};
use serde_json::json;
use steering::{Reply, Role, Socket};
use tracing::{debug, info, info_span};

use crate::{
    quantity::Period,
    receiver::{NoAnswer, Receiver},
};

/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// After how much silence an agent is not thought to be there. It says every tenth of a second how far it is.
const SILENCE: Duration = Duration::from_secs(2);

/// How many may wait for answers at a time.
const MOST_WAITING: usize = 64;

/// What asks for the sessions, in place of one.
pub(crate) const SESSIONS: &str = "sessions";

/// Answers whoever connects, as long as the socket is kept. Nobody needs to be able to: a collector that cannot be reached
/// receives all the same.
pub(crate) fn listen(receiver: &Arc<Receiver>) -> Option<Socket> {
    let started = Socket::make(&steering::path(), Role::Collector).and_then(|socket| {
        let (listener, receiver) = (socket.listener.try_clone()?, Arc::clone(receiver));
        thread::Builder::new().name("control".into()).spawn(move || {
            let waiting = Arc::new(AtomicUsize::new(0));
            for stream in listener.incoming().flatten() {
                serve(stream, &receiver, &waiting);
            }
        })?;
        Ok(socket)
    });
    started.inspect_err(|error| debug!("`collector ctl` cannot reach this collector: {error}")).ok()
}

/// Answers one request on a thread of its own: an agent may take its time.
fn serve(stream: UnixStream, receiver: &Arc<Receiver>, waiting: &Arc<AtomicUsize>) {
    let (receiver, waiting) = (Arc::clone(receiver), Arc::clone(waiting));
    if waiting.fetch_add(1, Relaxed) >= MOST_WAITING {
        waiting.fetch_sub(1, Relaxed);
        let too_many = || Reply::Refused("too many wait for answers of agents: try again later".into());
        // Whoever it was has gone.
        return drop(steering::serve(&stream, |_| Some(too_many())));
    }
    let counted = Arc::clone(&waiting);
    let answer = move || {
        // Whoever it was has gone.
        let _: io::Result<()> = steering::serve(&stream, |line| Some(answer(line, &receiver)));
        waiting.fetch_sub(1, Relaxed);
    };
    if thread::Builder::new().name("asked".into()).spawn(answer).is_err() {
        counted.fetch_sub(1, Relaxed);
    }
}

fn answer(line: &str, receiver: &Receiver) -> Reply {
    if line == SESSIONS {
        return Reply::Done(list(&receiver.sessions()));
    }
    let (id, request) = line.split_once(' ').unwrap_or((line, ""));
    let Ok(id) = id.parse::<SessionId>() else { return Reply::Refused("expected a session".into()) };
    let reply = match receiver.ask(id, request, PATIENCE) {
        Ok(Told::Done(text)) => Reply::Done(text),
        Ok(Told::Refused(why)) => Reply::Refused(why),
        Ok(Told::Nothing) => {
            Reply::Refused(format!("session {id} has ended, or its collector was stopped, before its agent answered"))
        }
        Err(NoAnswer::NotAsked(NotAsked::Unknown)) => Reply::Unknown,
        Err(why) => Reply::Refused(explain(id, why, receiver)),
    };
    if let Reply::Done(text) = &reply
        && request != "status"
    {
        log(id, request, text, receiver);
    }
    reply
}

/// Notes what was changed, for who wonders later.
fn log(id: SessionId, request: &str, text: &str, receiver: &Receiver) {
    let Some(Listed { session, .. }) = receiver.sessions().into_iter().find(|listed| listed.id == id) else { return };
    let _about = info_span!("session", session = %session.name, peer = %session.source).entered();
    info!("session {}: `{}`: {}", session.name, printable(request), printable(text));
}

/// The sessions, as a list in JSON.
fn list(sessions: &[Listed]) -> String {
    let entry = |listed: &Listed| {
        let catalog = listed.session.catalog();
        let process = catalog.session();
        let (silent_ms, why) = match listed.heard_ago {
            Ok(ago) => (u64::try_from(ago.as_millis()).ok(), None),
            Err(why) => (None, Some(if why == NotAsked::Lost { "lost" } else { "ended" })),
        };
        json!({
            "session": listed.id.to_string(),
            "name": listed.session.name,
            "source": listed.session.source,
            "program": process.map(|process| &*process.executable),
            "pid": process.map(|process| process.pid),
            "host": process.map(|process| &*process.host),
            "silent_ms": silent_ms,
            "over": why,
        })
    };
    serde_json::Value::from(sessions.iter().map(entry).collect::<Vec<_>>()).to_string()
}

/// Why there is no answer, for people.
fn explain(id: SessionId, why: NoAnswer, receiver: &Receiver) -> String {
    match why {
        NoAnswer::NotAsked(NotAsked::Ended | NotAsked::Unknown) => format!("session {id} has ended"),
        NoAnswer::NotAsked(NotAsked::Lost) => format!("session {id}: contact with its agent is lost"),
        NoAnswer::NotAsked(NotAsked::TooMany) => format!("session {id}: its agent is asked too much: try again later"),
        NoAnswer::NotAsked(NotAsked::TooLong) => "the request is too long".into(),
        NoAnswer::NoNumber => "the system has no random numbers".into(),
        NoAnswer::Silence => {
            let listed = receiver.sessions().into_iter().find(|listed| listed.id == id);
            let what = format!("session {id}: its agent has not answered within {}", Period(PATIENCE));
            match listed.map(|listed| (listed.heard_ago, version(&listed))) {
                Some((Ok(ago), _)) if ago >= SILENCE => {
                    format!("{what}: nothing has come from it for {} s; is the way to it down?", ago.as_secs())
                }
                Some((Ok(_), version)) => {
                    format!("{what}, though it is there: its version, {version}, may be one that cannot be asked")
                }
                _ => format!("session {id} has ended"),
            }
        }
    }
}

fn version(listed: &Listed) -> String {
    let catalog = listed.session.catalog();
    catalog.session().map_or_else(|| "which it has not told".into(), |process| printable(&process.agent_version))
}
