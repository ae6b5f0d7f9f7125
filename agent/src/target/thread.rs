//! What is known of a thread while it is traced.

use core::{
    ops::Range,
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, compiler_fence},
};

use super::{
    follow,
    local::{self, IGNORED, Local, thread_pointer},
    shadow::{self, Entry, Place, Shadow},
    stacks, sys,
    writer::Writer,
};
use crate::shared::{Control, FLAG_FOLLOW_FORKS, HEAD_BYTES, RingHead, STATE_COUNTERS, Shape, tsc};

/// How many threads can be traced at once.
pub(super) const MOST_THREADS: usize = 4096;

/// A thread's state. `routines` knows the layout of the first fields.
///
/// Behind the first page lies the [`Writer`], on a page that forked children find empty. All of it is mapped for the
/// thread's ring, and goes to the next thread together with the ring.
#[repr(C)]
pub(super) struct Thread {
    /// What the thread is known by.
    local: Local,
    /// The youngest entry of the stack that it runs on, and the rest of its shadow. Slots from `low` on are on that stack;
    /// any thread may set `size` to 0, which makes the next call look again.
    pub(super) top: *mut Entry,
    /// Where the return address is of the call that is being recorded; 0 while none is. What a handler calls
    /// meanwhile, or we ourselves, is passed through.
    pub(super) busy: usize,
    pub(super) low: usize,
    pub(super) size: usize,
    /// While it is on the stack of its own that functions of Go are recorded on: where it was before. Otherwise 0.
    pub(super) away: usize,
    pub(super) base: *mut Entry,
    pub(super) limit: *mut Entry,
    /// Whether the return addresses on the current stack are the real ones, because somebody unwinds it.
    pub(super) restored: bool,
    /// The shadow itself, and where its stack lies, with others that may lie within. Null while it is on none.
    pub(super) shadow: *mut Shadow,
    pub(super) stack: Range<usize>,
    /// Memory that it ran on and that is not known to be a stack, how many stacks were told of then, and how often it is
    /// passed through before it is looked at again.
    pub(super) unknown: (Range<usize>, u32, u32),
    /// Which [`GENERATION`] its ring is of.
    generation: u32,
    /// The start routine that is still to be seen: how many calls it is looked for.
    pub(super) awaiting_routine: u32,
    /// What watched functions remember from entry to return.
    pub(super) notes: super::watch::Notes,
    /// Whether we ourselves have called a function of the program. What that calls is nobody's call.
    pub(super) asks: bool,
}

/// Where the parts behind the first page are.
pub(super) const WRITER_AT: usize = 4096;
const SCRATCH_AT: usize = 8192;
const SCRATCH_BYTES: usize = 4096;
const STACK_BYTES: usize = 32 << 10;
const STATE_BYTES: usize = SCRATCH_AT + SCRATCH_BYTES + STACK_BYTES;

/// Where the stack of its own ends.
pub(super) const STACK_END: usize = STATE_BYTES;

const _: () = assert!(size_of::<Thread>() <= WRITER_AT && size_of::<Writer>() <= 4096 && WRITER_AT == STATE_COUNTERS);

/// The rings, once there are any.
static CONTROL: AtomicPtr<Control> = AtomicPtr::new(ptr::null_mut());

/// Whether forked children are to be followed, and so have its beginning.
static FOLLOWS_FORKS: AtomicBool = AtomicBool::new(false);

/// A word that is 1 here and 0 in every forked child.
static HERE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The state that belongs to each ring.
static THREADS: [AtomicUsize; MOST_THREADS] = [const { AtomicUsize::new(0) }; MOST_THREADS];

/// States of an earlier time, of threads that still have them or have ended.
static FORMER: [AtomicUsize; MOST_THREADS] = [const { AtomicUsize::new(0) }; MOST_THREADS];

/// Threads that are never traced: those that Frida had when the program was hooked.
static FOREIGN: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// What the names of Frida's threads start with: those that it starts later begin with the name of the one that did.
const FOREIGN_NAMES: [&[u8]; 4] = [b"gum-js-loop", b"frida-", b"pool-frida", b"pool-spawner"];

/// How often the program was attached to. A thread whose state is of an earlier time needs another ring.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The id of the traced process.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Whether this is the traced process, and not a child that has its memory for the moment.
pub(super) fn is_traced_process() -> bool {
    // ORDERING: as in `prepare`.
    PROCESS.load(Ordering::Relaxed) == sys::getpid()
}

/// Sets up what all threads share. `None` where there is no memory.
pub(super) fn prepare(control: &'static Control) -> Option<()> {
    // ORDERING: threads look at these only after hooks are in place, for which the outside stops all of them.
    let mut here = HERE.load(Ordering::Relaxed);
    if here.is_null() {
        here = sys::map(4096)?.cast();
        // SAFETY: a page of our own.
        unsafe { sys::wipe_on_fork(here.cast(), 4096) };
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    super::watch::prepare();
    FOREIGN.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    for state in &THREADS {
        let state = state.swap(0, Ordering::Relaxed);
        if state != 0 {
            // SAFETY: states are never unmapped. Where its thread runs, it is in no hooked function but on its way out
            // of one; it finds no room, and looks again.
            unsafe { Writer::make_stale((state as *mut u8).add(WRITER_AT).cast()) };
            // Where there is no place, one that nobody has is lost.
            let _ = FORMER.iter().any(|place| exchange(place, 0, state));
        }
    }
    // SAFETY: a page of our own, mapped for good.
    unsafe { (*here).store(1, Ordering::Relaxed) };
    PROCESS.store(sys::getpid(), Ordering::Relaxed);
    HERE.store(here, Ordering::Relaxed);
    let follows = control.flags.load(Ordering::Relaxed) & FLAG_FOLLOW_FORKS != 0;
    FOLLOWS_FORKS.store(follows, Ordering::Relaxed);
    CONTROL.store(ptr::from_ref(control).cast_mut(), Ordering::Release);
    Some(())
}

/// Writes a state to a place that holds another, or none. Whether it did.
fn exchange(place: &AtomicUsize, old: usize, new: usize) -> bool {
    // ORDERING: whoever gets a state sees what its last owner wrote.
    place.load(Ordering::Relaxed) == old
        && place.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// How many entries a shadow may have.
pub(super) fn most_depth() -> usize {
    // ORDERING: set before hooks were in place.
    control().map_or(usize::MAX, |control| control.max_depth.load(Ordering::Relaxed) as usize)
}

/// Never traces this thread.
pub(super) fn ignore(tid: u32) {
    for place in &FOREIGN {
        // ORDERING: as in `prepare`.
        if place.compare_exchange(0, tid, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// The memory shared with the outside, if this process is the one that is traced.
pub(super) fn control() -> Option<&'static Control> {
    // ORDERING: as in `prepare`.
    let (here, control) = (HERE.load(Ordering::Relaxed), CONTROL.load(Ordering::Acquire));
    // SAFETY: what is not null points to memory that is never unmapped. The first is looked at before the second,
    // which a forked child does not have.
    unsafe { if !here.is_null() && (*here).load(Ordering::Relaxed) == 1 { control.as_ref() } else { None } }
}

/// What a forked child that is to be followed has of the memory that its parent shares with the outside.
pub(super) fn inherited() -> Option<&'static Control> {
    // ORDERING: as in `prepare`.
    if control().is_some() || !FOLLOWS_FORKS.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: where forks are followed it is inherited, and mapped until it is forgotten.
    unsafe { CONTROL.load(Ordering::Acquire).as_ref() }
}

/// Has nobody look for memory that is shared with the outside: a forked child has none that is read.
pub(super) fn forget_control() {
    // ORDERING: there is one thread.
    CONTROL.store(ptr::null_mut(), Ordering::Relaxed);
}

/// The thread that a state is of, by its id with the system.
pub(super) fn id_of(thread: &Thread) -> u32 {
    thread.local.tid
}

/// Runs `f` as a thread that is not traced.
pub(super) fn untraced<T>(f: impl FnOnce() -> T) -> T {
    local::enter();
    let before = Local::find_or_make().map(|local| core::mem::replace(&mut local.state, IGNORED));
    compiler_fence(Ordering::SeqCst);
    let result = f();
    compiler_fence(Ordering::SeqCst);
    if let (Some(local), Some(before)) = (Local::find(), before) {
        local.state = before;
    }
    result
}

impl Thread {
    /// The calling thread's state, made if it is new. `None` if it is not traced.
    ///
    /// In a forked child that is not followed it is not traced any more; its state is kept to find the return addresses in.
    pub(super) fn current() -> Option<&'static mut Self> {
        match Local::find().map_or(0, |local| local.state) {
            IGNORED => None,
            0 => Self::start(),
            state => {
                // SAFETY: it is a state that belongs to this thread alone, never unmapped.
                let thread = unsafe { &mut *(state as *mut Self) };
                if !thread.writer().is_open() {
                    // A forked child. It walks its own way from here on, and may unwind what it has inherited.
                    thread.stop_tracing();
                    super::unwind::restore(thread, 0);
                    return (follow::begin(thread) && thread.take_up()).then_some(thread);
                }
                if thread.writer().is_deserted() {
                    // Nobody will ever read what it records. It goes on as if it had never been hooked.
                    thread.stop_tracing();
                    stacks::restore_everywhere();
                    return None;
                }
                // ORDERING: as in `prepare`.
                if thread.generation != GENERATION.load(Ordering::Relaxed) && !thread.begin_again() {
                    return None;
                }
                Some(thread)
            }
        }
    }

    /// The thread of a forked child is traced on behalf of the child from here on.
    fn take_up(&mut self) -> bool {
        (self.local.former, self.local.tid) = (0, sys::gettid());
        let is_traced = self.begin_again();
        if is_traced {
            self.local.state = ptr::from_mut(self) as usize;
        }
        is_traced
    }

    fn stop_tracing(&mut self) {
        (self.local.state, self.local.former) = (IGNORED, ptr::from_mut(self) as usize);
    }

    /// Whether the calling thread is not traced any more, since nobody is there who would read what it records.
    pub(super) fn is_deserted() -> bool {
        let former = Local::find().filter(|local| local.state == IGNORED).map_or(0, |local| local.former);
        // SAFETY: as above.
        let former = unsafe { (former as *mut Self).as_mut() };
        former.is_some_and(|thread| thread.writer().is_open() && thread.writer().is_deserted())
    }

    /// The state that the thread has, or had before a fork; made if it is new: a coroutine may go on in it.
    pub(super) fn even_after_fork() -> Option<&'static mut Self> {
        match Local::find().map_or((0, 0), |local| (local.state, local.former)) {
            (0, _) => Self::start(),
            // SAFETY: as above.
            (IGNORED, former) => unsafe { (former as *mut Self).as_mut() },
            // SAFETY: as above.
            (state, _) => unsafe { (state as *mut Self).as_mut() },
        }
    }

    /// Makes a state for the calling thread, unless it is not to be traced. No handler may do the same meanwhile.
    #[cold]
    fn start() -> Option<&'static mut Self> {
        let signals = sys::block_signals();
        let name = sys::thread_name();
        let thread = if is_foreign(sys::gettid(), &name) { None } else { Self::make(name) };
        if thread.is_none()
            && let Some(local) = Local::find_or_make()
        {
            local.state = IGNORED;
        }
        sys::set_signals(signals);
        thread
    }

    fn make(name: [u64; 2]) -> Option<&'static mut Self> {
        let (control, ring) = take_ring()?;
        let (head, start) = ring_at(control, ring);
        let Some(state) = state_of(ring) else {
            head.free();
            return None;
        };
        let stateless = Local::find();
        // SAFETY: the state belongs to the ring, and the ring to this thread now. It is either fresh, all zeros, which
        // are valid values, or what a thread that is gone has left.
        let thread = unsafe { &mut *state.cast::<Self>() };
        stacks::let_go(thread, true);
        thread.reset();
        thread.away = 0;
        stacks::clear(&raw const ring as usize, thread_pointer());
        thread.local.become_own();
        thread.open(control, head, start, name);
        thread.local.state = state as usize;
        if let Some(stateless) = stateless {
            stateless.give_up();
        }
        Some(thread)
    }

    /// Takes another ring: the outside has left, and is here again.
    #[cold]
    fn begin_again(&mut self) -> bool {
        let Some((control, ring)) = take_ring() else {
            // It is not looked for again at every call.
            self.stop_tracing();
            return false;
        };
        let (head, start) = ring_at(control, ring);
        let own = ptr::from_mut(self) as usize;
        // It is nobody else's.
        let _ = FORMER.iter().any(|place| exchange(place, own, 0));
        stacks::let_go(self, false);
        self.reset();
        // ORDERING: other threads may look for return addresses in it.
        let left = THREADS[ring].swap(own, Ordering::AcqRel);
        // Whoever had the ring before is gone, and its state is anybody's.
        let _ = left != 0 && FORMER.iter().any(|place| exchange(place, 0, left));
        self.open(control, head, start, sys::thread_name());
        true
    }

    fn open(&mut self, control: &'static Control, head: &'static RingHead, start: usize, name: [u64; 2]) {
        self.writer().open(control, head, start);
        // ORDERING: as in `prepare`.
        self.generation = GENERATION.load(Ordering::Relaxed);
        head.tid.store(self.local.tid, Ordering::Relaxed);
        head.pthread.store(thread_pointer() as u64, Ordering::Relaxed);
        head.taken.store(tsc::now(), Ordering::Relaxed);
        head.name.iter().zip(name).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        head.open();
        super::watch::started(self);
    }

    fn reset(&mut self) {
        (self.busy, self.restored, self.unknown, self.asks) = (0, false, Default::default(), false);
        self.awaiting_routine = super::watch::LOOK_FOR_ROUTINE;
        self.notes = Default::default();
    }

    /// It runs on no stack that is known.
    pub(super) fn forget_stack(&mut self) {
        self.shadow = ptr::null_mut();
        // SAFETY: a field of our own. Nobody takes a slot to be on the stack before the rest is changed.
        unsafe { (&raw mut self.size).write_volatile(0) };
        compiler_fence(Ordering::SeqCst);
        let none = shadow::no_entry();
        (self.top, self.base, self.limit, self.stack) = (none, none, none, 0..0);
    }

    /// Makes the stack that holds this slot the current one. Whether that could be done.
    pub(super) fn select(&mut self, slot: usize) -> bool {
        if slot.wrapping_sub(self.low) < self.size {
            return true;
        }
        // A child that `posix_spawn` has made has our memory, and a stack of its own, until it is another program.
        self.writer().is_of_this_thread() && stacks::claim(self, slot)
    }

    /// Whether no other stack can lie in the memory of the one that is selected.
    pub(super) fn is_alone(&self) -> bool {
        // SAFETY: shadows are never unmapped.
        unsafe { self.shadow.as_ref() }.is_some_and(|shadow| shadow.place != Place::Mapped)
    }

    /// Whether a thread has ended, without a word. One whose handle is the calling thread's has, even if the system still
    /// knows it: who traces a thread keeps it, and so does the system itself for a moment.
    ///
    /// # Safety
    ///
    /// It is the state of another thread.
    pub(super) unsafe fn is_gone(thread: *mut Self) -> bool {
        // SAFETY: promised by the caller.
        let (pointer, tid) = unsafe {
            let local = &raw const (*thread).local;
            ((*local).pointer.load(Ordering::Relaxed), (&raw const (*local).tid).read_volatile())
        };
        pointer == thread_pointer() || sys::is_gone(tid)
    }

    /// Memory to read files into.
    pub(super) fn scratch(&mut self) -> &mut [u8] {
        // SAFETY: it lies there, see the type.
        unsafe { &mut *ptr::from_mut(self).cast::<u8>().add(SCRATCH_AT).cast::<[u8; SCRATCH_BYTES]>() }
    }

    pub(super) fn writer(&mut self) -> &mut Writer {
        // SAFETY: it lies there, see the type.
        unsafe { &mut *ptr::from_mut(self).cast::<u8>().add(WRITER_AT).cast() }
    }

    /// How many functions are on the current shadow stack.
    pub(super) fn entry_count(&self) -> u32 {
        ((self.top as usize - self.base as usize) / size_of::<Entry>()) as u32
    }

    /// How deep the youngest entry is.
    pub(super) fn depth(&self) -> u32 {
        self.entry_count().saturating_sub(1)
    }

    /// The entries of the current shadow stack, from the youngest one to the oldest.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + use<> {
        // SAFETY: entries above the base up to the top are initialised.
        shadow::entries(self.base, self.top).map(|entry| unsafe { *entry })
    }

    /// The youngest entry.
    pub(super) fn youngest(&mut self) -> Option<&mut Entry> {
        // SAFETY: the entries above the base up to the top are initialised.
        if self.top > self.base { Some(unsafe { &mut *self.top }) } else { None }
    }

    /// Removes the youngest entry.
    pub(super) fn pop(&mut self) {
        debug_assert!(self.top > self.base);
        self.top = self.top.wrapping_sub(1);
    }

    /// Adds an entry, if there is room.
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        if self.top >= self.limit {
            return false;
        }
        self.top = self.top.wrapping_add(1);
        // SAFETY: below the limit, behind which there is room for one more.
        unsafe { self.top.write(entry) };
        true
    }
}

fn is_foreign(tid: u32, name: &[u64; 2]) -> bool {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&name[0].to_le_bytes());
    bytes[8..].copy_from_slice(&name[1].to_le_bytes());
    // Once it has been seen it is ignored for good, and the system may give its id to a thread of the program.
    // ORDERING: as in `prepare`.
    FOREIGN.iter().any(|foreign| foreign.compare_exchange(tid, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok())
        || FOREIGN_NAMES.iter().any(|foreign| bytes.starts_with(foreign))
}

fn take_ring() -> Option<(&'static Control, usize)> {
    let control = control()?;
    // ORDERING: it does not change.
    let rings = control.rings.load(Ordering::Relaxed) as usize;
    for ring in 0..rings.min(MOST_THREADS) {
        let (head, _) = ring_at(control, ring);
        if head.may_be_free() && head.take() {
            // ORDERING: the outside looks at heads below this, and there at the state.
            control.rings_used.fetch_max(ring as u32 + 1, Ordering::Release);
            return Some((control, ring));
        }
    }
    // ORDERING: a count.
    control.threads_without_ring.fetch_add(1, Ordering::Relaxed);
    None
}

/// The head of a ring, and the address of the ring.
fn ring_at(control: &Control, ring: usize) -> (&'static RingHead, usize) {
    // ORDERING: they do not change.
    let ring_bytes = control.ring_bytes.load(Ordering::Relaxed) as usize;
    let at = ptr::from_ref(control) as usize + Shape { ring_bytes, rings: 0 }.head_at(ring);
    // SAFETY: there are more rings than this, mapped for good.
    (unsafe { &*(at as *const RingHead) }, at + HEAD_BYTES)
}

/// The state that belongs to a ring, made if there is none yet.
fn state_of(ring: usize) -> Option<*mut u8> {
    // ORDERING: only the thread that has the ring looks at it to use it.
    let known = THREADS[ring].load(Ordering::Relaxed);
    if known != 0 {
        return Some(known as *mut u8);
    }
    // SAFETY: they are states. Nobody takes one up again whose thread has ended.
    let is_free = |state: &usize| *state != 0 && unsafe { Thread::is_gone(*state as *mut Thread) };
    let former = FORMER.iter().find_map(|place| {
        // ORDERING: as in `exchange`.
        let state = Some(place.load(Ordering::Relaxed)).filter(is_free)?;
        exchange(place, state, 0).then_some(state as *mut u8)
    });
    let state = match former {
        Some(state) => state,
        None => {
            let state = sys::map(STATE_BYTES)?;
            // SAFETY: pages of our own.
            unsafe { sys::wipe_on_fork(state.wrapping_add(WRITER_AT), 4096) };
            state
        }
    };
    // ORDERING: other threads may look for return addresses in it.
    THREADS[ring].store(state as usize, Ordering::Release);
    Some(state)
}
