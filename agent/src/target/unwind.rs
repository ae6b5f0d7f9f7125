//! Staying out of the way of those who walk the stack: exceptions, cancellation, backtraces.
//!
//! An unwinder looks up every return address it finds, and gives up on one that it does not know. So at its entry all
//! slots get their real addresses back. It may jump to any frame above it, or return; what it calls meanwhile, such as
//! cleanup code, runs on the part of the stack below, and is passed through. The first hooked call from at or above
//! where it was called from finds the frames that are left, and hooks their returns again.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::{shadow::Entry, slow, stacks, thread::Thread};

/// Puts the real return addresses into all slots of the stack that is selected, above one of its slots.
pub(super) fn restore(thread: &mut Thread, slot: usize) {
    // First what is surely there: something that was left by a jump may have had the same slot.
    for entry in thread.entries().filter(|entry| !entry.is_dead()) {
        // SAFETY: the stack that the thread runs on is mapped above where it is.
        let _ = unsafe { exchange(entry.slot(), entry.armed(), entry.real) };
    }
    if thread.writer().is_open() {
        stacks::restore_above(thread, slot);
    }
    thread.restored = true;
}

/// The same for an unwinder that seems to be called by another. Where several stacks may lie, it may be on another of them.
pub(super) fn restore_around(thread: &mut Thread, slot: usize, is_unwinder: bool) {
    if is_unwinder && !thread.is_alone() && thread.writer().is_open() {
        stacks::restore_around(thread, slot);
    }
}

/// The thread has gone on to another stack than it unwinds, with this slot: whether that is over is seen when it comes back.
pub(super) fn put_aside(thread: &mut Thread, slot: usize) {
    if thread.restored && !thread.stack.contains(&slot) {
        // SAFETY: shadows are never unmapped.
        if let Some(shadow) = unsafe { thread.shadow.as_mut() } {
            shadow.unwinder = thread.busy;
        }
        thread.restored = false;
        slow::set_busy(thread, 0);
    }
}

/// The thread has come back to a stack. Whether it is still at work on it, below where the unwinder was called.
pub(super) fn take_up(thread: &mut Thread, slot: usize) -> bool {
    // SAFETY: shadows are never unmapped.
    let shadow = unsafe { thread.shadow.as_mut() };
    match shadow.map_or(0, |shadow| core::mem::take(&mut shadow.unwinder)) {
        0 => false,
        unwinder if slot < unwinder => {
            thread.restored = true;
            slow::set_busy(thread, unwinder);
            true
        }
        _ => {
            rearm(thread, slot);
            false
        }
    }
}

/// Hooks the returns of the frames that are left, seen from a call whose return address is in this slot.
pub(super) fn rearm(thread: &mut Thread, slot: usize) {
    thread.restored = false;
    // Right after unwinding, what had its return address in the very same place is gone too.
    while let Some(entry) = thread.youngest().copied()
        && entry.slot() <= slot
    {
        slow::unwound(thread, &entry);
        thread.pop();
    }
    if thread.is_alone() {
        arm(thread);
    } else {
        // Others may be unwinding what is on other stacks.
        stacks::while_none_is_restored(|| arm(thread));
    }
}

/// Hooks the returns of all functions that are still there.
fn arm(thread: &mut Thread) {
    let (top, mut kept) = (thread.top, thread.base);
    let mut entry = thread.base.wrapping_add(1);
    while entry <= top {
        // SAFETY: entries above the base up to the top are initialised, and `kept` stays behind.
        let this: Entry = unsafe { *entry };
        let is_there = !this.is_dead() && {
            let hooked = if this.is_released() { this.real } else { this.armed() };
            // SAFETY: above a call that is just being made, so on a part of the stack that is in use.
            let instead = unsafe { exchange(this.slot(), this.real, hooked) };
            // A slot with anything else in it belongs to somebody else by now.
            instead.is_none_or(|word| word == this.armed())
        };
        if is_there {
            kept = kept.wrapping_add(1);
            // SAFETY: as above.
            unsafe { *kept = this };
        }
        entry = entry.wrapping_add(1);
    }
    thread.top = kept;
}

/// Replaces a word on a stack by another. What is there instead, if it is not that word. Where several stacks lie, others may
/// run there.
///
/// # Safety
///
/// It is mapped, and aligned.
unsafe fn exchange(slot: usize, from: usize, to: usize) -> Option<usize> {
    // SAFETY: promised by the caller.
    let word = unsafe { AtomicUsize::from_ptr(slot as *mut usize) };
    // ORDERING: whoever runs there sees it or does not.
    word.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).err()
}
