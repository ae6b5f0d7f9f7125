//! Watching a function of the program, once a runtime was given it to be called.
//!
//! What a runtime calls is a function like any other, and hooked like any other. Its stub reads the address of the
//! routine that it calls from its own header, so that one word makes the hook of any function a watched one. That
//! needs no private function of the runtime: those have no names in a stripped library, may be as short as a single
//! jump, and differ from version to version.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::{
    shared::{BEFORE_CODE, CODE_START, GATE, GATE_START, Watched, pinned_slot},
    target::{open, routines, shadow::Header, slow, sys, thread},
};

/// How often to look whether another thread is done.
const PATIENCE: u32 = 10_000;

/// 1 while a thread makes headers writable.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Watches a function for what it is about to be called as. Whether it is watched now.
///
/// # Safety
///
/// The program has given the address to a runtime to be called.
pub(super) unsafe fn watch(function: usize, watched: Watched) {
    // SAFETY: promised by the caller.
    let header = unsafe { header_of(function) };
    // What is watched has to be entered, and stays so.
    if let Some(header) = header
        && let Some(slot) = open::slot(slow::function(header)).filter(|slot| slot.load(Ordering::Relaxed) != 0)
    {
        // ORDERING: whoever calls it from here on finds it; the code was there before.
        slot.store(pinned_slot(core::ptr::from_ref(header) as u64) as usize, Ordering::Relaxed);
    }
    let done = header.is_some_and(|header| header.watch() != 0 || write(header, watched));
    if !done && let Some(control) = thread::control() {
        // ORDERING: a count.
        control.unwatchable.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether a function is hooked.
///
/// # Safety
///
/// The address is that of a function.
pub(super) unsafe fn is_hooked(function: usize) -> bool {
    // SAFETY: promised by the caller.
    unsafe { header_of(function) }.is_some()
}

/// The header of the stub that a function jumps to.
///
/// # Safety
///
/// The address is that of a function.
unsafe fn header_of(function: usize) -> Option<&'static Header> {
    const ENDBR64: [u8; 4] = [0xF3, 0x0F, 0x1E, 0xFA];
    const JUMP: u8 = 0xE9;
    // SAFETY: every function has a byte, and what starts with one of these two has the rest of it.
    let code = unsafe {
        let is_endbr64 = *(function as *const u8) == ENDBR64[0] && *(function as *const [u8; 4]) == ENDBR64;
        let at = function + if is_endbr64 { 4 } else { 0 };
        if *(at as *const u8) != JUMP {
            return None;
        }
        let distance = ((at + 1) as *const i32).read_unaligned();
        (at + 5).wrapping_add_signed(distance as isize)
    };
    // SAFETY: where a jump leads there is code, at least one instruction; only ours goes on like this, and has a
    // header before it, or behind its gate, which is never unmapped.
    let header = unsafe {
        let matches =
            |code: usize, start: &[u8]| (0..start.len()).all(|place| *((code + place) as *const u8) == start[place]);
        let code = if matches(code, &GATE_START) { code + GATE + BEFORE_CODE } else { code };
        if !matches(code, &CODE_START) {
            return None;
        }
        &*((code - BEFORE_CODE) as *const Header)
    };
    (header.function == function).then_some(header)
}

/// Changes a header. The pages are only readable, so they are made writable for the moment.
fn write(header: &'static Header, watched: Watched) -> bool {
    let signals = sys::block_signals();
    let mut patience = PATIENCE;
    // ORDERING: one thread at a time, or one would take from another what it has just been given.
    while TURN.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        patience -= 1;
        if patience == 0 {
            sys::set_signals(signals);
            return false;
        }
        sys::yield_now();
    }
    let written = write_alone(header, watched);
    TURN.store(0, Ordering::Release);
    sys::set_signals(signals);
    written
}

fn write_alone(header: &'static Header, watched: Watched) -> bool {
    const READ_EXECUTE: usize = 5;
    const READ_WRITE_EXECUTE: usize = 7;
    let at = core::ptr::from_ref(header) as usize;
    let (start, end) = (at & !0xFFF, (at + size_of::<Header>()).next_multiple_of(4096));
    // SAFETY: pages of stubs, which other threads may be running: they stay executable.
    let protect = |protection| unsafe { sys::call(sys::MPROTECT, [start, end - start, protection, 0, 0, 0]) == 0 };
    if !protect(READ_WRITE_EXECUTE) {
        return false;
    }
    // ORDERING: who takes the new routine finds what for.
    header.watch.store(watched as u32 + 1, Ordering::Relaxed);
    let address = |routine: unsafe extern "C" fn()| routine as usize;
    let ordinary = [routines::spoor_enter_index, routines::spoor_enter_detail].map(address);
    // A probe looks at what it is watched for in any case.
    if ordinary.contains(&header.enter.load(Ordering::Relaxed)) {
        header.enter.store(address(routines::spoor_enter_watched), Ordering::Release);
    }
    protect(READ_EXECUTE);
    true
}
