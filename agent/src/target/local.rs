//! What a thread is known by: `gs` points to it.
//!
//! The library has no thread-local storage of its own, since no loader may have loaded it. Programs do not use `gs`, and a
//! new thread inherits it from the one that starts it. So there is always something there, and it is the thread's own if
//! the thread pointer in it is.

use core::{
    arch::asm,
    ptr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::sys;
use crate::shared::{LOCAL_POINTER, LOCAL_STATE, LOCAL_THIS};

/// What `gs` points to. `routines` knows the layout.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Local {
    /// The state of the thread; 0 for a new one, or [`IGNORED`].
    pub(super) state: usize,
    /// The thread pointer of the thread that this is of. 0 for nobody.
    pub(super) pointer: AtomicUsize,
    /// Where this is.
    this: *mut Local,
    /// After a fork, or when nobody reads what it records any more: the state that it had.
    pub(super) former: usize,
    /// Its id with the system.
    pub(super) tid: u32,
}

const _: () = {
    assert!(core::mem::offset_of!(Local, this) == LOCAL_THIS);
    assert!(core::mem::offset_of!(Local, state) == LOCAL_STATE);
    assert!(core::mem::offset_of!(Local, pointer) == LOCAL_POINTER);
};

/// In place of a state: the thread is not traced.
pub(super) const IGNORED: usize = 1;

/// Whether `gs` can be written without asking the system.
static IS_WRITABLE: AtomicBool = AtomicBool::new(false);

/// That of threads that have called nothing yet. The outside points their `gs` here.
static NOBODY: Shared = Shared(Local { this: (&raw const NOBODY.0).cast_mut(), ..Local::nobody() });

/// Those of threads that have no state.
static STATELESS: [Shared; 4096] = [const { Shared(Local::nobody()) }; 4096];

#[repr(transparent)]
struct Shared(Local);

// SAFETY: the first is never written to; of the others each belongs to the thread whose pointer is in it.
unsafe impl Sync for Shared {}

impl Local {
    const fn nobody() -> Self {
        Self { state: 0, pointer: AtomicUsize::new(0), this: ptr::null_mut(), former: 0, tid: 0 }
    }

    /// The calling thread's, if it has one.
    pub(super) fn find() -> Option<&'static mut Self> {
        let this: *mut Self;
        // SAFETY: the outside has seen to it that there is something in every thread.
        unsafe {
            asm!("mov {}, gs:[{at}]", out(reg) this, at = const LOCAL_THIS,
                options(nostack, readonly, preserves_flags));
        }
        // SAFETY: it belongs to this thread if its thread pointer is in it. Nobody's has none.
        let local = unsafe { this.as_mut() }?;
        let pointer = thread_pointer();
        // ORDERING: what a thread has written itself.
        let found = local.pointer.load(Ordering::Relaxed);
        // A thread that was there before the C library has set it up has another thread pointer since.
        if found != pointer && found != 0 && local.tid == sys::gettid() {
            local.pointer.store(pointer, Ordering::Relaxed);
            return Some(local);
        }
        (found == pointer).then_some(local)
    }

    /// The calling thread's, made if there is none. `None` where there are too many.
    pub(super) fn find_or_make() -> Option<&'static mut Self> {
        if let Some(local) = Self::find() {
            return Some(local);
        }
        let pointer = thread_pointer();
        // ORDERING: whoever gets it writes all of it.
        let take = |local: &Self, before: usize| {
            local.pointer.compare_exchange(before, pointer, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let is_free = |local: &Self| local.pointer.load(Ordering::Relaxed) == 0 && take(local, 0);
        let is_left = |local: &Self| {
            let before = local.pointer.load(Ordering::Relaxed);
            // SAFETY: a number, which its thread wrote when it got it.
            let tid = unsafe { (&raw const local.tid).read_volatile() };
            tid != 0 && sys::is_gone(tid) && take(local, before)
        };
        let free = STATELESS.iter().find(|place| is_free(&place.0));
        let place = free.or_else(|| STATELESS.iter().find(|place| is_left(&place.0)))?;
        // SAFETY: it is this thread's from here on.
        let local = unsafe { &mut *(&raw const place.0).cast_mut() };
        local.become_own();
        Some(local)
    }

    /// Makes this the calling thread's, without a state.
    pub(super) fn become_own(&mut self) {
        (self.state, self.former, self.tid) = (0, 0, sys::gettid());
        self.this = self;
        // ORDERING: only this thread takes it for its own.
        self.pointer.store(thread_pointer(), Ordering::Relaxed);
        set_gs(ptr::from_mut(self) as usize);
    }

    /// Gives it to the next thread: its own has another.
    pub(super) fn give_up(&mut self) {
        self.tid = 0;
        // ORDERING: nothing in it is looked at any more.
        self.pointer.store(0, Ordering::Release);
    }
}

/// Where `gs` of threads points to that have called nothing yet.
pub(super) fn nobody() -> usize {
    ptr::from_ref(&NOBODY) as usize
}

/// The thread pointer, which is also the handle that pthread functions know the calling thread by.
pub(super) fn thread_pointer() -> usize {
    let own;
    // ORDERING: set before hooks were in place.
    if IS_WRITABLE.load(Ordering::Relaxed) {
        // SAFETY: the system has said that it may be read. In Go's threads it is not also where it points to.
        unsafe { asm!("rdfsbase {}", out(reg) own, options(nostack, nomem, preserves_flags)) };
        return own;
    }
    // SAFETY: the system's calling convention has the thread pointer's own value there.
    unsafe { asm!("mov {}, fs:[0]", out(reg) own, options(nostack, readonly, preserves_flags)) };
    own
}

const ARCH_PRCTL: usize = 158;

/// Says whether the processor and the system let programs write `gs`.
pub(super) fn prepare(is_writable: bool) {
    // ORDERING: before hooks are in place.
    IS_WRITABLE.store(is_writable, Ordering::Relaxed);
}

/// Sees to it that `gs` points somewhere: in a thread that comes from outside before the outside has looked at all of them.
pub(super) fn enter() {
    const GET_GS: usize = 0x1004;
    let mut there = 0_usize;
    // SAFETY: it writes one word.
    unsafe { sys::call(ARCH_PRCTL, [GET_GS, &raw mut there as usize, 0, 0, 0, 0]) };
    // What the program had there before, and does not mind in a thread that is not its own.
    if sys::peek(there + LOCAL_THIS) != Some(there) {
        set_gs(nobody());
    }
}

fn set_gs(at: usize) {
    const SET_GS: usize = 0x1001;
    // ORDERING: set before hooks were in place.
    if IS_WRITABLE.load(Ordering::Relaxed) {
        // SAFETY: it is not used by the program, and the system has said that it may be written.
        unsafe { asm!("wrgsbase {}", in(reg) at, options(nostack, nomem, preserves_flags)) };
    } else {
        // SAFETY: it is not used by the program.
        unsafe { sys::call(ARCH_PRCTL, [SET_GS, at, 0, 0, 0, 0]) };
    }
}
