//! What the outside calls, through Frida.

use core::{
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{gum, local, mailbox, routines, sys, thread};
use crate::shared::{
    CONTROL_BYTES, Command, Control, FLAG_FOLLOW_FORKS, FLAG_WRITE_GS, HEAD_BYTES, MAGIC, MOST_SLOTS, SLOT_BYTES,
    Shape, Subject, VERSION,
};

/// Makes the memory that is shared with the outside: this many rings of this size, for calls with this much stack.
/// Returns its descriptor, which the outside opens for itself and then has closed, or an error's number, negated.
#[unsafe(no_mangle)]
pub(super) extern "C" fn spoor_open(ring_bytes: u64, rings: u64, stack_bytes: u32, flags: u32) -> i64 {
    thread::untraced(|| open(ring_bytes as usize, rings as usize, stack_bytes, flags))
}

/// The same for a thread that is not traced.
pub(super) fn open(ring_bytes: usize, rings: usize, stack_bytes: u32, flags: u32) -> i64 {
    make(ring_bytes, rings, stack_bytes, flags).unwrap_or_else(|error| error)
}

fn make(ring_bytes: usize, rings: usize, stack_bytes: u32, flags: u32) -> Result<i64, i64> {
    const INVALID: i64 = -22;
    const CLOSE_ON_EXEC: usize = 1;
    let shape = Shape { ring_bytes, rings: rings.min(thread::MOST_THREADS) };
    let sane =
        ring_bytes.is_power_of_two() && ring_bytes >= HEAD_BYTES && stack_bytes <= 512 && stack_bytes.is_multiple_of(8);
    let bytes = shape.bytes().filter(|_| sane).ok_or(INVALID)?;
    let name = c"spoor".as_ptr() as usize;
    // SAFETY: it makes a file that only exists in memory.
    let file = checked(unsafe { sys::call(sys::MEMFD_CREATE, [name, CLOSE_ON_EXEC, 0, 0, 0, 0]) })?;
    let inherited = if flags & FLAG_FOLLOW_FORKS != 0 { CONTROL_BYTES } else { 0 };
    match map(file, bytes, inherited) {
        Ok(at) => {
            let control = at.cast::<Control>().cast_const();
            // SAFETY: it is mapped for good, aligned to a page, and zeros are valid.
            let control: &'static Control = unsafe { &*control };
            fill(control, shape, stack_bytes, flags);
            local::prepare(flags & FLAG_WRITE_GS != 0);
            inherit_slots(control);
            thread::prepare(control).ok_or(-12)?;
            // ORDERING: nothing is hooked yet that has a slot here.
            control.slots.store(map_slots(file) as u64, Ordering::Relaxed);
            spoor_routines();
            Ok(file as i64)
        }
        Err(error) => {
            sys::close(file);
            Err(error)
        }
    }
}

/// Where the memory of an earlier time is, whose outside has left, and how much. A thread that still writes to it,
/// which it began before that, finds memory there for good.
static EARLIER: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// In a forked child: what its parent shares with the outside is not there, but for its beginning, which is still needed.
pub(super) fn forget_earlier() {
    // ORDERING: there is one thread.
    EARLIER.iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

/// Maps the memory, the beginning of which forked children inherit.
fn map(file: usize, bytes: usize, inherited: usize) -> Result<*mut u8, i64> {
    const READ_WRITE: usize = 3;
    const SHARED_NORESERVE: usize = 0x4001;
    const IN_THIS_PLACE: usize = 0x10;
    // SAFETY: a file of our own.
    checked(unsafe { sys::call(sys::FTRUNCATE, [file, bytes, 0, 0, 0, 0]) })?;
    // ORDERING: only Frida's one thread of scripts comes here.
    let [earlier, earlier_bytes] = [&EARLIER[0], &EARLIER[1]].map(|word| word.load(Ordering::Relaxed));
    let (place, flags) = match earlier_bytes >= bytes {
        true => (earlier, SHARED_NORESERVE | IN_THIS_PLACE),
        false => (0, SHARED_NORESERVE),
    };
    // SAFETY: at an address of the kernel's choice, or where nothing but memory of our own is.
    let at = checked(unsafe { sys::call(sys::MMAP, [place, bytes, READ_WRITE, flags, file, 0]) })?;
    EARLIER[0].store(at, Ordering::Relaxed);
    EARLIER[1].store(bytes.max(if at == earlier { earlier_bytes } else { 0 }), Ordering::Relaxed);
    // SAFETY: what was mapped just now. A forked child must not write to the rings of its parent.
    unsafe { sys::keep_here((at + inherited) as *mut u8, bytes - inherited) };
    Ok(at as *mut u8)
}

/// Where the slots of functions are, for the gates of stubs, which reach them by addresses below 2 GiB. 0 while they are not.
static SLOTS: AtomicUsize = AtomicUsize::new(0);

/// The slot of a function, as its gate reaches it.
pub(super) fn slot(function: u32) -> Option<&'static AtomicUsize> {
    // ORDERING: set before hooks were in place.
    let slots = SLOTS.load(Ordering::Relaxed);
    let has_slot = slots != 0 && (function as usize) < MOST_SLOTS;
    // SAFETY: so many words are mapped there for good, and only reached as atomics.
    has_slot.then(|| unsafe { &*((slots + 8 * function as usize) as *const AtomicUsize) })
}

/// In a forked child, whose functions lead through its parent's slots: what these hold, for slots of its own.
fn inherit_slots(control: &Control) {
    // ORDERING: a child has one thread; its parent and the outside may change what it copies, and any of that will do.
    let used = thread::inherited().map_or(0, |parent| parent.slots_used.load(Ordering::Relaxed));
    let own = (ptr::from_ref(control) as usize + CONTROL_BYTES) as *const AtomicUsize;
    for function in 0..used.min(MOST_SLOTS as u64) as u32 {
        let Some(inherited) = slot(function) else { break };
        // SAFETY: there is a word for each, and nobody else knows of them yet.
        unsafe { &*own.add(function as usize) }.store(inherited.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    control.slots_used.store(used, Ordering::Relaxed);
}

/// Maps the slots a second time: at an address below 2 GiB, or in place of those of an earlier time. Where, or 0. Children
/// inherit them: their functions are hooked, whether they are followed or not.
fn map_slots(file: usize) -> usize {
    const READ_WRITE: usize = 3;
    const SHARED: usize = 1;
    const IN_THIS_PLACE: usize = 0x10;
    const BELOW_2_GIB: usize = 0x40;
    // ORDERING: as in `map`.
    let earlier = SLOTS.load(Ordering::Relaxed);
    let flags = SHARED | if earlier == 0 { BELOW_2_GIB } else { IN_THIS_PLACE };
    // SAFETY: where nothing is, or nothing but slots that no gate leads through.
    let mapped =
        checked(unsafe { sys::call(sys::MMAP, [earlier, SLOT_BYTES, READ_WRITE, flags, file, CONTROL_BYTES]) });
    let Ok(at) = mapped else { return 0 };
    if at + SLOT_BYTES > 1 << 31 {
        // SAFETY: it was mapped just now, for us.
        unsafe { sys::call(sys::MUNMAP, [at, SLOT_BYTES, 0, 0, 0, 0]) };
        return 0;
    }
    SLOTS.store(at, Ordering::Relaxed);
    at
}

fn fill(control: &Control, shape: Shape, stack_bytes: u32, flags: u32) {
    // ORDERING: nobody else knows of it yet.
    control.version.store(VERSION, Ordering::Relaxed);
    control.flags.store(flags, Ordering::Relaxed);
    control.ring_bytes.store(shape.ring_bytes as u64, Ordering::Relaxed);
    control.rings.store(shape.rings as u64, Ordering::Relaxed);
    control.stack_bytes.store(stack_bytes.into(), Ordering::Relaxed);
    control.max_depth.store(u64::from(u32::MAX), Ordering::Relaxed);
    control.magic.store(MAGIC, Ordering::Release);
}

fn checked(result: isize) -> Result<usize, i64> {
    usize::try_from(result).map_err(|_| result as i64)
}

/// Closes a descriptor that [`spoor_open`] returned.
#[unsafe(no_mangle)]
pub(super) extern "C" fn spoor_close(descriptor: i64) {
    if let Ok(descriptor) = usize::try_from(descriptor) {
        sys::close(descriptor);
    }
}

/// Tells the outside something, a [`Subject`] by its number, and does what it says until it says to go on.
#[unsafe(no_mangle)]
pub(super) extern "C" fn spoor_serve(subject: u32, module: u64) {
    if let (Some(control), Some(subject)) = (thread::control(), Subject::from_number(subject)) {
        thread::untraced(|| mailbox::serve(control, subject, module, [0; 4]));
    }
}

/// Gives each part of the library the protection that it is to have, for an outside that has mapped it by hand, from `base` on.
/// Returns 0, or an error's number, negated.
///
/// # Safety
///
/// The library is there, with the header of its file.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn spoor_protect(base: usize) -> isize {
    const LOADED: u32 = 1;
    const PAGE: usize = 4096;
    // SAFETY: the fields of the header that every such file starts with.
    let (at, size, count) = unsafe {
        let header = base as *const u8;
        (header.add(32).cast::<u64>().read(), header.add(54).cast::<u16>().read(), header.add(56).cast::<u16>().read())
    };
    for place in 0..usize::from(count) {
        let header = (base + at as usize + place * usize::from(size)) as *const u8;
        // SAFETY: as above, of the header of a part.
        let (kind, flags, start, bytes) = unsafe {
            let word = |at: usize| header.add(at).cast::<u32>().read();
            (
                word(0),
                word(4),
                header.add(16).cast::<u64>().read() as usize,
                header.add(40).cast::<u64>().read() as usize,
            )
        };
        if kind != LOADED {
            continue;
        }
        let (first, end) = (start / PAGE * PAGE, (start + bytes).next_multiple_of(PAGE));
        // The file has the bits in the other order than the system.
        let protection = (flags >> 2 & 1 | flags & 2 | (flags & 1) << 2) as usize;
        // SAFETY: the library's own memory, as its parts need it.
        let result = unsafe { sys::call(sys::MPROTECT, [base + first, end - first, protection, 0, 0, 0]) };
        if result != 0 {
            return result;
        }
    }
    0
}

/// Executes one command, for an outside that has borrowed a thread. No other is being executed.
#[unsafe(no_mangle)]
pub(super) extern "C" fn spoor_command(command: u32, first: usize, second: usize, third: usize) -> u64 {
    Command::from_number(command).map_or(0, |command| mailbox::execute(command, [first, second, third, 0]) as u64)
}

/// Where a stub finds its routines, in this order behind their count: enter, probe, unwinder, watched, Go's, leave; first
/// without registers and stack, then with. Behind them, where `gs` of a thread must point before it enters one.
#[unsafe(no_mangle)]
pub(super) extern "C" fn spoor_routines() -> *const u64 {
    let addresses: [unsafe extern "C" fn(); ROUTINES - 1] = [
        routines::spoor_enter_index,
        routines::spoor_enter_probe,
        routines::spoor_enter_unwinder,
        routines::spoor_enter_watched,
        routines::spoor_enter_go_index,
        routines::spoor_leave_index,
        routines::spoor_enter_detail,
        routines::spoor_enter_probe,
        routines::spoor_enter_unwinder,
        routines::spoor_enter_watched,
        routines::spoor_enter_go_detail,
        routines::spoor_leave_detail,
    ];
    let table = SPOOR_ROUTINES.0.get();
    // SAFETY: only one thread of the outside's choice calls this, and what is written is always the same.
    unsafe {
        (*table)[0] = ROUTINES as u64;
        for (place, address) in addresses.iter().enumerate() {
            (*table)[place + 1] = *address as usize as u64;
        }
        (*table)[ROUTINES] = local::nobody() as u64;
    }
    ptr::from_ref(&SPOOR_ROUTINES).cast()
}

/// What [`spoor_routines`] tells, once the memory is made.
#[unsafe(no_mangle)]
static SPOOR_ROUTINES: Table = Table(core::cell::UnsafeCell::new([0; ROUTINES + 1]));

/// How many routines [`spoor_routines`] tells.
pub(super) const ROUTINES: usize = 13;

struct Table(core::cell::UnsafeCell<[u64; ROUTINES + 1]>);

// SAFETY: see where it is written.
unsafe impl Sync for Table {}

/// Hands over the function of Gum's that tells which hook was hit.
#[unsafe(no_mangle)]
pub(super) extern "C" fn spoor_gum(data_of: gum::DataOf) {
    gum::prepare(data_of);
}
