//! Functions that Frida's own hooks take, since the rules leave them: Frida has patched them for itself already.
//!
//! Only their calls are recorded. What Gum does to see a return would meet what we do.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use super::{
    shadow::{Entry, FROM_HEADER},
    slow,
    thread::Thread,
};
use crate::shared::tsc;

/// Gum's function that tells what a hook was given when it was made: for us, the address of a header.
pub(super) type DataOf = extern "C" fn(*mut Context) -> *mut c_void;

static DATA_OF: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

pub(super) fn prepare(data_of: DataOf) {
    // ORDERING: before any hook is made.
    DATA_OF.store(data_of as *mut c_void, Ordering::Release);
}

/// Gum's description of a call, as far as it is used here.
#[repr(C)]
pub(super) struct Context {
    _function: *mut c_void,
    registers: *const Registers,
}

/// The registers of x86_64 as Gum saves them.
#[repr(C)]
struct Registers {
    _rip: u64,
    _r15_to_r10: [u64; 6],
    r9: u64,
    r8: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rsp: u64,
    _rbx: u64,
    rdx: u64,
    rcx: u64,
    _rax: u64,
}

/// Called by Gum when such a function is entered.
///
/// # Safety
///
/// Gum calls it, with its description of the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn spoor_gum_enter(context: *mut Context) {
    let data_of = DATA_OF.load(Ordering::Acquire);
    let Some(thread) = Thread::current().filter(|thread| thread.busy == 0 && !data_of.is_null()) else { return };
    // SAFETY: it is that function, handed over by Gum's own side.
    let data_of: DataOf = unsafe { core::mem::transmute(data_of) };
    let header = data_of(context) as usize;
    // SAFETY: Gum passes what it has saved.
    let registers = unsafe { &*(*context).registers };
    let slot = registers.rsp as usize;
    thread.busy = slot;
    if header != 0 && thread.select(slot) {
        // SAFETY: at entry the stack pointer points to the return address.
        let real = unsafe { *(slot as *const usize) };
        let time = tsc::now();
        let entry = Entry::new(slot, real, header + FROM_HEADER, time, false);
        let depth = thread.entry_count();
        let Registers { rdi, rsi, rdx, rcx, r8, r9, rbp, .. } = *registers;
        slow::call(thread, &entry, [rdi, rsi, rdx, rcx, r8, r9], rbp, depth);
    }
    thread.busy = 0;
}
