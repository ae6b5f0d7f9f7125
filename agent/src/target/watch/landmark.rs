//! Places in the runtimes' libraries. The outside looks them up when it hooks a library, before any of its hooks is
//! in place.

use core::{
    mem,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::{
    shared::Landmark,
    target::{
        local::{IGNORED, Local},
        thread::Thread,
    },
};

static PLACES: [Place; Landmark::ALL.len()] =
    [const { Place { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; Landmark::ALL.len()];

struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Learns where a landmark is.
pub(in crate::target) fn learn(landmark: usize, start: usize, end: usize) {
    if let Some(place) = PLACES.get(landmark) {
        // ORDERING: nothing looks at it before hooks are in place, for which the outside stops all threads.
        place.end.store(end, Ordering::Relaxed);
        place.start.store(start, Ordering::Relaxed);
    }
}

/// Whether an address is in a library.
pub(super) fn is_in(library: Landmark, address: usize) -> bool {
    let place = &PLACES[library as usize];
    // ORDERING: as in `learn`.
    (place.start.load(Ordering::Relaxed)..place.end.load(Ordering::Relaxed)).contains(&address)
}

/// The label of a queue: the address of a string, or 0.
///
/// # Safety
///
/// It is a queue.
pub(super) unsafe fn queue_label(queue: u64) -> usize {
    // SAFETY: promised by the caller.
    unsafe { call(Landmark::QueueLabel, queue) }.unwrap_or(0) as usize
}

/// The task that this thread is running: its address, or 0.
pub(super) fn current_task() -> u64 {
    // SAFETY: it may be called at any time.
    unsafe { call(Landmark::CurrentTask, 0) }.unwrap_or(0)
}

/// The id of a job.
///
/// # Safety
///
/// It is a job.
pub(super) unsafe fn task_id(job: u64) -> Option<u64> {
    // SAFETY: promised by the caller.
    unsafe { call(Landmark::TaskId, job) }
}

/// Calls a function of a runtime, which may be hooked itself: the thread is busy, so that it is passed through.
///
/// # Safety
///
/// The function may be called with this argument.
unsafe fn call(function: Landmark, argument: u64) -> Option<u64> {
    // ORDERING: as in `learn`.
    let address = PLACES[function as usize].start.load(Ordering::Relaxed);
    if address == 0 {
        return None;
    }
    // SAFETY: the outside has looked it up by its name, and all of them take at most a pointer and return a word.
    let function: extern "C" fn(u64) -> u64 = unsafe { mem::transmute(address) };
    set_asks(true);
    let answer = function(argument);
    set_asks(false);
    Some(answer)
}

/// Says whether this thread is in a call of ours to a function of the program.
pub(in crate::target) fn set_asks(asks: bool) {
    if let Some(state) = Local::find().map(|local| local.state).filter(|state| *state > IGNORED) {
        // SAFETY: it is a state that belongs to this thread alone, never unmapped; a field that may change at any moment.
        let own = unsafe { AtomicBool::from_ptr(&raw mut (*(state as *mut Thread)).asks) };
        // ORDERING: only this thread looks at it.
        own.store(asks, Ordering::Relaxed);
    }
}

/// Whether a thread is. Whoever is called meanwhile finds it busy.
pub(in crate::target) fn asks(thread: &mut Thread) -> bool {
    // SAFETY: a field of the thread's own, which may change at any moment.
    unsafe { AtomicBool::from_ptr(&raw mut thread.asks) }.load(Ordering::Relaxed)
}
