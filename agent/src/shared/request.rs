//! The outside's end of the mailbox.

use std::{
    io,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::thread::futex;

use super::{Arena, Command, Mailbox, Subject, Turn};

/// What a thread of the target tells, while it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailboxRequest {
    /// Hooks can be installed.
    Ready,
    /// The module with this base address was loaded. Nothing of it has run.
    Loaded(u64),
    /// The module with this base address is about to be unloaded. Nothing of it will run.
    Unloaded(u64),
    /// The program is about to do what it can do only without Frida's threads.
    Alone,
    /// Modules were loaded or unloaded, of which nothing has run or will run.
    Changed,
    /// It is not of the target but of a child that the target has forked.
    Forked(ChildBirth),
    /// It is about to run another program, in place of the target or of a child that shares its memory.
    Executes(ChildBirth),
}

/// What a child says of itself, with ids that are valid where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildBirth {
    /// The process.
    pub pid: u32,
    /// The thread that asks.
    pub tid: u32,
    /// The thread of the target that has made it.
    pub parent_tid: u32,
    /// What the counter showed when that thread was in the call that makes it.
    pub counter: u64,
    /// The program that it is about to run: a directory's descriptor, and where the path from there is; 0 where the
    /// descriptor is the program's. That is −1 where nobody knows.
    pub program: (i32, u64),
}

/// How long one wait lasts before the time is looked at.
const GLANCE: Duration = Duration::from_millis(20);

impl Arena {
    /// What a thread tells, if one waits in the mailbox. It waits until it is told to [go on](Self::go_on).
    pub fn request(&self) -> Option<MailboxRequest> {
        let mailbox = &self.control().mailbox;
        // ORDERING: pairs with the release of the thread: what it tells is there.
        if mailbox.turn.load(Ordering::Acquire) != Turn::Outside as u32 {
            return None;
        }
        let module = mailbox.module.load(Ordering::Relaxed);
        let [parent_tid, counter, directory, path] =
            [0, 1, 2, 3].map(|place: usize| mailbox.birth[place].load(Ordering::Relaxed));
        let (pid, tid) = (module as u32, mailbox.owner.load(Ordering::Relaxed));
        let program = (directory as i32, path);
        let birth = ChildBirth { pid, tid, parent_tid: parent_tid as u32, counter, program };
        Some(match Subject::from_number(mailbox.subject.load(Ordering::Relaxed))? {
            Subject::Ready => MailboxRequest::Ready,
            Subject::Loaded => MailboxRequest::Loaded(module),
            Subject::Unloaded => MailboxRequest::Unloaded(module),
            Subject::Alone => MailboxRequest::Alone,
            Subject::Changed => MailboxRequest::Changed,
            Subject::Forked => MailboxRequest::Forked(birth),
            Subject::Executes => MailboxRequest::Executes(birth),
        })
    }

    /// Waits until a thread tells something, at most until the deadline or the target's end.
    pub fn wait_request(&self, deadline: Instant) -> Option<MailboxRequest> {
        loop {
            let told = self.request();
            if told.is_some() || Instant::now() >= deadline || self.has_ended() {
                return told;
            }
            wait(&self.control().mailbox, Turn::Nobody, deadline);
        }
    }

    /// Has the thread that waits do something, and tells what came of it.
    pub fn ask(&self, command: Command, arguments: &[u64], deadline: Instant) -> io::Result<u64> {
        self.ask_while(command, arguments, deadline, &|| !self.has_ended())
    }

    /// The same for a thread that need not be of the target, as long as it is there.
    pub fn ask_while(
        &self,
        command: Command,
        arguments: &[u64],
        deadline: Instant,
        is_there: &dyn Fn() -> bool,
    ) -> io::Result<u64> {
        let mailbox = &self.control().mailbox;
        for (place, value) in mailbox.arguments.iter().zip(arguments) {
            // ORDERING: made visible by the turn.
            place.store(*value, Ordering::Relaxed);
        }
        mailbox.command.store(command as u32, Ordering::Relaxed);
        self.heartbeat();
        // ORDERING: the command is there.
        mailbox.turn.store(Turn::Target as u32, Ordering::Release);
        // Nobody may be waiting in the kernel, which is no error.
        let _ = futex::wake(&mailbox.turn, futex::Flags::empty(), u32::MAX);
        // ORDERING: the answer is there.
        while mailbox.turn.load(Ordering::Acquire) == Turn::Target as u32 {
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the target does not answer"));
            }
            if !is_there() {
                return Err(io::Error::other("the target has ended"));
            }
            wait(mailbox, Turn::Target, deadline);
            self.heartbeat();
        }
        Ok(mailbox.answer.load(Ordering::Relaxed))
    }

    /// Lets the thread that waits go on.
    pub fn go_on(&self, deadline: Instant) -> io::Result<()> {
        self.ask(Command::GoOn, &[], deadline).map(drop)
    }

    /// Empties the mailbox of a thread that was killed in it, while the target goes on.
    pub fn forget_request(&self) {
        let mailbox = &self.control().mailbox;
        // ORDERING: the next owner finds it empty.
        mailbox.turn.store(Turn::Nobody as u32, Ordering::Relaxed);
        mailbox.owner.store(0, Ordering::Release);
        let _ = futex::wake(&mailbox.owner, futex::Flags::empty(), 1);
    }

    /// A sign of life, for those who wait for room in a ring or in the mailbox.
    pub fn heartbeat(&self) {
        // ORDERING: a hint.
        self.control().heartbeat.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits as long as it is somebody's turn, for a moment, and not beyond the deadline.
fn wait(mailbox: &Mailbox, turn: Turn, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now()).min(GLANCE);
    let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: left.as_nanos() as i64 };
    // Woken, interrupted, or too late: the caller looks again in any case.
    let _ = futex::wait(&mailbox.turn, futex::Flags::empty(), turn as u32, Some(&time));
}
