//! What a thread runs that the outside has borrowed: one function of this library, on a stack of its own. Then it waits for
//! the outside to make it again what it was. Where the outside was killed meanwhile, it does that by itself.

use core::{
    arch::naked_asm,
    cell::UnsafeCell,
    hint,
    sync::atomic::{AtomicU64, Ordering},
};

use super::sys;
use crate::shared::{
    BORROWED_FRAME_BYTES, BORROWED_GONE_BACK, BORROWED_LEAVES, BORROWED_NOBODY, BORROWED_STACK_BYTES, FRAME_EXTENDED,
    FRAME_REGISTERS,
};

/// A thread pointer for a thread that has none: before the C library has set one up.
#[unsafe(no_mangle)]
static SPOOR_THREAD_POINTER: ThreadPointer = ThreadPointer { this: &raw const SPOOR_THREAD_POINTER, _rest: [0; 31] };

#[repr(C, align(64))]
struct ThreadPointer {
    this: *const Self,
    _rest: [usize; 31],
}

// SAFETY: nobody writes to it but the thread that has it.
unsafe impl Sync for ThreadPointer {}

/// The stack of a borrowed thread: there is one at a time.
#[unsafe(no_mangle)]
static SPOOR_BORROWED_STACK: Stack = Stack(UnsafeCell::new([0; BORROWED_STACK_BYTES]));

#[repr(C, align(64))]
struct Stack(UnsafeCell<[u8; BORROWED_STACK_BYTES]>);

// SAFETY: it is the borrowed thread's.
unsafe impl Sync for Stack {}

/// Whether the function runs (0) or has returned (1), or the thread goes back since (`BORROWED_GONE_BACK`, `BORROWED_LEAVES`), or nobody
/// is borrowed (`BORROWED_NOBODY`); and what it returned, or which thread leaves.
#[unsafe(no_mangle)]
static SPOOR_BORROWED_RESULT: [AtomicU64; 2] = [AtomicU64::new(BORROWED_NOBODY), AtomicU64::new(0)];

/// What the thread was. The outside writes it.
#[unsafe(no_mangle)]
static SPOOR_BORROWED_FRAME: Frame = Frame(UnsafeCell::new([0; BORROWED_FRAME_BYTES]));

#[repr(C, align(64))]
struct Frame(UnsafeCell<[u8; BORROWED_FRAME_BYTES]>);

// SAFETY: as above.
unsafe impl Sync for Frame {}

/// How long an outside that lives may take to come back to a thread.
const PATIENCE_MS: u64 = 2000;

/// Waits for the outside, in a thread that has done what it was borrowed for.
extern "C" fn wait() {
    let since = sys::milliseconds();
    while sys::milliseconds() - since < PATIENCE_MS {
        (0..1000).for_each(|_| hint::spin_loop());
    }
    // ORDERING: the outside looks at it while this thread stands still.
    SPOOR_BORROWED_RESULT[0].store(BORROWED_GONE_BACK, Ordering::Relaxed);
    // SAFETY: its first word is written for this.
    sys::set_signals(unsafe { SPOOR_BORROWED_FRAME.0.get().cast::<u64>().read() });
    // What came meanwhile has been handled.
    SPOOR_BORROWED_RESULT[1].store(u64::from(sys::gettid()), Ordering::Relaxed);
    // ORDERING: for who it is.
    SPOOR_BORROWED_RESULT[0].store(BORROWED_LEAVES, Ordering::Release);
}

/// Calls the function whose address is in r12, with the arguments that are where they belong.
///
/// # Safety
///
/// The outside has a thread begin here that it will make again what it was.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn spoor_borrowed() {
    naked_asm!(
        "call r12",
        "mov rcx, [rip + {result}@GOTPCREL]",
        "mov [rcx + 8], rax",
        "mov qword ptr [rcx], 1",
        "call {wait}",
        "mov rcx, [rip + {frame}@GOTPCREL]",
        "mov eax, [rcx + 8]",
        "mov edx, [rcx + 12]",
        "xrstor64 [rcx + {extended}]",
        "lea rsp, [rcx + {registers}]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rax",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "iretq",
        result = sym SPOOR_BORROWED_RESULT,
        frame = sym SPOOR_BORROWED_FRAME,
        wait = sym wait,
        extended = const FRAME_EXTENDED,
        registers = const FRAME_REGISTERS,
    );
}
