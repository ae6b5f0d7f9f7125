//! Calls, returns, jumps, handlers, switches between stacks and threads that end, in random order, on stacks that are only
//! memory: whatever happens, a function returns to where it was called from.

use std::{
    arch::asm,
    fs::File,
    os::fd::FromRawFd,
    sync::mpsc::{Sender, channel},
    thread::{self as std_thread, JoinHandle},
};

use super::*;
use crate::{
    shared::Arena,
    target::{open, routines, shadow},
};

const FUNCTIONS: usize = 8;
const STACK: usize = 64 << 10;
const PAGE: usize = 4096;

/// What the routines may need of a stack, below the function that called them.
const BELOW: usize = 24 << 10;

/// Places that functions are called from. There are so many that none is in use twice at once.
const CALLERS: usize = 1 << 16;

/// Where the code of a stub is, how long it is in all, and where enter returns to that is to leave the return alone.
const STUB: usize = 64;
const PASSED: usize = shadow::FROM_HEADER + 16;

/// What a caller does when a function returns to it: it says where it is.
const CALLER: [u8; 10] = [0x48, 0x8D, 0x05, 0xF9, 0xFF, 0xFF, 0xFF, 0x41, 0xFF, 0xE5];

/// What a stub does behind enter: it says which way enter took.
const HOOKED: [u8; 8] = [0xB8, 1, 0, 0, 0, 0x41, 0xFF, 0xE5];
const LEFT_ALONE: [u8; 5] = [0x31, 0xC0, 0x41, 0xFF, 0xE5];

/// The code of the functions' stubs and of their callers.
#[derive(Clone, Copy)]
struct Code {
    stubs: usize,
    callers: usize,
}

impl Code {
    fn new() -> Self {
        let bytes = (FUNCTIONS * STUB).next_multiple_of(PAGE) + 16 * CALLERS;
        let stubs = map(bytes);
        let callers = stubs + (FUNCTIONS * STUB).next_multiple_of(PAGE);
        let write = |at: usize, code: &[u8]| {
            // SAFETY: it was mapped just now.
            unsafe { ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len()) };
        };
        for number in 0..FUNCTIONS {
            let stub = stubs + number * STUB;
            let header = [0x1000 + number, 0, 0, number << 40].map(usize::to_le_bytes);
            write(stub, header.as_flattened());
            write(stub + shadow::FROM_HEADER, &HOOKED);
            write(stub + PASSED, &LEFT_ALONE);
        }
        (0..CALLERS).for_each(|caller| write(callers + 16 * caller, &CALLER));
        // SAFETY: as above.
        unsafe { sys::call(sys::MPROTECT, [stubs, bytes, 5, 0, 0, 0]) };
        Self { stubs, callers }
    }
}

/// Goes on in a routine, on another stack, until somebody there jumps back. What that one says.
fn go(routine: usize, stack_pointer: usize) -> usize {
    let said;
    // SAFETY: the routines keep all registers but the one for what is said. The stack is mapped, with room below.
    unsafe {
        asm!(
            "mov r12, rsp",
            "lea r13, [rip + 2f]",
            "mov rsp, {stack_pointer}",
            "jmp {routine}",
            "2:",
            "mov rsp, r12",
            stack_pointer = in(reg) stack_pointer,
            routine = in(reg) routine,
            out("rax") said,
            out("r12") _,
            out("r13") _,
            clobber_abi("C"),
        );
    }
    said
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
    code: Code,
    stacks: Vec<Real>,
    workers: Vec<Worker>,
    /// Stacks on which coroutines run, which any thread may go on with.
    coroutines: Vec<usize>,
    random: Random,
    next_caller: usize,
    /// Stacks that the program tells of.
    told: Vec<usize>,
    hooked: u64,
    passed: u64,
}

impl World {
    fn call(&mut self, worker: usize) {
        let at = self.workers[worker].here();
        let stack = &self.stacks[at];
        let sp = stack.frames.last().map_or(stack.high - 64, |frame| frame.slot);
        let slot = sp - 16 * (1 + self.random.below(16));
        if slot < stack.low + BELOW {
            return self.return_(worker);
        }
        let stub = self.code.stubs + STUB * self.random.below(FUNCTIONS) + shadow::FROM_HEADER;
        self.next_caller = (self.next_caller + 1) % CALLERS;
        let real = self.code.callers + 16 * self.next_caller;
        // SAFETY: the stack's memory, below what is in use.
        unsafe {
            *(slot as *mut usize) = real;
            *((slot - 8) as *mut usize) = stub;
        }
        let enter = routines::spoor_enter_index as *const () as usize;
        let is_hooked = self.workers[worker].run(move || go(enter, slot - 8)) == 1;
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
        let to = match Some(found) == frame.armed {
            true => {
                let leave = routines::spoor_leave_index as *const () as usize;
                self.workers[worker].run(move || go(leave, frame.slot + 8))
            }
            false => found,
        };
        assert_eq!(to, frame.real, "it returns to where it was called from");
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
                    if self.told.contains(&gone) {
                        let Real { low, high, .. } = self.stacks[gone];
                        self.workers[worker].run(move || learn(low, high));
                    }
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

/// Memory with nothing mapped on either side.
fn guarded(bytes: usize) -> (usize, usize) {
    let at = map(bytes + 2 * PAGE);
    for guard in [at, at + PAGE + bytes] {
        // SAFETY: it was mapped just now.
        unsafe { sys::call(sys::MPROTECT, [guard, PAGE, 0, 0, 0, 0]) };
    }
    (at + PAGE, at + PAGE + bytes)
}

/// Where coroutines have their stacks, and whether the program tells of each.
fn coroutine_stacks(count: usize, packed: bool) -> Vec<((usize, usize), bool)> {
    let unknown = map(count * STACK);
    let four = |number: usize| {
        let low = unknown + number * STACK;
        let (around, end) = guarded(2 * STACK);
        let second = if packed { ((low, low + STACK), false) } else { (guarded(STACK), true) };
        // What is told of lies in what looks like a stack, and is one.
        [(guarded(STACK), false), second, ((around, around + STACK), false), ((around + STACK, end), true)]
    };
    (0..count / 4).flat_map(four).collect()
}

#[test]
fn a_function_returns_to_where_it_was_called_from() {
    const WORKERS: usize = 4;
    const FIRST: usize = 2 * WORKERS;
    let descriptor = open::spoor_open(1 << 16, 4096, 0, 0);
    // SAFETY: it was opened just now, and is nobody else's.
    let arena = Arena::map(unsafe { File::from_raw_fd(descriptor as i32) }).expect("it is laid out well");
    let code = Code::new();
    let seeds = std::env::var("SPOOR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4);
    for seed in 1..=seeds {
        // Some that are used by turns, and a few that are fought for.
        let (packed, count) = (seed % 2 == 0, if seed % 4 < 2 { 8 } else { 40 });
        let coroutines = coroutine_stacks(count, packed);
        let mut places: Vec<_> = (0..FIRST).map(|_| guarded(STACK)).collect();
        places.extend(coroutines.iter().map(|(place, _)| *place));
        let told: Vec<_> = (FIRST..).zip(&coroutines).filter(|(_, (_, is_told))| *is_told).map(|(at, _)| at).collect();
        let workers: Vec<_> = (0..WORKERS).map(Worker::start).collect();
        // The stacks for handlers, too.
        for (low, high) in (WORKERS..FIRST).chain(told.iter().copied()).map(|stack| places[stack]) {
            workers[0].run(move || learn(low, high));
        }
        let stacks = places.iter().map(|(low, high)| Real { low: *low, high: *high, frames: Vec::new() }).collect();
        let coroutines = (FIRST..FIRST + count).collect();
        let random = Random(seed);
        let mut world = World { code, stacks, workers, coroutines, random, next_caller: 0, told, hooked: 0, passed: 0 };
        for _ in 0..60_000 {
            world.step();
            if world.random.below(64) == 0 {
                read(&arena, &world.workers);
            }
        }
        let World { hooked, passed, .. } = world;
        // Where nobody has said that it is a stack, a thread that leaves without a call or return keeps it for a moment.
        let most = if packed { hooked } else { hooked / 1000 };
        assert!(hooked > 20_000 && passed < most, "seed {seed}: {hooked} calls were recorded, {passed} were not");
        world.workers.into_iter().for_each(Worker::end);
    }
}

/// Empties the rings. Those of threads that have ended are taken by others.
fn read(arena: &Arena, workers: &[Worker]) {
    let live: Vec<_> = workers.iter().map(|worker| worker.run(sys::gettid)).collect();
    for ring in (0..arena.rings_used()).filter(|ring| arena.head(*ring).is_live()) {
        let head = arena.head(ring);
        match live.contains(&head.tid.load(Ordering::Relaxed)) {
            true => arena.advance(ring, head.written.load(Ordering::Relaxed)),
            false => arena.free(ring),
        }
    }
}
