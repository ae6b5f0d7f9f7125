//! The mailbox between the two halves: a thread of the target requests something, and executes commands meanwhile.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// One thread of the target asks the outside for something, and does what it is told until it is told to go on.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Mailbox {
    /// The thread whose turn it is; 0 for nobody.
    pub owner: AtomicU32,
    /// A [`Turn`], and what both sides wait on.
    pub turn: AtomicU32,
    /// What the thread tells: a [`Subject`].
    pub subject: AtomicU32,
    /// Which [`Command`] the outside gives.
    pub command: AtomicU32,
    /// The module's base address, or the process that the thread is of.
    pub module: AtomicU64,
    /// Of a child, or of one that is about to run another program: the thread that has made it, what the counter showed when
    /// that had called what makes it, and which program: a directory's descriptor, and the path from there, if any.
    pub birth: [AtomicU64; 4],
    /// What the command is about.
    pub arguments: [AtomicU64; 4],
    /// What came of it.
    pub answer: AtomicU64,
}

/// Whose turn it is in the mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Turn {
    /// Nobody's.
    Nobody = 0,
    /// The outside's: a thread requests something, or has done what it was told.
    Outside = 1,
    /// The thread's: it has a command to execute.
    Target = 2,
}

/// What a thread tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Subject {
    /// It is ready for hooks to be installed.
    Ready = 0,
    /// A module was loaded.
    Loaded = 1,
    /// A module is about to be unloaded.
    Unloaded = 2,
    /// Frida has to leave.
    Alone = 3,
    /// Modules have come or gone.
    Changed = 4,
    /// It is a forked child's, in the mailbox of its parent.
    Forked = 5,
    /// It is about to run another program.
    Executes = 6,
}

impl Subject {
    /// The subject with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        use Subject::*;
        [Ready, Loaded, Unloaded, Alone, Changed, Forked, Executes]
            .into_iter()
            .find(|subject| *subject as u32 == number)
    }
}

/// What a thread in the mailbox is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// Go on. A child is told by argument 0 that it is followed.
    GoOn = 0,
    /// Map memory that can be read and executed at argument 0, argument 1 bytes. The answer is where, or 0 if the place
    /// is taken.
    Map = 1,
    /// Never trace the thread whose id is argument 0.
    Ignore = 2,
    /// The [`Landmark`](super::Landmark) whose number is argument 0 is at argument 1, and ends before argument 2.
    Landmark = 3,
    /// Put the real return addresses back on all stacks: nothing is hooked any more.
    Restore = 4,
    /// Make the memory that is shared with the outside, with the arguments of `spoor_open`. The answer is its.
    Open = 5,
    /// Close the descriptor that is argument 0.
    Close = 6,
}

impl Command {
    /// The command with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::GoOn, Self::Map, Self::Ignore, Self::Landmark, Self::Restore, Self::Open, Self::Close]
            .into_iter()
            .find(|command| *command as u32 == number)
    }
}
