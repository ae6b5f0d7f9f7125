//! System calls, without libc.

use core::arch::asm;

pub(super) const READ: usize = 0;
pub(super) const CLOSE: usize = 3;
pub(super) const MMAP: usize = 9;
pub(super) const MPROTECT: usize = 10;
pub(super) const MUNMAP: usize = 11;
pub(super) const RT_SIGPROCMASK: usize = 14;
pub(super) const MADVISE: usize = 28;
pub(super) const NANOSLEEP: usize = 35;
pub(super) const GETPID: usize = 39;
pub(super) const FTRUNCATE: usize = 77;
pub(super) const PRCTL: usize = 157;
pub(super) const GETTID: usize = 186;
pub(super) const FUTEX: usize = 202;
pub(super) const OPENAT: usize = 257;
pub(super) const MEMFD_CREATE: usize = 319;

/// Makes a system call. The result is what the kernel says: below 0 it is an error's number, negated.
///
/// # Safety
///
/// The kernel does whatever the call means, to any memory that the arguments point to.
#[inline(always)]
pub(super) unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: what the call does is the caller's business; the registers that the kernel changes are named.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// The id of the calling thread.
pub(super) fn gettid() -> u32 {
    // SAFETY: it touches no memory.
    unsafe { call(GETTID, [0; 6]) as u32 }
}

/// The id of the process.
pub(super) fn getpid() -> u32 {
    // SAFETY: it touches no memory.
    unsafe { call(GETPID, [0; 6]) as u32 }
}

/// Whether a thread of this process is gone.
pub(super) fn is_gone(tid: u32) -> bool {
    const TGKILL: usize = 234;
    const NO_SUCH_THREAD: isize = -3;
    // SAFETY: nothing is sent.
    unsafe { call(TGKILL, [getpid() as usize, tid as usize, 0, 0, 0, 0]) == NO_SUCH_THREAD }
}

/// Whether the calling thread is the one that the process began with.
pub(super) fn is_main_thread() -> bool {
    gettid() == getpid()
}

/// Maps fresh memory, private and readable and writable. It takes no memory until it is touched. `None` where there is
/// no room.
pub(super) fn map(bytes: usize) -> Option<*mut u8> {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x4022;
    // SAFETY: at an address of the kernel's choice, so no memory that anybody uses changes.
    let at = unsafe { call(MMAP, [0, bytes, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0]) };
    (at > 0).then_some(at as *mut u8)
}

/// Keeps these pages from being inherited: after a fork the child finds zeros there.
///
/// # Safety
///
/// The pages are the caller's own.
pub(super) unsafe fn wipe_on_fork(at: *mut u8, bytes: usize) -> bool {
    const WIPE_ON_FORK: usize = 18;
    // SAFETY: the caller's pages; nothing changes in this process.
    unsafe { call(MADVISE, [at as usize, bytes, WIPE_ON_FORK, 0, 0, 0]) == 0 }
}

/// Keeps these pages from being inherited, after a fork the child has nothing there, and out of a core file.
///
/// # Safety
///
/// The pages are the caller's own.
pub(super) unsafe fn keep_here(at: *mut u8, bytes: usize) {
    const DONT_FORK: usize = 10;
    const DONT_DUMP: usize = 16;
    for advice in [DONT_FORK, DONT_DUMP] {
        // SAFETY: the caller's pages; nothing changes in this process.
        unsafe { call(MADVISE, [at as usize, bytes, advice, 0, 0, 0]) };
    }
}

/// The word at an address, if there is memory.
pub(super) fn peek(address: usize) -> Option<usize> {
    const PROCESS_VM_READ: usize = 310;
    let mut word = 0_usize;
    let (local, remote) = ([&raw mut word as usize, 8], [address, 8]);
    let arguments = [getpid() as usize, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0];
    // SAFETY: it writes one word, and fails where there is nothing to read.
    (unsafe { call(PROCESS_VM_READ, arguments) } == 8).then_some(word)
}

/// Replaces the word at an address, if there is memory that may be written to, and if it is this one.
pub(super) fn replace(address: usize, old: usize, new: usize) {
    const PROCESS_VM_WRITE: usize = 311;
    if peek(address) == Some(old) {
        let (local, remote) = ([&raw const new as usize, 8], [address, 8]);
        let arguments = [getpid() as usize, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0];
        // SAFETY: it writes one word where the caller wants it, and fails where there is no memory.
        unsafe { call(PROCESS_VM_WRITE, arguments) };
    }
}

/// Opens a file to read. `path` ends with a zero byte.
pub(super) fn open(path: &[u8]) -> Option<usize> {
    const AT_FDCWD: usize = -100_isize as usize;
    const READ_CLOSE_ON_EXEC: usize = 0o2_000_000;
    debug_assert!(path.last() == Some(&0));
    // SAFETY: the path ends with a zero byte, and is only read.
    let descriptor = unsafe { call(OPENAT, [AT_FDCWD, path.as_ptr() as usize, READ_CLOSE_ON_EXEC, 0, 0, 0]) };
    usize::try_from(descriptor).ok()
}

/// Reads from a file. 0 at its end and on errors.
pub(super) fn read(descriptor: usize, buffer: &mut [u8]) -> usize {
    // SAFETY: the kernel writes at most as much as the buffer holds.
    let count = unsafe { call(READ, [descriptor, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
    usize::try_from(count).unwrap_or(0)
}

/// Closes a file.
pub(super) fn close(descriptor: usize) {
    // SAFETY: callers close only what they opened.
    unsafe { call(CLOSE, [descriptor, 0, 0, 0, 0, 0]) };
}

/// Blocks all signals in this thread. Returns those that were blocked before.
pub(super) fn block_signals() -> u64 {
    const BLOCK: usize = 0;
    let (all, mut before) = (u64::MAX, 0_u64);
    let (new, old) = (&raw const all as usize, &raw mut before as usize);
    // SAFETY: it reads one and writes the other, eight bytes each.
    unsafe { call(RT_SIGPROCMASK, [BLOCK, new, old, 8, 0, 0]) };
    before
}

/// Blocks just these signals in this thread.
pub(super) fn set_signals(blocked: u64) {
    const SET_MASK: usize = 2;
    // SAFETY: it reads eight bytes.
    unsafe { call(RT_SIGPROCMASK, [SET_MASK, &raw const blocked as usize, 0, 8, 0, 0]) };
}

/// The name of the calling thread, padded with zeros, as words.
pub(super) fn thread_name() -> [u64; 2] {
    const GET_NAME: usize = 16;
    let mut name = [0_u64; 2];
    // SAFETY: it writes 16 bytes.
    unsafe { call(PRCTL, [GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// Waits until somebody wakes those who wait on `word`, unless it does not hold `value`, or until the time is over.
pub(super) fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32, milliseconds: u64) {
    const WAIT: usize = 0;
    let timeout = [milliseconds / 1000, milliseconds % 1000 * 1_000_000];
    let arguments = [word.as_ptr() as usize, WAIT, value as usize, timeout.as_ptr() as usize, 0, 0];
    // SAFETY: it reads the word and the timeout.
    unsafe { call(FUTEX, arguments) };
}

/// Wakes those who wait on `word`, so many at most.
pub(super) fn futex_wake(word: &core::sync::atomic::AtomicU32, most: i32) {
    const WAKE: usize = 1;
    // SAFETY: the word is only used as an address.
    unsafe { call(FUTEX, [word.as_ptr() as usize, WAKE, most as usize, 0, 0, 0]) };
}

/// How long the calling thread has run, in nanoseconds.
pub(super) fn thread_nanoseconds() -> u64 {
    const CLOCK_GETTIME: usize = 228;
    const THREAD_TIME: usize = 3;
    let mut time = [0_u64; 2];
    // SAFETY: it writes two words.
    unsafe { call(CLOCK_GETTIME, [THREAD_TIME, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

/// Lets another thread run.
pub(super) fn yield_now() {
    const SCHED_YIELD: usize = 24;
    // SAFETY: it touches no memory.
    unsafe { call(SCHED_YIELD, [0; 6]) };
}

/// The time since some moment in the past.
pub(super) fn milliseconds() -> u64 {
    const CLOCK_GETTIME: usize = 228;
    const MONOTONIC: usize = 1;
    let mut time = [0_u64; 2];
    // SAFETY: it writes the time.
    unsafe { call(CLOCK_GETTIME, [MONOTONIC, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] * 1000 + time[1] / 1_000_000
}

/// Does nothing for a while.
pub(super) fn sleep_microseconds(microseconds: u64) {
    let time = [microseconds / 1_000_000, microseconds % 1_000_000 * 1000];
    // SAFETY: it reads the time.
    unsafe { call(NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}
