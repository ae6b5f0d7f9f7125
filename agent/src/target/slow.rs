//! Enter and leave for everything uncommon.

use core::{
    ptr,
    sync::atomic::{AtomicUsize, Ordering, compiler_fence},
};

use super::{
    follow, mailbox, open,
    shadow::{Entry, Header},
    stacks::{self, Suspended},
    sys,
    thread::Thread,
    unwind, watch,
};
use crate::shared::{Kind, Level, MAX_RECORD_WORDS, header, tsc};

/// How a function is hooked, as its stub says.
const PROBE: u32 = 1;
const UNWINDER: u32 = 2;
const WATCHED: u32 = 3;

/// From where enter returns to when the return is hooked, to where it returns to when it is not.
const PASS: usize = 16;

/// What enter has saved, from the lowest address up.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entered {
    pub(super) rbp: u64,
    _r11: u64,
    _r10: u64,
    pub(super) r9: u64,
    pub(super) r8: u64,
    pub(super) rdi: u64,
    pub(super) rsi: u64,
    pub(super) rdx: u64,
    pub(super) rcx: u64,
    _flags: u64,
    pub(super) rax: u64,
    /// The place in the stub that enter returns to.
    pub(super) stub: usize,
    /// The function's return address.
    pub(super) real: usize,
}

/// What leave has saved, from the lowest address up.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Left {
    pub(super) rbp: u64,
    _r11: u64,
    _r10: u64,
    _r9: u64,
    _r8: u64,
    _rdi: u64,
    _rsi: u64,
    pub(super) rdx: u64,
    _rcx: u64,
    _flags: u64,
    pub(super) rax: u64,
    /// Where the function's return address was, and must be again.
    pub(super) slot: usize,
}

/// Called by enter, with what it saved, and r13.
pub(super) extern "C" fn enter(entered: &mut Entered, kind: u32, r13: u64) {
    if kind == WATCHED && watch::is_loaders(entered.stub) {
        mailbox::modules_changed();
        entered.stub += PASS;
        return;
    }
    let hooked = Thread::current().is_some_and(|thread| enter_on(thread, entered, kind, r13));
    if kind == WATCHED
        && let Some(program) = follow::program(entered.stub, [entered.rdi, entered.rsi])
    {
        follow::before_program(program);
    }
    if !hooked {
        // Other threads may not have seen yet that they are deserted, and this one unwinds what they have left.
        if kind == UNWINDER && Thread::is_deserted() {
            stacks::restore_everywhere();
        }
        entered.stub += PASS;
    }
}

/// Whether the return is to be hooked.
fn enter_on(thread: &mut Thread, entered: &mut Entered, kind: u32, r13: u64) -> bool {
    let slot = &raw const entered.real as usize;
    unwind::put_aside(thread, slot);
    if !begin(thread, slot) {
        // What an unwinder calls is its own business, and what we call is ours.
        if !thread.restored && !watch::landmark::asks(thread) {
            // ORDERING: a count.
            thread.writer().head().interrupted.fetch_add(1, Ordering::Relaxed);
        }
        unwind::restore_around(thread, slot, kind == UNWINDER);
        return false;
    }
    thread.notes.error = r13;
    if thread.restored {
        unwind::rearm(thread, slot);
    }
    let selected = thread.select(slot);
    match selected {
        true => {
            stacks::settle(thread, slot);
            if unwind::take_up(thread, slot) {
                unwind::restore_around(thread, slot, kind == UNWINDER);
                return false;
            }
        }
        false => {
            // ORDERING: a count.
            thread.writer().head().unplaced.fetch_add(1, Ordering::Relaxed);
            if kind == UNWINDER {
                stacks::restore_above(thread, slot);
            }
        }
    }
    let hooked = selected && record_entry(thread, entered, slot, kind);
    // Everything below an unwinder is passed through until it is done.
    if !thread.restored {
        set_busy(thread, 0);
    }
    hooked
}

/// Called by enter for a function of Go, with what it saved, and with the place of its return address. That is not looked at
/// again: goroutines change stacks and threads.
pub(super) extern "C" fn enter_go(entered: &Entered, slot: usize) {
    let Some(thread) = Thread::current() else { return };
    if !begin(thread, slot) {
        // ORDERING: a count.
        thread.writer().head().interrupted.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: every function has a return address on top of the stack at its entry.
    let real = unsafe { *(slot as *const usize) };
    let entry = Entry::new(slot, real, entered.stub, tsc::now(), false);
    let arguments = [entered.rdi, entered.rsi, entered.rdx, entered.rcx, entered.r8, entered.r9];
    call(thread, &entry, arguments, entered.rbp, thread.entry_count());
    set_busy(thread, 0);
    follow::go(thread, entry.header(), entered.rax);
}

/// Says that a call or return is being recorded. Not where it is made in the middle of the recording of another.
fn begin(thread: &mut Thread, slot: usize) -> bool {
    // SAFETY: a field of the thread's own, which a handler may change at any moment.
    let busy = unsafe { AtomicUsize::from_ptr(&raw mut thread.busy) };
    // ORDERING: only this thread looks at it.
    match busy.compare_exchange(0, slot, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {}
        // At or above the call that was being recorded, that call is over: a handler has jumped out of it, or the
        // unwinder that was called there is done.
        Err(before) if [before, slot].iter().all(|slot| thread.stack.contains(slot)) && slot >= before => {
            busy.store(slot, Ordering::Relaxed);
            watch::landmark::set_asks(false);
        }
        Err(_) => return false,
    }
    compiler_fence(Ordering::SeqCst);
    true
}

fn record_entry(thread: &mut Thread, entered: &mut Entered, slot: usize, kind: u32) -> bool {
    reap(thread, slot);
    let stub = entered.stub;
    let arguments = [entered.rdi, entered.rsi, entered.rdx, entered.rcx, entered.r8, entered.r9];
    let mut real = entered.real;
    let hooked = kind != PROBE && kind != UNWINDER;
    let (mut before, mut inherits) = (None, false);
    // What has the same slot as the function entered last was jumped to by it, unless that is gone.
    if let Some(entry) = thread.youngest().copied().filter(|entry| entry.slot() == slot) {
        if entered.real == entry.armed() && entry.stub == stub && entry.header().loops != 0 {
            // It has jumped to its own start: that is a loop, and no call.
            return false;
        } else if entered.real == entry.armed() {
            real = entry.real;
            entered.real = real;
            before = Some(entry);
            inherits = entry.is_slow() && watch::tail_called(thread, &entry, hooked, tsc::now());
        } else {
            unwound(thread, &entry);
        }
        thread.pop();
    }
    let time = tsc::now();
    let entry = Entry::new(slot, real, stub, time, kind == WATCHED || inherits);
    if kind == UNWINDER {
        unwind::restore(thread, slot);
    } else if hooked && !thread.push(entry) {
        let too_deep = &thread.writer().head().too_deep;
        // ORDERING: only this thread writes it.
        too_deep.store(too_deep.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        return false;
    }
    let depth = if hooked { thread.depth() } else { thread.entry_count() };
    call(thread, &entry, arguments, entered.rbp, depth);
    turn_down(thread, entry.header());
    if entry.header().watch() != 0 || thread.awaiting_routine > 0 || thread.notes.is_seeking() {
        watch::entered(thread, arguments, &entry, before);
    }
    hooked
}

/// Records a call.
pub(super) fn call(thread: &mut Thread, entry: &Entry, arguments: [u64; 6], frame_pointer: u64, depth: u32) {
    let time = entry.entered;
    let word = entry.header().record + (u64::from(depth) << 16);
    if !thread.writer().detail {
        thread.writer().event(&[time, word]);
        return;
    }
    let mut record = [0_u64; MAX_RECORD_WORDS];
    record[..2].copy_from_slice(&[time, word]);
    record[2..8].copy_from_slice(&arguments);
    record[8..11].copy_from_slice(&[entry.real as u64, frame_pointer, entry.slot() as u64]);
    let words = window(thread, entry, &mut record[11..]);
    record[1] += (11 + words as u64) << 8;
    thread.writer().event(&record[..11 + words]);
}

/// Copies the stack from an entry's slot upward, with the return addresses that the program would read.
fn window(thread: &mut Thread, entry: &Entry, into: &mut [u64]) -> usize {
    let slot = entry.slot();
    // Of a goroutine's stack nobody knows the end.
    let left = (thread.low + thread.size).checked_sub(slot).filter(|left| *left <= thread.size).unwrap_or_default();
    let words = (thread.writer().window.min(left) / 8).min(into.len());
    for (place, word) in into.iter_mut().take(words).enumerate() {
        // SAFETY: from a slot that is in use up to the end of its stack at most.
        *word = unsafe { *(slot as *const u64).add(place) };
    }
    if let Some(first) = into.first_mut().filter(|_| words > 0) {
        *first = entry.real as u64;
    }
    for older in thread.entries() {
        let Some(place) = into[..words].get_mut(older.slot().wrapping_sub(slot) / 8) else { break };
        *place = older.real as u64;
    }
    words
}

/// Called by leave, with what it saved.
pub(super) extern "C" fn leave(left: &mut Left) {
    let slot = &raw const left.slot as usize;
    let entry = match Thread::even_after_fork() {
        Some(thread) => leave_on(thread, left, slot),
        None => stacks::take_anywhere(slot).map(|suspended| suspended.entry),
    };
    left.slot = entry.map(|entry| entry.real).or_else(|| put_back(slot)).unwrap_or_else(|| lost());
}

/// Where a function returns to that is in no table any more: another thread, which unwinds what lies beside, has put its return
/// address back while it was on its way here.
fn put_back(slot: usize) -> Option<usize> {
    sys::peek(slot).filter(|word| !Entry::is_armed(*word))
}

/// The entry of the function that returns.
fn leave_on(thread: &mut Thread, left: &Left, slot: usize) -> Option<Entry> {
    unwind::put_aside(thread, slot);
    if !thread.writer().is_open() {
        // A forked child.
        let own = thread.entries().find(|entry| entry.slot() == slot);
        return own.or_else(|| stacks::find_in_child(slot));
    }
    if !begin(thread, slot) {
        // A handler has left the recording of another call in the middle, and goes on elsewhere.
        // ORDERING: a count.
        thread.writer().head().interrupted.fetch_add(1, Ordering::Relaxed);
        return stacks::take_anywhere(slot).map(|suspended| suspended.entry);
    }
    let entry = record_return(thread, left, slot);
    set_busy(thread, 0);
    entry
}

/// Takes out the entry of the function that returns, and records that it does.
fn record_return(thread: &mut Thread, left: &Left, slot: usize) -> Option<Entry> {
    if thread.select(slot) {
        let mut up_to_here = thread.entries().take_while(|entry| entry.slot() <= slot);
        let is_here = up_to_here.any(|entry| entry.slot() == slot && !entry.is_dead());
        if let Some(kept) = if is_here { None } else { stacks::take(slot) } {
            return Some(resumed(thread, kept, left, slot));
        }
        let own = if thread.is_alone() { returned_from(thread, slot) } else { slot };
        reap(thread, own);
        if let Some(entry) = thread.youngest().copied().filter(|entry| entry.slot() == own) {
            return_(thread, &entry, thread.depth(), left, slot);
            turn_down(thread, entry.header());
            thread.pop();
            return Some(entry);
        }
    }
    Some(resumed(thread, stacks::take_anywhere(slot)?, left, slot))
}

/// Records the return of a function that was not where it was looked for, unless it was told to be gone.
fn resumed(thread: &mut Thread, suspended: Suspended, left: &Left, slot: usize) -> Entry {
    let Suspended { entry, depth, is_told } = suspended;
    if !is_told {
        return_(thread, &entry, depth, left, slot);
    }
    entry
}

/// The slot of the function that returns. It is right below the stack pointer, except by calling conventions in which
/// a function takes its arguments off the stack, as Swift's asynchronous functions do: then it is a little further down.
fn returned_from(thread: &Thread, slot: usize) -> usize {
    const MOST_ARGUMENTS: usize = 256;
    let mut nearest = None;
    for entry in thread.entries().filter(|entry| !entry.is_dead()) {
        if entry.slot() >= slot {
            return if entry.slot() == slot { slot } else { nearest.unwrap_or(slot) };
        }
        nearest = Some(entry.slot()).filter(|below| slot - below <= MOST_ARGUMENTS);
    }
    nearest.unwrap_or(slot)
}

/// Records a return.
fn return_(thread: &mut Thread, entry: &Entry, depth: u32, left: &Left, slot: usize) {
    let time = tsc::now();
    if !thread.writer().is_open() {
        return;
    }
    if entry.is_slow() {
        watch::left(thread, entry, left.rax, time);
    }
    let function = function(entry.header());
    if thread.writer().detail {
        let word = header(Kind::Return, 8, depth, function);
        let (real, rsp) = (entry.real as u64, slot as u64 + 8);
        thread.writer().event(&[time, word, entry.entered, left.rax, left.rdx, real, left.rbp, rsp]);
    } else {
        thread.writer().event(&[time, header(Kind::Return, 3, depth, function), entry.entered]);
    }
}

/// Has a function be counted from here on, if that which was recorded last was too much: one that is called often is likely
/// the one at hand. Nothing changes for calls of it that are not over.
fn turn_down(thread: &mut Thread, header: &'static Header) {
    if !thread.writer().is_open() || !thread.writer().turns_down() || header.watch() != 0 {
        return;
    }
    let (number, at) = (function(header), ptr::from_ref(header) as u64);
    let [full, counted] = [Level::Full, Level::Counted].map(|level| level.slot(at) as usize);
    // What has no gate has nothing there, and what must stay full something else.
    // ORDERING: the code that it leads to has been there before the function could be called.
    let exchange = |slot: &AtomicUsize| slot.compare_exchange(full, counted, Ordering::Relaxed, Ordering::Relaxed);
    if open::slot(number).is_some_and(|slot| exchange(slot).is_ok()) {
        let word = crate::shared::header(Kind::Level, 3, Level::Counted as u32, number);
        thread.writer().put(&[tsc::now(), word, 0]);
    }
}

/// Takes off the shadow stack what is below this slot: those frames are gone, or seem to be.
fn reap(thread: &mut Thread, slot: usize) {
    while let Some(entry) = thread.youngest().copied()
        && (entry.slot() < slot || entry.is_dead())
    {
        if !entry.is_dead() {
            // Where several stacks may lie, it is only told when something else is in its place. Elsewhere it is told at
            // once, and kept in case that was wrong.
            let is_alone = thread.is_alone();
            if !stacks::suspend(&entry, thread.depth(), is_alone) || is_alone {
                unwound(thread, &entry);
            }
        }
        thread.pop();
    }
}

/// Records that the youngest function was left without returning.
pub(super) fn unwound(thread: &mut Thread, entry: &Entry) {
    let (time, depth) = (tsc::now(), thread.depth());
    if !thread.writer().is_open() {
        return;
    }
    if entry.is_slow() {
        watch::unwound(thread, entry, time);
    }
    let word = header(Kind::Exception, 3, depth, function(entry.header()));
    thread.writer().event(&[time, word, entry.entered]);
}

/// The number of the function that a header belongs to.
pub(super) fn function(header: &Header) -> u32 {
    (header.record >> 40) as u32
}

pub(super) fn set_busy(thread: &mut Thread, slot: usize) {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: a field of our own; a handler must see it before, or after, what comes next.
    unsafe { ptr::write_volatile(&raw mut thread.busy, slot) };
    compiler_fence(Ordering::SeqCst);
}

/// A function returns, and nobody knows where to. There is no way to go on.
#[cold]
fn lost() -> ! {
    end_with(b"spoor: a traced function returned on a stack that it was not called on; cannot go on\n")
}

/// Ends the process, with a message.
#[cold]
pub(super) fn end_with(message: &[u8]) -> ! {
    const WRITE: usize = 1;
    const KILL: usize = 62;
    const SIGABRT: usize = 6;
    loop {
        // SAFETY: it writes a message to stderr and ends the process.
        unsafe {
            sys::call(WRITE, [2, message.as_ptr() as usize, message.len(), 0, 0, 0]);
            sys::call(KILL, [sys::getpid() as usize, SIGABRT, 0, 0, 0, 0]);
            sys::call(KILL, [sys::getpid() as usize, 9, 0, 0, 0, 0]);
        }
    }
}
