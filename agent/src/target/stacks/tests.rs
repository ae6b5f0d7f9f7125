//! Calls, returns, jumps, handlers, switches between stacks and threads that end, in random order, on stacks that are only
//! memory: whatever happens, a function returns to where it was called from.

use std::{
    fs::File,
    os::fd::FromRawFd,
    sync::mpsc::{Sender, channel},
    thread::{self as std_thread, JoinHandle},
};

use super::*;
use crate::{
    shared::Arena,
    target::{open, shadow, slow},
};

const FUNCTIONS: usize = 8;
const STACK: usize = 64 << 10;
const PAGE: usize = 4096;

/// A function, as its stub describes it.
#[repr(C)]
struct Stub {
    header: [u64; 4],
    code: [u8; 64],
}

/// What is on one of the stacks.
#[derive(Default)]
struct Real {
    low: usize,
    high: usize,
    frames: Vec<Called>,
}

#[derive(Clone, Copy)]
struct Called {
    slot: usize,
    /// Where it returns to.
    real: usize,
    /// What is in its slot while it runs, if its return is seen.
    armed: Option<usize>,
}

/// A thread of the system that does what it is told.
struct Worker {
    tasks: Sender<Box<dyn FnOnce() + Send>>,
    thread: JoinHandle<()>,
    /// The stacks that it runs on, one in the handler of another. The first is its own.
    runs_on: Vec<usize>,
}

impl Worker {
    fn start(own: usize) -> Self {
        let (tasks, received) = channel::<Box<dyn FnOnce() + Send>>();
        let thread = std_thread::spawn(move || received.into_iter().for_each(|task| task()));
        Self { tasks, thread, runs_on: vec![own] }
    }

    fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        self.tasks.send(Box::new(move || drop(done.send(task())))).expect("the thread is there");
        result.recv().expect("the thread does it")
    }

    fn here(&self) -> usize {
        *self.runs_on.last().expect("a stack")
    }

    fn end(self) {
        drop(self.tasks);
        self.thread.join().expect("it ends");
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// All of it: what there is, and what should be.
struct World {
    stubs: &'static [Stub],
    stacks: Vec<Real>,
    workers: Vec<Worker>,
    /// Stacks on which coroutines run, which any thread may go on with.
    coroutines: Vec<usize>,
    random: Random,
    next_real: usize,
    hooked: u64,
    passed: u64,
}

impl World {
    fn call(&mut self, worker: usize) {
        let at = self.workers[worker].here();
        let stack = &self.stacks[at];
        let sp = stack.frames.last().map_or(stack.high - 64, |frame| frame.slot);
        let slot = sp - 16 * (1 + self.random.below(16));
        if slot < stack.low + 4096 {
            return self.return_(worker);
        }
        let stub = &raw const self.stubs[self.random.below(FUNCTIONS)] as usize + shadow::FROM_HEADER;
        self.next_real += 16;
        let (real, entered) = (self.next_real, slot - 12 * 8);
        // SAFETY: the stack's memory, below what is in use.
        unsafe {
            *(slot as *mut usize) = real;
            *((slot - 8) as *mut usize) = stub;
        }
        self.workers[worker].run(move || {
            // SAFETY: as the assembly calls it.
            slow::enter(unsafe { &mut *(entered as *mut slow::Entered) }, 0, 0);
        });
        // SAFETY: as above.
        let is_hooked = unsafe { *((slot - 8) as *const usize) } == stub;
        let armed = is_hooked.then_some(stub + 10);
        if let Some(armed) = armed {
            // SAFETY: as above. The stub calls.
            unsafe { *(slot as *mut usize) = armed };
        }
        (self.hooked, self.passed) = (self.hooked + u64::from(is_hooked), self.passed + u64::from(!is_hooked));
        self.stacks[at].frames.push(Called { slot, real, armed });
    }

    fn return_(&mut self, worker: usize) {
        let at = self.workers[worker].here();
        let Some(frame) = self.stacks[at].frames.pop() else { return };
        // SAFETY: the stack's memory.
        let found = unsafe { *(frame.slot as *const usize) };
        if Some(found) == frame.armed {
            let left = frame.slot - 11 * 8;
            // SAFETY: as the assembly calls it.
            self.workers[worker].run(move || slow::leave(unsafe { &mut *(left as *mut slow::Left) }));
        }
        // SAFETY: the stack's memory.
        assert_eq!(unsafe { *(frame.slot as *const usize) }, frame.real, "it returns to where it was called from");
    }

    fn step(&mut self) {
        let worker = self.random.below(self.workers.len());
        let (at, handler) = (self.workers[worker].here(), worker + self.workers.len());
        let is_in_handler = self.workers[worker].runs_on.len() > 1 && !self.coroutines.contains(&at);
        match self.random.below(100) {
            0..45 => self.call(worker),
            45..80 => self.return_(worker),
            // A jump over some functions.
            80..84 => {
                let keep = self.random.below(self.stacks[at].frames.len() + 1);
                self.stacks[at].frames.truncate(keep);
            }
            // A handler on a stack for that, or its end.
            84..88 if is_in_handler => {
                self.stacks[at].frames.clear();
                self.workers[worker].runs_on.pop();
            }
            84..88 if at != handler => self.workers[worker].runs_on.push(handler),
            // Another coroutine, or back to its own stack.
            88..97 if !is_in_handler => {
                let next = self.coroutines[self.random.below(self.coroutines.len())];
                self.workers[worker].runs_on.truncate(1);
                if !self.workers.iter().any(|worker| worker.runs_on.contains(&next)) {
                    self.workers[worker].runs_on.push(next);
                }
            }
            // A coroutine is given up, and another has its stack.
            97 => {
                let gone = self.coroutines[self.random.below(self.coroutines.len())];
                if !self.workers.iter().any(|worker| worker.runs_on.contains(&gone)) {
                    self.stacks[gone].frames.clear();
                }
            }
            // The thread ends, and another has its stack.
            98 if self.random.below(8) == 0 => {
                self.stacks[worker].frames.clear();
                self.stacks[handler].frames.clear();
                let new = Worker::start(worker);
                std::mem::replace(&mut self.workers[worker], new).end();
            }
            _ => {}
        }
    }
}

fn map(bytes: usize) -> usize {
    sys::map(bytes).expect("memory") as usize
}

/// A stack with nothing mapped on either side.
fn guarded() -> (usize, usize) {
    let at = map(STACK + 2 * PAGE);
    for guard in [at, at + PAGE + STACK] {
        // SAFETY: it was mapped just now.
        unsafe { sys::call(sys::MPROTECT, [guard, PAGE, 0, 0, 0, 0]) };
    }
    (at + PAGE, at + PAGE + STACK)
}

#[test]
fn a_function_returns_to_where_it_was_called_from() {
    let descriptor = open::spoor_open(1 << 16, 4096, 0, 0);
    // SAFETY: it was opened just now, and is nobody else's.
    let arena = Arena::map(unsafe { File::from_raw_fd(descriptor as i32) }).expect("it is laid out well");
    let stub = |number: usize| Stub { header: [0x1000 + number as u64, 0, 0, (number as u64) << 40], code: [0; 64] };
    let stubs: &'static [Stub] = Box::leak((0..FUNCTIONS).map(stub).collect());
    // Coroutines on stacks that the program tells of, on others of their own, and on some that lie side by side.
    for (seed, packed) in [(1, false), (2, true), (3, false), (4, true)] {
        const WORKERS: usize = 4;
        const COROUTINES: usize = 40;
        let mut places: Vec<_> = (0..WORKERS).map(|_| guarded()).collect();
        let handlers: Vec<_> = (0..WORKERS).map(|_| guarded()).collect();
        places.extend(&handlers);
        let side_by_side = map(COROUTINES * STACK);
        for number in 0..COROUTINES {
            let low = side_by_side + number * STACK;
            places.push(if packed && number % 2 == 0 { (low, low + STACK) } else { guarded() });
        }
        let stacks = places.iter().map(|(low, high)| Real { low: *low, high: *high, frames: Vec::new() }).collect();
        let workers: Vec<_> = (0..WORKERS).map(Worker::start).collect();
        let told = places.iter().skip(2 * WORKERS).step_by(4).chain(&handlers).copied().collect::<Vec<_>>();
        workers[0].run(move || {
            told.into_iter().for_each(|(low, high)| learn(low, high));
        });
        let coroutines = (2 * WORKERS..2 * WORKERS + COROUTINES).collect();
        let random = Random(seed);
        let mut world =
            World { stubs, stacks, workers, coroutines, random, next_real: 0x10_0000, hooked: 0, passed: 0 };
        for _ in 0..60_000 {
            world.step();
            // Rings of threads that have ended are taken by others.
            if world.random.below(64) == 0 {
                let live: Vec<_> = world.workers.iter().map(|worker| worker.run(sys::gettid)).collect();
                for ring in 0..arena.rings_used() {
                    let head = arena.head(ring);
                    if head.is_live() && !live.contains(&head.tid.load(Ordering::Relaxed)) {
                        arena.free(ring);
                    }
                }
            }
        }
        let World { hooked, passed, .. } = world;
        // Where nobody has said that it is a stack, a thread that leaves without a call or return keeps it for a moment.
        let most = if packed { hooked } else { hooked / 1000 };
        assert!(hooked > 20_000 && passed < most, "{hooked} calls were recorded, {passed} were not");
        world.workers.into_iter().for_each(Worker::end);
    }
}
