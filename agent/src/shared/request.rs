//! The outside's end of the mailbox.

use std::{
    io,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::thread::futex;

use super::{Arena, Command, Mailbox, Turn};

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
        match mailbox.subject.load(Ordering::Relaxed) {
            0 => Some(MailboxRequest::Ready),
            1 => Some(MailboxRequest::Loaded(module)),
            2 => Some(MailboxRequest::Unloaded(module)),
            3 => Some(MailboxRequest::Alone),
            4 => Some(MailboxRequest::Changed),
            _ => None,
        }
    }

    /// Waits until a thread tells something, at most until the deadline or the target's end.
    pub fn wait_request(&self, deadline: Instant) -> Option<MailboxRequest> {
        loop {
            let told = self.request();
            if told.is_some() || Instant::now() >= deadline || self.has_ended() {
                return told;
            }
            wait(&self.control().mailbox, Turn::Nobody);
        }
    }

    /// Has the thread that waits do something, and tells what came of it.
    pub fn ask(&self, command: Command, arguments: &[u64], deadline: Instant) -> io::Result<u64> {
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
            if self.has_ended() {
                return Err(io::Error::other("the target has ended"));
            }
            wait(mailbox, Turn::Target);
            self.heartbeat();
        }
        Ok(mailbox.answer.load(Ordering::Relaxed))
    }

    /// Lets the thread that waits go on.
    pub fn go_on(&self, deadline: Instant) -> io::Result<()> {
        self.ask(Command::GoOn, &[], deadline).map(drop)
    }

    /// A sign of life, for those who wait for room in a ring or in the mailbox.
    pub fn heartbeat(&self) {
        // ORDERING: a hint.
        self.control().heartbeat.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits as long as it is somebody's turn, for a moment.
fn wait(mailbox: &Mailbox, turn: Turn) {
    let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: GLANCE.as_nanos() as i64 };
    // Woken, interrupted, or too late: the caller looks again in any case.
    let _ = futex::wait(&mailbox.turn, futex::Flags::empty(), turn as u32, Some(&time));
}
