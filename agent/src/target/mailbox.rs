//! Waiting for the outside: to be hooked, or to have a module hooked that was just loaded.

use core::sync::atomic::Ordering;

use super::{open, patience::Patience, stacks, sys, thread, watch::landmark};
use crate::shared::{Command, Control, Mailbox, ReaderState, Subject, Turn};

/// How long one wait lasts before the thread looks whether anybody is there.
const GLANCE_MILLISECONDS: u64 = 100;

/// Tells the outside something and does what it says until it says to go on. A program is not held up by an outside that
/// is gone. Whether the outside said what it says to a child that is followed.
pub(super) fn serve(control: &'static Control, subject: Subject, module: u64, birth: [u64; 4]) -> bool {
    let mailbox = &control.mailbox;
    let tid = sys::gettid();
    let mut patience = Patience::new(control);
    // ORDERING: what the owner before has done is done.
    while let Err(owner) = mailbox.owner.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed) {
        if !patience.lasts() {
            control.unserved.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        // Hundreds of children may wait for their turn.
        sys::futex_wait(&mailbox.owner, owner, GLANCE_MILLISECONDS);
    }
    mailbox.subject.store(subject as u32, Ordering::Relaxed);
    mailbox.module.store(module, Ordering::Relaxed);
    mailbox.birth.iter().zip(birth).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    let is_followed = loop {
        hand_over(mailbox, Turn::Outside);
        // ORDERING: pairs with the release of the outside: the command is there.
        while mailbox.turn.load(Ordering::Acquire) != Turn::Target as u32 {
            sys::futex_wait(&mailbox.turn, Turn::Outside as u32, GLANCE_MILLISECONDS);
            // While hooks are installed, there is nothing better to do than to wait; only an outside that was killed does not
            // end that.
            let is_over = match subject {
                Subject::Ready => ReaderState::of(&control.reader) == ReaderState::Dead,
                _ => !patience.lasts(),
            };
            if is_over {
                control.unserved.fetch_add(1, Ordering::Relaxed);
                leave(mailbox);
                return false;
            }
        }
        let arguments = [0, 1, 2, 3].map(|at: usize| mailbox.arguments[at].load(Ordering::Relaxed) as usize);
        match Command::from_number(mailbox.command.load(Ordering::Relaxed)) {
            Some(Command::GoOn) | None => break arguments[0] == 1,
            Some(command) => {
                mailbox.answer.store(execute(command, arguments) as u64, Ordering::Relaxed);
            }
        }
    };
    leave(mailbox);
    is_followed
}

/// Leaves the mailbox to the next.
fn leave(mailbox: &Mailbox) {
    hand_over(mailbox, Turn::Nobody);
    // ORDERING: the next owner finds the mailbox empty.
    mailbox.owner.store(0, Ordering::Release);
    sys::futex_wake(&mailbox.owner, 1);
}

/// Tells the outside that modules have come or gone. The thread must not be traced meanwhile: what it would be
/// recorded in may be what is waited for.
pub(super) fn modules_changed() {
    if let Some(control) = thread::control() {
        thread::untraced(|| serve(control, Subject::Changed, 0, [0; 4]));
    }
}

/// Does what the outside says.
pub(super) fn execute(command: Command, arguments: [usize; 4]) -> usize {
    let [first, second, third, fourth] = arguments;
    match command {
        Command::GoOn => {}
        Command::Map => return map_code(first, second),
        Command::Ignore => thread::ignore(first as u32),
        Command::Landmark => landmark::learn(first, second, third),
        Command::Restore => stacks::restore_all(),
        Command::Open => return open::open(first, second, third as u32, fourth as u32) as usize,
        Command::Close => open::spoor_close(first as i64),
    }
    0
}

fn hand_over(mailbox: &Mailbox, turn: Turn) {
    // ORDERING: what it is about was written before.
    mailbox.turn.store(turn as u32, Ordering::Release);
    sys::futex_wake(&mailbox.turn, i32::MAX);
}

/// Maps memory for stubs. The outside writes to it, the program only runs it.
fn map_code(at: usize, bytes: usize) -> usize {
    const READ_EXECUTE: usize = 5;
    const PRIVATE_ANONYMOUS_HERE_IF_FREE: usize = 0x22 | 0x10_0000;
    let arguments = [at, bytes, READ_EXECUTE, PRIVATE_ANONYMOUS_HERE_IF_FREE, usize::MAX, 0];
    // SAFETY: only where nothing is mapped.
    let mapped = unsafe { sys::call(sys::MMAP, arguments) };
    match usize::try_from(mapped) {
        Ok(mapped) if mapped == at => at,
        Ok(elsewhere) => {
            // A kernel that does not know the flag takes the address for a wish.
            // SAFETY: it was mapped just now, for us.
            unsafe { sys::call(sys::MUNMAP, [elsewhere, bytes, 0, 0, 0, 0]) };
            0
        }
        Err(_) => 0,
    }
}
