//! Answering `agent ctl` and `collector ctl`: what is traced, and changes of what is recorded of it, while it runs.
//!
//! A request is a word and what it is about, in a line. It comes over the agent's socket, behind the process that it is for, or
//! from the collector, which names the session. All of that is done on threads of their own; who empties the rings is only asked
//! for numbers and given lists.

mod request;

use std::{
    io,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, PoisonError, Weak, mpsc::Sender},
    thread,
};

use agent::{drain::Functions, ship::Asked};
use steering::{Reply, Role, Socket};

use crate::{delivery::Order, family::Family};

/// What a collector is told that must not ask for anything.
const NO_REMOTE_CONTROL: &str =
    "the agent was started with --no-remote-control: it does nothing that a collector asks for";

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

    /// Tells all sessions something.
    fn tell(&self, order: impl Fn() -> Order) {
        self.list().iter().for_each(|session| drop(session.orders.send(order())));
    }

    /// How many there are that can be asked.
    fn count(&self) -> usize {
        let mut list = self.list();
        // One that is over has nobody who would hear this.
        list.retain(|session| session.orders.send(Order::Nothing).is_ok());
        list.len()
    }

    /// The session of a process, if it can still be asked.
    fn find(&self, pid: i32) -> Option<Session> {
        let is_there = |session: &&Session| session.pid == pid && session.orders.send(Order::Nothing).is_ok();
        self.list().iter().find(is_there).cloned()
    }
}

/// Answers whoever connects, as long as the socket is kept. Nobody needs to be able to: an agent that cannot be reached traces
/// all the same.
pub(crate) fn listen(family: &Arc<Family>) -> Option<Socket> {
    let started = Socket::make(&steering::path(), Role::Agent).and_then(|socket| {
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

/// Answers one request: a process, and what is asked of it.
fn serve(stream: &UnixStream, family: &Weak<Family>) -> io::Result<()> {
    steering::serve(stream, |line| {
        let family = family.upgrade()?;
        let (pid, request) = line.split_once(' ').unwrap_or((line, ""));
        let Ok(pid) = pid.parse() else { return Some(Reply::Refused("expected a process".into())) };
        let Some(session) = family.sessions.find(pid) else { return Some(Reply::Unknown) };
        Some(match request::answer(request, &session, &family) {
            Ok(text) => Reply::Done(text),
            Err(why) => Reply::Refused(why),
        })
    })
}

/// Answers what the collector asks of a session, on a thread that ends with that. The session's own is told the answer.
pub(crate) fn answer_collector(asked: Asked, session: Session, family: &Arc<Family>) {
    let Asked { number, request } = asked;
    let orders = session.orders.clone();
    // Once the session is over nobody listens.
    let tell = move |orders: &Sender<Order>, result| drop(orders.send(Order::Answer { number, result }));
    if !family.settings.remote_control {
        return tell(&orders, Err(NO_REMOTE_CONTROL.into()));
    }
    let family = Arc::clone(family);
    let answer = move || tell(&session.orders, request::answer(&request, &session, &family));
    if let Err(error) = thread::Builder::new().name("asked".into()).spawn(answer) {
        tell(&orders, Err(format!("the agent cannot start a thread: {error}")));
    }
}
