//! Grand Central Dispatch: who gave which block to which queue, and when it ran.
//!
//! A block is known by its address. What the program passes may be on its stack; the library then makes a copy, and
//! calls that. So a submission is told once the copy is known.
//!
//! That a block runs is seen where its function is entered, from the library's code: that function is watched from the
//! first time on that the program submits it. Each execution is a substream of its own, since a block may run again, and
//! a context may be null.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use codec::{EventKind, Key};

use super::{Note, busy_with, landmark, mark, note, tell};
use crate::{
    shared::{Kind, Landmark, MAX_RECORD_WORDS, Watched, header},
    target::{shadow::Entry, thread::Thread},
};

/// Where the arguments of a function are that submits something.
#[derive(Debug, Clone, Copy)]
struct Submit {
    work: Work,
    queue: Option<usize>,
    group: Option<usize>,
    when: Option<usize>,
    /// The source whose handler it is.
    source: Option<usize>,
}

/// What is to be run.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// A block that the library copies.
    Copied(usize),
    /// A block that the caller waits for.
    Block(usize),
    /// A context, and the function that it is given to.
    Function(usize, usize),
    /// A function that is given the context that its source has when it is called.
    Handler(usize),
}

impl Submit {
    fn of(watched: Watched) -> Option<Self> {
        use Watched::*;
        let source = |work| Some(Self { work, queue: None, group: None, when: None, source: Some(0) });
        let (queue, work) = match watched {
            DispatchSourceSetEventHandler | DispatchSourceSetCancelHandler | DispatchSourceSetRegistrationHandler => {
                return source(Work::Copied(1));
            }
            DispatchSourceSetEventHandlerF
            | DispatchSourceSetCancelHandlerF
            | DispatchSourceSetRegistrationHandlerF => return source(Work::Handler(1)),
            DispatchAsync | DispatchBarrierAsync => (0, Work::Copied(1)),
            DispatchSync | DispatchBarrierSync | DispatchAsyncAndWait | DispatchBarrierAsyncAndWait => {
                (0, Work::Block(1))
            }
            DispatchAsyncF
            | DispatchBarrierAsyncF
            | DispatchSyncF
            | DispatchBarrierSyncF
            | DispatchAsyncAndWaitF
            | DispatchBarrierAsyncAndWaitF => (0, Work::Function(1, 2)),
            DispatchAfter | DispatchGroupAsync | DispatchGroupNotify => (1, Work::Copied(2)),
            DispatchApply => (1, Work::Block(2)),
            DispatchAfterF | DispatchGroupAsyncF | DispatchGroupNotifyF | DispatchApplyF => (1, Work::Function(2, 3)),
            _ => return None,
        };
        let group =
            matches!(watched, DispatchGroupAsync | DispatchGroupAsyncF | DispatchGroupNotify | DispatchGroupNotifyF);
        let when = matches!(watched, DispatchAfter | DispatchAfterF);
        let (group, when) = (group.then_some(0), when.then_some(0));
        Some(Self { work, queue: Some(queue), group, when, source: None })
    }

    /// Tells of it, with what will run.
    fn tell(self, thread: &mut Thread, watched: Watched, at: (u64, u64), arguments: [u64; 6], called: Called) {
        let key = |key, place: Option<usize>| place.map(|place| (key, arguments[place]));
        let block = (!matches!(self.work, Work::Handler(_))).then_some((Key::Block, called.block));
        let queue = key(Key::Queue, self.queue).filter(|(_, queue)| *queue != 0);
        let (group, when) = (key(Key::Group, self.group), key(Key::When, self.when));
        let invoke = Some((Key::Invoke, called.invoke));
        tell(thread, watched, EventKind::Call, at, &[block, invoke, queue, group, when, key(Key::Source, self.source)]);
        if called.is_canceled {
            called.tell_canceled(thread, at);
        }
    }
}

/// What the library will call.
#[derive(Debug, Clone, Copy, Default)]
struct Called {
    /// The block, or context.
    block: u64,
    invoke: u64,
    /// Whether it was canceled before: then it will not be called.
    is_canceled: bool,
}

impl Called {
    fn tell_canceled(self, thread: &mut Thread, at: (u64, u64)) {
        let keys = [(Key::Block, self.block), (Key::Invoke, self.invoke)];
        tell(thread, Watched::DispatchBlockCancel, EventKind::Call, at, &keys);
    }
}

/// The block that will be called for a block.
///
/// It is the block itself, unless `dispatch_block_create` has made it: such a one holds another, which the library
/// calls directly.
///
/// # Safety
///
/// It is a block, or null.
unsafe fn called_for(block: u64) -> Called {
    // A block is: its class, flags, its function, its descriptor, and what it holds. A descriptor has the size second.
    const FUNCTION: usize = 2;
    const DESCRIPTOR: usize = 3;
    const HELD: usize = 4;
    // What one of the library holds starts with this, and has flags as its third word and the other block as its sixth.
    const MAGIC: u64 = 0xD159_B10C;
    const FLAGS: usize = HELD + 2;
    const CANCELED: u64 = 1;
    const OTHER: usize = HELD + 5;
    if block == 0 {
        return Called::default();
    }
    let words = block as usize as *const u64;
    // SAFETY: promised by the caller; more is read only if the block is as large as that.
    unsafe {
        let function = *words.add(FUNCTION);
        if !landmark::is_in(Landmark::Dispatch, function as usize) {
            return Called { block, invoke: function, is_canceled: false };
        }
        let size = *(*words.add(DESCRIPTOR) as usize as *const u64).add(1);
        let other = if size >= 8 * (OTHER as u64 + 1) && *words.add(HELD) == MAGIC { *words.add(OTHER) } else { 0 };
        if other == 0 {
            return Called { block, invoke: function, is_canceled: false };
        }
        let (invoke, flags) = (*(other as usize as *const u64).add(FUNCTION), *words.add(FLAGS));
        Called { block: other, invoke, is_canceled: flags & CANCELED != 0 }
    }
}

pub(super) fn entered(thread: &mut Thread, watched: Watched, arguments: [u64; 6], entry: &Entry, caller: usize) {
    let is_from = |library| landmark::is_in(library, caller);
    // How the library gets from one of its own functions to another is its own business. What Swift gives to it is
    // told as Swift's.
    let is_own = is_from(Landmark::Dispatch);
    let at = (entry.entered, entry.entered);
    match watched {
        Watched::DispatchCallout | Watched::DispatchCallout2 => {
            if is_own {
                called_out(thread, watched, arguments[0], entry);
            }
        }
        Watched::BlockCopy if is_own => note(thread, watched, arguments, entry),
        Watched::DispatchQueueCreate | Watched::DispatchQueueCreateWithTarget => {
            note(thread, watched, arguments, entry);
        }
        Watched::DispatchSourceCreate if !is_own => note(thread, watched, arguments, entry),
        // SAFETY: the program passes a block.
        Watched::DispatchBlockCancel => unsafe { called_for(arguments[0]) }.tell_canceled(thread, at),
        Watched::DispatchGroupEnter | Watched::DispatchGroupLeave if !is_own => {
            tell(thread, watched, EventKind::Call, at, &[(Key::Group, arguments[0])]);
        }
        _ => {
            if let Some(submit) = Submit::of(watched).filter(|_| !is_own && !is_from(Landmark::Swift)) {
                submitted(thread, watched, submit, arguments, entry);
            }
        }
    }
}

/// Something was submitted by the program.
fn submitted(thread: &mut Thread, watched: Watched, submit: Submit, arguments: [u64; 6], entry: &Entry) {
    if let Some(queue) = submit.queue {
        tell_label(thread, arguments[queue], entry.entered);
    }
    let called = match submit.work {
        // SAFETY: the program passes a block.
        Work::Copied(place) | Work::Block(place) => unsafe { called_for(arguments[place]) },
        Work::Function(context, function) => {
            Called { block: arguments[context], invoke: arguments[function], is_canceled: false }
        }
        Work::Handler(function) => Called { invoke: arguments[function], ..Called::default() },
    };
    let callout = match watched {
        Watched::DispatchApply | Watched::DispatchApplyF => Watched::DispatchCallout2,
        _ => Watched::DispatchCallout,
    };
    if called.invoke != 0 {
        // SAFETY: it is what the program has given to be run.
        unsafe { mark::watch(called.invoke as usize, callout) };
    }
    match submit.work {
        Work::Copied(_) => note(thread, watched, arguments, entry),
        _ => submit.tell(thread, watched, (entry.entered, entry.entered), arguments, called),
    }
}

/// How many executions there were. Their substreams are numbers that no address and no task has.
static EXECUTIONS: AtomicU64 = AtomicU64::new(0);
const FIRST_EXECUTION: u64 = 1 << 48;

/// The library calls what it was given.
fn called_out(thread: &mut Thread, watched: Watched, block: u64, entry: &Entry) {
    let invoke = entry.header().function as u64;
    // ORDERING: a number that nobody else has.
    let execution = EXECUTIONS.fetch_add(1, Ordering::Relaxed);
    let before = busy_with(thread, FIRST_EXECUTION + execution, entry.entered);
    let keys = [(Key::Block, block), (Key::Invoke, invoke)];
    tell(thread, watched, EventKind::Call, (entry.entered, entry.entered), &keys);
    note(thread, watched, [block, invoke, before, 0, 0, 0], entry);
}

/// A call of which there is a note returns.
pub(super) fn left(thread: &mut Thread, note: &Note, result: u64, time: u64) {
    match note.watched {
        Watched::DispatchCallout | Watched::DispatchCallout2 => called_back(thread, note, EventKind::Return, time),
        Watched::BlockCopy => copied(thread, note.arguments[0], result, time),
        Watched::DispatchQueueCreate | Watched::DispatchQueueCreateWithTarget => forget(result as usize),
        Watched::DispatchSourceCreate => {
            let queue = note.arguments[3];
            tell_label(thread, queue, time);
            let keys = [Some((Key::Source, result)), (queue != 0).then_some((Key::Queue, queue))];
            tell(thread, note.watched, EventKind::Call, (note.entered, time), &keys);
        }
        // Nobody has seen the copy. Then it is the block itself that runs, or one that is not known.
        watched => {
            if let Some(submit) = Submit::of(watched)
                && let Work::Copied(place) = submit.work
            {
                // It may be gone by now, so nothing is read from it.
                let called = Called { block: note.arguments[place], ..Called::default() };
                submit.tell(thread, watched, (note.entered, time), note.arguments, called);
            }
        }
    }
}

/// A call of which there is a note was left without returning.
pub(super) fn unwound(thread: &mut Thread, note: &Note, time: u64) {
    if matches!(note.watched, Watched::DispatchCallout | Watched::DispatchCallout2) {
        called_back(thread, note, EventKind::Exception, time);
    }
}

fn called_back(thread: &mut Thread, note: &Note, phase: EventKind, time: u64) {
    let [block, invoke, before, ..] = note.arguments;
    let keys = [(Key::Block, block), (Key::Invoke, invoke)];
    tell(thread, note.watched, phase, (note.entered, time), &keys);
    busy_with(thread, before, time);
}

/// A block was copied by the library: if for somebody who submits it, it is the copy that will run.
fn copied(thread: &mut Thread, block: u64, copy: u64, time: u64) {
    let submits = |note: &Note| {
        Submit::of(note.watched)
            .is_some_and(|submit| matches!(submit.work, Work::Copied(place) if note.arguments[place] == block))
    };
    let Some(note) = thread.notes.last(submits) else { return };
    thread.notes.take(note.slot);
    if let Some(submit) = Submit::of(note.watched) {
        // SAFETY: a copy of a block is a block.
        let called = unsafe { called_for(copy) };
        submit.tell(thread, note.watched, (note.entered, time), note.arguments, called);
    }
}

/// Queues whose labels were told, by their addresses. Each has a few places where it may be; of more, labels are told
/// again.
static LABELLED: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
const PLACES: usize = 8;

pub(super) fn prepare() {
    // ORDERING: a hint: at worst a label is told twice.
    LABELLED.iter().for_each(|place| place.store(0, Ordering::Relaxed));
}

fn places(queue: usize) -> impl Iterator<Item = &'static AtomicUsize> {
    let first = (queue >> 4).wrapping_mul(0x9E37_79B9) >> 7;
    (0..PLACES).map(move |place| &LABELLED[(first + place) % LABELLED.len()])
}

/// What is at this address will be another queue.
fn forget(queue: usize) {
    for place in places(queue) {
        // ORDERING: a hint: at worst a label is told twice.
        let _ = place.compare_exchange(queue, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Whether this is the first time that a queue is seen.
fn is_new(queue: usize) -> bool {
    // ORDERING: as above.
    if places(queue).any(|place| place.load(Ordering::Relaxed) == queue) {
        return false;
    }
    let take = |place: &AtomicUsize| place.compare_exchange(0, queue, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if !places(queue).any(take)
        && let Some(place) = places(queue).next()
    {
        place.store(queue, Ordering::Relaxed);
    }
    true
}

/// Tells the label of a queue that is seen for the first time.
fn tell_label(thread: &mut Thread, queue: u64, time: u64) {
    const MOST: usize = 256;
    if queue == 0 || !is_new(queue as usize) {
        return;
    }
    // SAFETY: the program submits something to it.
    let label = unsafe { landmark::queue_label(queue) };
    let mut record = [0_u64; MAX_RECORD_WORDS];
    let mut length = 0;
    while label != 0 && length < MOST {
        // SAFETY: a string that ends with a zero byte.
        let byte = unsafe { *((label + length) as *const u8) };
        if byte == 0 {
            break;
        }
        record[3 + length / 8] |= u64::from(byte) << (length % 8 * 8);
        length += 1;
    }
    let words = 3 + length.div_ceil(8);
    record[..3].copy_from_slice(&[time, header(Kind::Label, words, 0, 0), queue]);
    if !thread.writer().put(&record[..words]) {
        forget(queue as usize);
    }
}
