//! All real stacks that are run on, and the shadow of each.
//!
//! A stack belongs to no thread: a coroutine that was left in the middle of its functions may go on in any other. So there
//! is one table of stacks. Whoever runs on one claims its shadow, and keeps what it needs of it at hand, see
//! [`Thread`]; the first event on another stack lets go of it.
//!
//! Where a stack lies the program says (`makecontext`, `sigaltstack`). Of such a stack it is certain that nobody else runs on
//! it, and so it can be taken from a thread that was not seen to leave it. A thread's own stack is its own. A mapping that
//! has a guard below it looks like a stack, but may hold several, on which several threads run. There, who comes second
//! gets a part of it, or is passed through and counted until the first is gone; and functions below where somebody runs
//! may not be gone but on another stack: they are in [`limbo`] until they return. Of any other memory nobody can tell what
//! stacks it holds: what runs there is passed through, and counted.

mod index;
mod limbo;
mod memory;
mod restore;
#[cfg(test)]
mod tests;

use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicU32, Ordering, compiler_fence},
};

pub(super) use index::{LEVELS, Links};
pub(super) use limbo::Suspended;
pub(super) use restore::{restore_above, restore_all, restore_around, restore_everywhere, while_none_is_restored};

use self::{index::Index, limbo::Limbo};
use super::{
    local,
    shadow::{Entry, Place, Shadow},
    stack, sys,
    thread::{self, Thread},
};

/// The least and the most entries of a shadow, as powers of two, and what sizes there are between.
const LEAST_ENTRIES: usize = 8;
const MOST_ENTRIES: usize = 20;
const CLASSES: usize = MOST_ENTRIES - LEAST_ENTRIES + 1;

/// How large a mapping with a guard below it is at most that is taken for a stack; threads know their own, which are larger.
const MOST_STACK_BYTES: usize = 2 << 20;

/// How often memory is passed through that is not known to be a stack before it is looked at again.
const LOOK_AGAIN: u32 = 10_000;

/// How often all return addresses were put back. What was on a stack at an earlier time returns by itself.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How often the program has told of a stack.
static LEARNED: AtomicU32 = AtomicU32::new(0);

static LOCK: AtomicU32 = AtomicU32::new(0);
static TABLE: Table = Table(UnsafeCell::new(Stacks::new()));

struct Table(UnsafeCell<Stacks>);

// SAFETY: see where it is used.
unsafe impl Sync for Table {}

/// Does something with the table, alone. A handler that came meanwhile might never come back, so there is none.
fn with<T>(act: impl FnOnce(&mut Stacks) -> T) -> T {
    const SPINS: u32 = 64;
    let signals = sys::block_signals();
    let mut spins = 0;
    // ORDERING: what was done under the lock before is seen.
    while LOCK.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        spins += 1;
        match spins % SPINS {
            0 => sys::sleep_microseconds(20),
            _ => core::hint::spin_loop(),
        }
    }
    // SAFETY: whoever has the lock has the table.
    let result = act(unsafe { &mut *TABLE.0.get() });
    LOCK.store(0, Ordering::Release);
    sys::set_signals(signals);
    result
}

/// Whether a forked child has found the table as nobody was changing it.
pub(super) fn are_whole() -> bool {
    // ORDERING: there is one thread.
    LOCK.load(Ordering::Relaxed) == 0
}

/// Has a thread run on the stack that holds this slot. Whether that could be done.
pub(super) fn claim(thread: &mut Thread, slot: usize) -> bool {
    slot.is_multiple_of(8) && !is_unknown(thread, slot) && with(|stacks| stacks.claim(thread, slot))
}

/// Whether a slot is in memory that was looked at, and is not known to be a stack.
fn is_unknown(thread: &mut Thread, slot: usize) -> bool {
    let (range, learned, looks) = &mut thread.unknown;
    *looks = looks.saturating_sub(1);
    // ORDERING: who is told of a stack by another thread runs on it later.
    range.contains(&slot) && *looks > 0 && *learned == LEARNED.load(Ordering::Relaxed)
}

/// Lets go of the stack that a thread runs on, or ran on, where it has ended.
pub(super) fn let_go(thread: &mut Thread, has_ended: bool) {
    with(|stacks| stacks.let_go(thread, has_ended));
}

/// Forgets what was on the stack that a thread runs on, with this slot, before all return addresses were put back.
pub(super) fn settle(thread: &mut Thread, slot: usize) {
    // SAFETY: it is the table's, and valid for good.
    let generation = unsafe { thread.shadow.as_ref() }.map(|shadow| shadow.generation);
    // ORDERING: all threads stand still when it changes.
    if generation.is_some_and(|generation| generation != GENERATION.load(Ordering::Relaxed)) {
        with(|stacks| {
            let shadow = thread.shadow;
            stacks.take_from_owner(shadow);
            stacks.tidy(shadow, slot);
            stacks.give_to(shadow, thread);
            stacks.set_range(thread, shadow, slot);
        });
    }
}

/// A thread is new. What was on its stack, from here up to there, was another's. It may go on with a coroutine, whose stack
/// is not its own.
pub(super) fn clear(here: usize, end: usize) {
    with(|stacks| {
        // SAFETY: shadows are never unmapped, nor are threads.
        let is_own = |shadow: &*mut Shadow| unsafe {
            let Shadow { owner, place, .. } = **shadow;
            // One that lay there before may have ended a little lower.
            let is_left = place == Place::Own && !owner.is_null() && Thread::is_gone(owner);
            is_left || (here..=(**shadow).end()).contains(&end)
        };
        let Some(shadow) = stacks.mapped.find(here).filter(is_own) else { return };
        // SAFETY: as above, nor are their entries. Whoever else runs on one is not on this part of it.
        unsafe {
            for entry in (*shadow).entries().filter(|entry| (here..end).contains(&(**entry).slot())) {
                (*entry).kill();
            }
        }
    });
}

/// The program says that a stack lies there, before it is run on.
pub(super) fn learn(low: usize, high: usize) {
    let (low, high) = (low.next_multiple_of(8), high & !7);
    let here = &raw const low as usize;
    // A stack that we are on is known already.
    if low < high && !(low..high).contains(&here) {
        with(|stacks| stacks.learn(low, high));
    }
}

/// Takes out the entry of a function that returns, from where it should be.
pub(super) fn take(slot: usize) -> Option<Suspended> {
    with(|stacks| stacks.take(slot))
}

/// The same, from wherever it is.
pub(super) fn take_anywhere(slot: usize) -> Option<Suspended> {
    take(slot).or_else(|| with(|stacks| stacks.all().find_map(|shadow| take_from(shadow, slot))))
}

/// Keeps a function that may be on another stack in the same memory, or may be told to be gone. Whether it may.
pub(super) fn suspend(entry: &Entry, depth: u32, is_told: bool) -> bool {
    sys::peek(entry.slot()) == Some(entry.armed())
        && with(|stacks| {
            let is_kept = stacks.limbo.insert(Suspended { entry: *entry, depth, is_told });
            if !is_kept {
                // It returns unseen.
                sys::replace(entry.slot(), entry.armed(), entry.real);
            }
            is_kept
        })
}

/// The same in a forked child, where nobody else is who could change something, or finish changing it.
pub(super) fn find_in_child(slot: usize) -> Option<Entry> {
    // SAFETY: see above.
    let stacks = unsafe { &mut *TABLE.0.get() };
    // SAFETY: entries are never unmapped.
    let found = stacks.all().find_map(|shadow| find(shadow, slot)).map(|entry| unsafe { *entry });
    found.or_else(|| Some(stacks.limbo.take(slot)?.entry))
}

/// The entry of a shadow that is for this slot.
fn find(shadow: *mut Shadow, slot: usize) -> Option<*mut Entry> {
    // SAFETY: shadows are never unmapped, nor are their entries, of which those up to the top are initialised.
    unsafe { (*shadow).entries().find(|entry| (**entry).slot() == slot && !(**entry).is_dead()) }
}

/// Takes out the entry of a shadow that is for this slot.
fn take_from(shadow: *mut Shadow, slot: usize) -> Option<Suspended> {
    let entry = find(shadow, slot)?;
    // SAFETY: it is on a stack that this thread runs on, so nobody else does anything with it.
    unsafe {
        let taken = suspended(shadow, entry);
        (*entry).kill();
        Some(taken)
    }
}

/// An entry of a shadow, by itself.
///
/// # Safety
///
/// It is an entry of it.
unsafe fn suspended(shadow: *mut Shadow, entry: *mut Entry) -> Suspended {
    // SAFETY: promised by the caller.
    let (entry, place) = unsafe { (*entry, entry.offset_from_unsigned((*shadow).base)) };
    Suspended { entry, depth: place as u32 - 1, is_told: false }
}

struct Stacks {
    /// Those that the program has told of.
    told: Index,
    /// Those that were found in the process's map.
    mapped: Index,
    /// The shadow that was made last, and through it all.
    newest: *mut Shadow,
    /// Shadows that are not in use, linked by their first link.
    unused: *mut Shadow,
    /// Where the next shadow is made, and how many more there is room for.
    room: (*mut Shadow, usize),
    /// Memory for entries that is not in use, by its size, linked by what would be a return address.
    memory: [*mut Entry; CLASSES],
    limbo: Limbo,
}

// All shadows are valid for good, and the table's. SAFETY comments below say only what is beside that.
impl Stacks {
    const fn new() -> Self {
        Self {
            told: Index::new(),
            mapped: Index::new(),
            newest: ptr::null_mut(),
            unused: ptr::null_mut(),
            room: (ptr::null_mut(), 0),
            memory: [ptr::null_mut(); CLASSES],
            limbo: Limbo::new(),
        }
    }

    /// All shadows that were ever made.
    fn all(&self) -> impl Iterator<Item = *mut Shadow> {
        // SAFETY: see above.
        let older = |shadow: &*mut Shadow| unsafe { Some((**shadow).older).filter(|older| !older.is_null()) };
        core::iter::successors(Some(self.newest).filter(|newest| !newest.is_null()), older)
    }

    fn claim(&mut self, thread: &mut Thread, slot: usize) -> bool {
        let own = &raw mut *thread;
        let mut found = self.told.find(slot).or_else(|| self.mapped.find(slot));
        // SAFETY: see above.
        let is_own = |shadow: *mut Shadow| unsafe { (*shadow).owner == own };
        if let Some(shadow) = found.filter(|shadow| is_own(*shadow)) {
            self.set_range(thread, shadow, slot);
            return true;
        }
        self.let_go(thread, false);
        if let Some(shadow) = found {
            // SAFETY: see above; an owner is a thread, which is never unmapped.
            unsafe {
                let (owner, place) = ((*shadow).owner, (*shadow).place);
                let is_owned = !owner.is_null() && place != Place::Told && !Thread::is_gone(owner);
                // A coroutine may have a part of a thread's own stack. That is not known to be a stack.
                if place == Place::Main && !sys::is_main_thread() || place == Place::Own && is_owned {
                    return false;
                }
                if is_owned {
                    if !self.split(shadow, slot) {
                        return false;
                    }
                    found = None;
                } else {
                    self.take_from_owner(shadow);
                    self.tidy(shadow, slot);
                    // Another may be in its place by now.
                    if (*shadow).top == (*shadow).base && (*shadow).place != Place::Told {
                        self.remove(shadow);
                        found = None;
                    }
                }
            }
        }
        let Some(shadow) = found.or_else(|| self.find_in_map(thread, slot)) else { return false };
        if !self.give_memory(shadow) {
            return false;
        }
        self.give_to(shadow, thread);
        self.set_range(thread, shadow, slot);
        true
    }

    /// Has a thread run on a stack whose shadow has memory.
    fn give_to(&mut self, shadow: *mut Shadow, thread: &mut Thread) {
        // SAFETY: see above; who looks at it at any moment must find the youngest entry, here or there.
        unsafe {
            // ORDERING: as in `settle`.
            (*shadow).generation = GENERATION.load(Ordering::Relaxed);
            (thread.top, thread.base) = ((*shadow).top, (*shadow).base);
            let entries = (1 << ((*shadow).class + LEAST_ENTRIES)).min(thread::most_depth());
            thread.limit = thread.base.wrapping_add(entries);
            (thread.shadow, thread.stack) = (shadow, (*shadow).low..(*shadow).end());
            compiler_fence(Ordering::SeqCst);
            (*shadow).owner = thread;
        }
    }

    /// Has a stack that somebody else runs on end before this slot, or begin behind it, if that one is elsewhere on it.
    fn split(&mut self, shadow: *mut Shadow, slot: usize) -> bool {
        const PAGE: usize = 4096;
        // SAFETY: see above. Whoever runs on it pushes and pops meanwhile, which changes none of the entries that are there.
        unsafe {
            // From the youngest to the oldest, slots rise.
            let slots = || (*shadow).entries().map(|entry| (*entry).slot());
            let (low, high) = match slots().take_while(|other| *other < slot).last() {
                Some(below) => ((*shadow).low, (below + 1).next_multiple_of(PAGE)),
                None => ((slot + 1).next_multiple_of(PAGE), (*shadow).end()),
            };
            if low >= high || (low..high).contains(&slot) || !slots().any(|other| (low..high).contains(&other)) {
                return false;
            }
            self.mapped.remove(shadow);
            ((*shadow).low, (*shadow).size) = (low, high - low);
            self.mapped.insert(shadow);
            for entry in (*shadow).entries().filter(|entry| !(low..high).contains(&(**entry).slot())) {
                self.suspend(shadow, entry);
            }
            if let Some(owner) = (*shadow).owner.as_mut() {
                // It finds out at its next event.
                (&raw mut owner.size).write_volatile(0);
            }
            true
        }
    }

    /// Has an entry of a shadow be where it is found without that.
    ///
    /// # Safety
    ///
    /// It is an entry of it.
    unsafe fn suspend(&mut self, shadow: *mut Shadow, entry: *mut Entry) {
        // SAFETY: promised by the caller.
        unsafe {
            if !(*entry).is_dead() && self.limbo.insert(suspended(shadow, entry)) {
                (*entry).kill();
            }
        }
    }

    /// Which slots a thread may take to be on its stack: none of another that lies within.
    fn set_range(&mut self, thread: &mut Thread, shadow: *mut Shadow, slot: usize) {
        // SAFETY: see above.
        let (mut range, place) = unsafe { ((*shadow).low..(*shadow).end(), (*shadow).place) };
        if place != Place::Told {
            range = self.told.beside(range, slot);
        }
        (thread.low, thread.size) = (range.start, range.len());
    }

    /// Lets go of the stack that a thread runs on. With it goes what is on a stack of its own, where the thread has ended.
    fn let_go(&mut self, thread: &mut Thread, has_ended: bool) {
        let own = &raw mut *thread;
        // SAFETY: see above.
        if let Some(shadow) = unsafe { thread.shadow.as_mut() }.filter(|shadow| shadow.owner == own) {
            let is_over = has_ended && matches!(shadow.place, Place::Own | Place::Main);
            self.take_from_owner(shadow);
            if is_over {
                shadow.top = shadow.base;
            }
            if shadow.top == shadow.base {
                match shadow.place {
                    Place::Told => self.take_memory(shadow),
                    Place::Main | Place::Own | Place::Mapped => self.remove(shadow),
                }
            }
        }
        thread.forget_stack();
    }

    /// Has whoever runs on a stack, or did, look for it again.
    fn take_from_owner(&mut self, shadow: *mut Shadow) {
        // SAFETY: see above; who looks at it at any moment must find the youngest entry, here or there. A thread that runs
        // does not run on this stack.
        unsafe {
            if let Some(owner) = (*shadow).owner.as_mut() {
                (*shadow).top = owner.top;
                compiler_fence(Ordering::SeqCst);
                (*shadow).owner = ptr::null_mut();
                compiler_fence(Ordering::SeqCst);
                owner.forget_stack();
            }
        }
    }

    /// Removes what is not on the stack any more, where there is reason to look: it is of an earlier time, or is above a
    /// call or return in this slot.
    fn tidy(&mut self, shadow: *mut Shadow, slot: usize) {
        // SAFETY: see above. The stack is run on in this slot, so there is memory in the same page.
        unsafe {
            // ORDERING: as in `settle`.
            let is_of_now = (*shadow).generation == GENERATION.load(Ordering::Relaxed);
            let is_there = |entry: &Entry| {
                let word = match entry.slot() >> 12 == slot >> 12 {
                    true => Some(*(entry.slot() as *const usize)),
                    false => sys::peek(entry.slot()),
                };
                // A handler may have come between the entry and the function, when the real address is still there. And it
                // may just return, when all addresses were put back behind its back.
                word == Some(entry.armed()) || word == Some(entry.real) && (is_of_now || entry.slot() == slot)
            };
            let older = (*shadow).entries().find(|entry| (**entry).slot() > slot && !(**entry).is_dead());
            if is_of_now && older.is_none_or(|entry| is_there(&*entry)) {
                return;
            }
            let mut kept = (*shadow).base;
            let mut at = kept.wrapping_add(1);
            while at <= (*shadow).top {
                // What was called at an earlier time, and hooked at the last moment, returns unseen, unless it just does.
                let is_over = !is_of_now && (*at).slot() != slot;
                if is_over && !(*at).is_dead() {
                    sys::replace((*at).slot(), (*at).armed(), (*at).real);
                }
                if !(*at).is_dead() && !is_over && is_there(&*at) {
                    kept = kept.wrapping_add(1);
                    *kept = *at;
                }
                at = at.wrapping_add(1);
            }
            (*shadow).top = kept;
        }
    }

    /// The stack that holds this slot, as the process's map has it.
    fn find_in_map(&mut self, thread: &mut Thread, slot: usize) -> Option<*mut Shadow> {
        let Some(stack::Mapped { low, mut high, is_main, is_guarded }) = stack::around(slot, thread.scratch()) else {
            // The map cannot be read. Not every call tries that again. ORDERING: as in `is_unknown`.
            thread.unknown = (stack::near(slot), LEARNED.load(Ordering::Relaxed), LOOK_AGAIN);
            return None;
        };
        let own_end = local::thread_pointer();
        let place = match (is_main && sys::is_main_thread(), (slot..high).contains(&own_end), is_guarded) {
            (true, ..) => Place::Main,
            (_, true, true) => Place::Own,
            // Stacks that a program gives to its threads may lie side by side.
            (_, true, false) => Place::Mapped,
            (_, false, true) if high - low <= MOST_STACK_BYTES => Place::Mapped,
            // Whatever lies in it that somebody runs on, there may be more of the same: nobody can tell.
            _ => {
                // ORDERING: as in `is_unknown`.
                thread.unknown = (self.told.beside(low..high, slot), LEARNED.load(Ordering::Relaxed), LOOK_AGAIN);
                return None;
            }
        };
        if place == Place::Own {
            high = own_end;
        }
        let free = self.mapped.beside(low..high, slot);
        let shadow = self.make(free.start.next_multiple_of(8), free.end & !7, place)?;
        self.mapped.insert(shadow);
        Some(shadow)
    }

    fn learn(&mut self, low: usize, high: usize) {
        // ORDERING: as in `is_unknown`.
        LEARNED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: see above. What is on a stack that lay there before is gone; nobody runs on it.
        unsafe {
            while let Some(before) = self.told.last_at(high - 1).filter(|before| (**before).end() > low) {
                self.take_from_owner(before);
                // The new one may be an array on the other, or the other may be long gone, and its place on a stack.
                for entry in (*before).entries() {
                    self.suspend(before, entry);
                }
                self.remove(before);
            }
            let mut next = self.mapped.last_at(high - 1);
            while let Some(around) = next.filter(|around| (**around).end() > low) {
                next = (*around).low.checked_sub(1).and_then(|below| self.mapped.last_at(below));
                for entry in (*around).entries().filter(|entry| (low..high).contains(&(**entry).slot())) {
                    self.suspend(around, entry);
                }
                if let Some(owner) = (*around).owner.as_mut() {
                    // It finds out at its next event which part of it is left.
                    (&raw mut owner.size).write_volatile(0);
                }
            }
        }
        if let Some(shadow) = self.make(low, high, Place::Told) {
            self.told.insert(shadow);
        }
    }

    fn take(&mut self, slot: usize) -> Option<Suspended> {
        let shadow = self.told.find(slot).or_else(|| self.mapped.find(slot));
        shadow.and_then(|shadow| take_from(shadow, slot)).or_else(|| self.limbo.take(slot))
    }
}
