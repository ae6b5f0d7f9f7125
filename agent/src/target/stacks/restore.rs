//! Putting real return addresses back, for one who unwinds a stack, and when the outside leaves.

use core::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{GENERATION, TABLE, with};
use crate::target::{
    shadow::{Entry, Shadow},
    stack, sys,
    thread::Thread,
};

/// Puts the real return addresses back that may be above a slot on the same stack and are not in the shadow of that, where
/// several stacks may lie in one mapping: one who unwinds it meets them. What is on the others then returns unseen.
pub(in crate::target) fn restore_above(thread: &mut Thread, slot: usize) {
    let (own, is_alone) = (thread.shadow, thread.is_alone());
    let high = match is_alone {
        true => thread.stack.end,
        false => stack::around(slot, thread.scratch()).map_or(0, |mapped| mapped.high),
    };
    restore(|shadow| !is_alone && shadow != own, slot..high);
}

/// The same where it is not known which of them the slot is on.
pub(in crate::target) fn restore_around(thread: &mut Thread, slot: usize) {
    let own = thread.shadow;
    let high = stack::around(slot, thread.scratch()).map_or(0, |mapped| mapped.high);
    thread.entries().for_each(|entry| disarm(&entry));
    restore(|shadow| shadow != own, slot..high);
}

/// The same on all stacks, while others run on them: who emptied the rings is gone, and what is on a stack that nobody runs
/// on is not looked at again before somebody unwinds it.
pub(in crate::target) fn restore_everywhere() {
    restore(|_| true, 0..usize::MAX);
}

/// Does something while nobody puts return addresses back.
pub(in crate::target) fn while_none_is_restored(act: impl FnOnce()) {
    with(|_| act());
}

/// Puts the real return addresses back on some stacks, in slots of this range.
fn restore(is_meant: impl Fn(*mut Shadow) -> bool, slots: Range<usize>) {
    with(|stacks| {
        let meant = stacks.all().filter(|shadow| is_meant(*shadow));
        // SAFETY: shadows are never unmapped, nor are their entries.
        for at in meant.flat_map(|shadow| unsafe { (*shadow).entries() }) {
            // SAFETY: as above. Whoever runs there pushes and pops meanwhile.
            let entry = unsafe { at.read_volatile() };
            if slots.contains(&entry.slot()) && !entry.is_dead() {
                disarm(&entry);
                // SAFETY: as above.
                unsafe { Entry::release(at, &entry) };
            }
        }
        stacks.limbo.entries().filter(|entry| slots.contains(&entry.slot())).for_each(|entry| disarm(&entry));
    });
}

/// Puts a real return address back, while others run.
fn disarm(entry: &Entry) {
    if sys::peek(entry.slot()) == Some(entry.armed()) {
        // ORDERING: whoever runs there sees it or does not.
        // SAFETY: there is memory, as was just seen. Another thread may change the word at the same time.
        let word = unsafe { AtomicUsize::from_ptr(entry.slot() as *mut usize) };
        let _ = word.compare_exchange(entry.armed(), entry.real, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Puts the real return addresses back on all stacks. All threads stand still, and nothing is hooked any more; a thread that
/// is just in one of our routines still finds its entries. It may have the lock.
pub(in crate::target) fn restore_all() {
    // ORDERING: see above.
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // SAFETY: nobody changes anything meanwhile, and shadows are made so that they can be looked at any moment.
    let stacks = unsafe { &*TABLE.0.get() };
    // SAFETY: shadows are never unmapped, nor are their entries.
    let of = |shadow: *mut Shadow| unsafe { (*shadow).entries().map(|entry| *entry) };
    for entry in stacks.all().flat_map(of).chain(stacks.limbo.entries()).filter(|entry| !entry.is_dead()) {
        sys::replace(entry.slot(), entry.armed(), entry.real);
    }
}
