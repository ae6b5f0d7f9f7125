//! Swift concurrency: which task was created by which, given to which executor, run where, suspended and resumed.
//!
//! A task is known by its id: its address is used again. What both sides of a suspension know is the task's address,
//! so that is the continuation.
//!
//! That a task completes is seen where the function is entered that its first context says it ends with. There are a
//! few of these, all of them private to the library; each is watched from the first time on that a task names it.

use core::sync::atomic::{AtomicU32, Ordering};

use codec::{EventKind, Key};

use super::{Note, busy_with, landmark, look_on, mark, note, tell};
use crate::{
    shared::{Landmark, Watched},
    target::{shadow::Entry, thread::Thread},
};

/// Where things are in a job, as the runtime's ABI has them: which kind it is, its id, and, of a task, its context.
const KIND: usize = 0x20;
const ID: usize = 0x24;
const CONTEXT: usize = 0x40;

/// Where a context says how it ends.
const COMPLETION: usize = 8;

/// The kind of job that is a task.
const TASK: u8 = 0;

/// The id of a job, if it is a task.
///
/// # Safety
///
/// It is a job that is alive, or null.
unsafe fn task_of(job: u64) -> Option<u64> {
    let at = job as usize;
    // SAFETY: promised by the caller.
    unsafe {
        if at == 0 || *((at + KIND) as *const u8) != TASK {
            return None;
        }
        landmark::task_id(job).or_else(|| Some(u64::from(*((at + ID) as *const u32))))
    }
}

/// The id of the task that runs here, if one does.
fn current() -> Option<u64> {
    // SAFETY: the runtime says that it is running.
    unsafe { task_of(landmark::current_task()) }
}

/// The same, as a key. Where an actor has started it unseen, it is at least known from here on.
fn here(thread: &mut Thread, time: u64) -> Option<(Key, u64)> {
    let id = current()?;
    if thread.notes.last(|note| runs(note.watched)).is_some_and(|note| note.arguments[2] == 0) {
        busy_with(thread, id, time);
    }
    Some((Key::Task, id))
}

fn creates(watched: Watched) -> bool {
    matches!(watched, Watched::SwiftTaskCreate | Watched::SwiftTaskCreateCommon)
}

/// Where the argument is that says which job is enqueued, and which says to what.
fn enqueues(watched: Watched) -> Option<(usize, Option<usize>)> {
    use Watched::*;
    match watched {
        SwiftTaskEnqueue | SwiftTaskEnqueueTaskOnExecutor => Some((0, Some(1))),
        SwiftTaskEnqueueGlobal | SwiftTaskEnqueueMainExecutor => Some((0, None)),
        SwiftTaskEnqueueGlobalWithDelay => Some((1, None)),
        // Seconds, nanoseconds, the same of the tolerance, which clock.
        SwiftTaskEnqueueGlobalWithDeadline => Some((5, None)),
        SwiftTaskEnqueueOnDispatchQueue => Some((0, Some(1))),
        _ => None,
    }
}

fn runs(watched: Watched) -> bool {
    use Watched::*;
    matches!(watched, SwiftJobRun | SwiftJobRunOnTaskExecutor | SwiftJobRunOnBothExecutors)
}

pub(super) fn entered(
    thread: &mut Thread,
    watched: Watched,
    arguments: [u64; 6],
    entry: &Entry,
    before: Option<Watched>,
) {
    use Watched::*;
    let [first, second, ..] = arguments;
    let at = (entry.entered, entry.entered);
    let task = here(thread, entry.entered);
    // One of the functions that create a task calls another.
    let is_creating = thread.notes.last(|note| creates(note.watched)).is_some();
    let mut tell = |keys: &[_]| tell(thread, watched, EventKind::Call, at, keys);
    match watched {
        SwiftTaskCreate | SwiftTaskCreateCommon if !is_creating => {
            let (parent, is_child) = task.map_or((0, 0), |(_, id)| (id, 1));
            note(thread, watched, [first, parent, is_child, 0, 0, 0], entry);
        }
        SwiftTaskEnqueue
        | SwiftTaskEnqueueGlobal
        | SwiftTaskEnqueueGlobalWithDelay
        | SwiftTaskEnqueueGlobalWithDeadline
        | SwiftTaskEnqueueMainExecutor
        | SwiftTaskEnqueueOnDispatchQueue
        | SwiftTaskEnqueueTaskOnExecutor => enqueued(thread, watched, arguments, entry, before),
        SwiftJobRun | SwiftJobRunOnTaskExecutor | SwiftJobRunOnBothExecutors => {
            run(thread, first, Some(second), entry);
            start_seeking(thread, first, entry);
        }
        SwiftRunJob => {
            // A job that is given to a thread as such is told already. One that an actor runs is not.
            let is_told = thread.notes.last(|note| runs(note.watched)).is_some_and(|note| note.arguments[0] == first);
            // SAFETY: the runtime is about to run it.
            if !is_told && unsafe { task_of(first) }.is_some() {
                run(thread, first, None, entry);
            }
        }
        SwiftContinuationInit => note(thread, watched, arguments, entry),
        SwiftContinuationAwait => tell(&[task, Some((Key::Continuation, landmark::current_task()))]),
        SwiftContinuationResume | SwiftContinuationThrowingResume | SwiftContinuationThrowingResumeWithError => {
            // SAFETY: it is suspended, so it is alive.
            let resumed = unsafe { task_of(first) }.map(|id| (Key::Task, id));
            let error = (watched == SwiftContinuationThrowingResumeWithError).then_some((Key::Error, second));
            tell(&[resumed, Some((Key::Continuation, first)), error]);
        }
        // SAFETY: who cancels a task has a reference to it.
        SwiftTaskCancel => tell(&[unsafe { task_of(first) }.map(|id| (Key::Task, id))]),
        SwiftTaskSwitch => tell(&[task, Some((Key::Executor, second))]),
        SwiftTaskFutureWait | SwiftTaskFutureWaitThrowing => tell(&[task, Some((Key::Job, second))]),
        SwiftAsyncLetBegin | SwiftAsyncLetGet | SwiftAsyncLetGetThrowing | SwiftAsyncLetFinish => {
            tell(&[task]);
        }
        SwiftTaskGroupInitialize | SwiftTaskGroupCancelAll | SwiftTaskGroupDestroy | SwiftTaskGroupAddPending => {
            tell(&[task, Some((Key::Group, first))]);
        }
        SwiftTaskGroupAttachChild => tell(&[task, Some((Key::Group, first)), Some((Key::Job, second))]),
        SwiftTaskGroupInitializeWithFlags => {
            tell(&[task, Some((Key::Group, second)), Some((Key::Flags, first))]);
        }
        SwiftTaskGroupWaitNextThrowing | SwiftTaskGroupWaitAll => {
            tell(&[task, Some((Key::Group, second))]);
        }
        SwiftTaskFutureComplete => completed(thread, task, entry),
        _ => {}
    }
}

/// A job was given to an executor.
fn enqueued(thread: &mut Thread, watched: Watched, arguments: [u64; 6], entry: &Entry, before: Option<Watched>) {
    let Some((job, executor)) = enqueues(watched) else { return };
    let job = arguments[job];
    // SAFETY: a job that is to run is alive.
    let task = unsafe { task_of(job) };
    if let Some(id) = task
        && let Some(creation) = thread.notes.last(|note| creates(note.watched))
    {
        thread.notes.take(creation.slot);
        created(thread, &creation, job, id, entry.entered);
    }
    // One such function calls another.
    let is_same = |note: &Note| enqueues(note.watched).is_some_and(|(place, _)| note.arguments[place] == job);
    let jumped = before.is_some_and(|before| enqueues(before).is_some());
    if jumped || thread.notes.last(is_same).is_some() {
        return;
    }
    let executor = executor.map(|executor| (Key::Executor, arguments[executor]));
    let keys = [task.map(|id| (Key::Task, id)), Some((Key::Job, job)), executor];
    tell(thread, watched, EventKind::Call, (entry.entered, entry.entered), &keys);
    note(thread, watched, arguments, entry);
}

/// A task is there that has not been given to anybody yet.
fn created(thread: &mut Thread, creation: &Note, job: u64, id: u64, time: u64) {
    // SAFETY: the task has just been made and nobody runs it, so it has its first context.
    let completion = unsafe {
        let context = *((job as usize + CONTEXT) as *const usize);
        if context == 0 { 0 } else { *((context + COMPLETION) as *const usize) }
    };
    if landmark::is_in(Landmark::Swift, completion) {
        // SAFETY: it is the function that the task will end with.
        unsafe { mark::watch(completion, Watched::SwiftTaskFutureComplete) };
    }
    let [flags, parent, is_child, ..] = creation.arguments;
    let parent = (is_child == 1).then_some((Key::Parent, parent));
    let keys = [Some((Key::Task, id)), parent, Some((Key::Job, job)), Some((Key::Flags, flags))];
    tell(thread, Watched::SwiftTaskCreate, EventKind::Call, (creation.entered, time), &keys);
}

/// A thread starts to run a job.
fn run(thread: &mut Thread, job: u64, executor: Option<u64>, entry: &Entry) {
    // SAFETY: what is run is alive.
    let task = unsafe { task_of(job) };
    let before = thread.notes.substream;
    if let Some(id) = task {
        busy_with(thread, id, entry.entered);
    }
    let executor = executor.map(|executor| (Key::Executor, executor));
    let keys = [task.map(|id| (Key::Task, id)), Some((Key::Job, job)), executor];
    tell(thread, Watched::SwiftJobRun, EventKind::Call, (entry.entered, entry.entered), &keys);
    let (id, is_task) = task.map_or((0, 0), |id| (id, 1));
    note(thread, Watched::SwiftJobRun, [job, id, is_task, before, 0, 0], entry);
}

/// How often the private function that runs a job is still looked for. 0 once it is known.
static TRIES: AtomicU32 = AtomicU32::new(0);
const MOST_TRIES: u32 = 64;

pub(super) fn prepare() {
    // ORDERING: a count that need not be exact.
    TRIES.store(MOST_TRIES, Ordering::Relaxed);
}

/// Looks for the function that runs a job, which is the one that `swift_job_run` calls with it.
fn start_seeking(thread: &mut Thread, job: u64, entry: &Entry) {
    const CALLS: u32 = 16;
    // ORDERING: a count that need not be exact.
    let tries = TRIES.load(Ordering::Relaxed);
    if tries > 0 {
        TRIES.store(tries - 1, Ordering::Relaxed);
        (thread.notes.seeking, thread.notes.sought_job) = (CALLS, job);
        thread.notes.sought_by = entry.header().function;
        look_on(thread);
    }
}

/// A function was entered: perhaps the one that is looked for.
pub(super) fn seek(thread: &mut Thread, argument: u64, entry: &Entry, caller: usize) {
    /// More than `swift_job_run` has.
    const BYTES: usize = 1024;
    thread.notes.seeking -= 1;
    if argument == thread.notes.sought_job && caller.wrapping_sub(thread.notes.sought_by) < BYTES {
        // SAFETY: it has just been called, as what it is now known to be.
        unsafe { mark::watch(entry.header().function, Watched::SwiftRunJob) };
        // ORDERING: as above.
        TRIES.store(0, Ordering::Relaxed);
        thread.notes.seeking = 0;
    } else if thread.notes.is_seeking() {
        look_on(thread);
    }
}

/// A task has come to its end.
fn completed(thread: &mut Thread, task: Option<(Key, u64)>, entry: &Entry) {
    let Some((_, id)) = task else { return };
    // One such function jumps to another.
    if thread.notes.completed == id {
        return;
    }
    thread.notes.completed = id;
    let error = Some(thread.notes.error).filter(|error| *error != 0).map(|error| (Key::Error, error));
    let keys = [task, error];
    tell(thread, Watched::SwiftTaskFutureComplete, EventKind::Call, (entry.entered, entry.entered), &keys);
}

/// A call of which there is a note returns.
pub(super) fn left(thread: &mut Thread, note: &Note, result: u64, time: u64) {
    match note.watched {
        Watched::SwiftTaskCreate | Watched::SwiftTaskCreateCommon => {
            // SAFETY: it was made for the caller, and given to nobody else yet.
            if let Some(id) = unsafe { task_of(result) } {
                created(thread, note, result, id, time);
            }
        }
        Watched::SwiftContinuationInit => {
            // SAFETY: it is the task that runs here.
            let task = unsafe { task_of(result) }.map(|id| (Key::Task, id));
            let keys = [task, Some((Key::Continuation, result)), Some((Key::Flags, note.arguments[1]))];
            tell(thread, note.watched, EventKind::Call, (note.entered, time), &keys);
        }
        watched if runs(watched) => ran(thread, note, EventKind::Return, time),
        _ => {}
    }
}

/// A call of which there is a note was left without returning.
pub(super) fn unwound(thread: &mut Thread, note: &Note, time: u64) {
    if runs(note.watched) {
        ran(thread, note, EventKind::Exception, time);
    }
}

fn ran(thread: &mut Thread, note: &Note, phase: EventKind, time: u64) {
    let [job, id, is_task, before, ..] = note.arguments;
    let task = (is_task == 1).then_some((Key::Task, id));
    tell(thread, note.watched, phase, (note.entered, time), &[task, Some((Key::Job, job))]);
    busy_with(thread, before, time);
}
