//! Random well-formed executions, and what must come out of them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use codec::{
    EventKind, Position, StreamId,
    profile::Key,
    span::{Reason, SpanId, SpanKind, SpanStatus},
};

use crate::script::{Script, Step};

/// A span that must be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    pub(crate) kind: SpanKind,
    pub(crate) key: Option<u64>,
    pub(crate) start: u64,
    pub(crate) end: Option<u64>,
    pub(crate) parent: Option<SpanId>,
    pub(crate) status: SpanStatus,
    pub(crate) reason: Option<Reason>,
    pub(crate) stream: u32,
    /// Where its return is told, of frames, and where it starts to run, of logical spans.
    pub(crate) left: Option<u64>,
    pub(crate) begun: Option<u64>,
}

/// What a frame is the code of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Plain,
    Routine(SpanId, u64),
    Block(SpanId, u64),
    Job(SpanId, u64),
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    id: SpanId,
    role: Role,
}

/// A made-up program that runs.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) script: Script,
    pub(crate) expected: BTreeMap<SpanId, Expected>,
    now: u64,
    stacks: HashMap<u32, Vec<Frame>>,
    ended: Vec<u32>,
    streams: u32,
    keys: u64,
    /// Threads that are created and have not started: span, argument, handle.
    unborn: VecDeque<(SpanId, u64)>,
    /// Threads that have ended and were not detached.
    joinable: Vec<u64>,
    submitted: VecDeque<(SpanId, u64)>,
    /// Tasks that can run, and those that are suspended: task, its span, continuation and its span.
    runnable: VecDeque<(u64, SpanId)>,
    suspended: VecDeque<(u64, SpanId, u64, SpanId)>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Model {
    /// Runs a program that does what these bytes say.
    pub(crate) fn run(choices: &[(u8, u8)]) -> Self {
        let mut model = Self { streams: 2, ..Self::default() };
        model.script.entry_only("probe");
        for (what, who) in choices {
            let stream = u32::from(*who) % model.streams;
            if !model.ended.contains(&stream) {
                model.act(stream, *what, usize::from(*who));
            }
        }
        model.finish();
        model
    }

    fn tick(&mut self) -> u64 {
        self.now += 10;
        self.now
    }

    fn key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    fn stack(&mut self, stream: u32) -> &mut Vec<Frame> {
        self.stacks.entry(stream).or_default()
    }

    fn position(&self) -> u64 {
        let told = self.script.steps.iter().rev().find_map(|step| match step {
            Step::Event(told) => Some(told.position),
            _ => None,
        });
        told.expect("an event")
    }

    fn expect(&mut self, id: SpanId, kind: SpanKind, stream: u32, at: u64, key: Option<u64>, parent: Option<SpanId>) {
        let (status, reason) = (SpanStatus::Unmatched, Some(Reason::ProcessExit));
        let (left, begun, end) = (None, None, None);
        self.expected.insert(id, Expected { kind, key, start: at, end, parent, status, reason, stream, left, begun });
    }

    fn end(&mut self, id: SpanId, at: u64, reason: Option<Reason>) {
        let position = self.position();
        let span = self.expected.get_mut(&id).expect("a span");
        (span.end, span.reason, span.left) = (Some(at), reason, Some(position));
        span.status = match reason {
            None => SpanStatus::Matched,
            Some(Reason::Canceled) => SpanStatus::Canceled,
            Some(_) => SpanStatus::Unmatched,
        };
    }

    fn begin(&mut self, id: SpanId, stream: u32, at: u64) {
        let position = self.position();
        let span = self.expected.get_mut(&id).expect("a span");
        (span.start, span.stream, span.reason) = (at, stream, Some(Reason::ProcessExit));
        span.begun = Some(position);
    }

    /// What the thread runs: the innermost logical span, or else the innermost frame.
    fn running(&mut self, stream: u32) -> Option<SpanId> {
        let logical = self.stack(stream).iter().rev().find_map(|frame| match frame.role {
            Role::Plain => None,
            Role::Routine(id, _) | Role::Block(id, _) | Role::Job(id, _) => Some(id),
        });
        logical.or(self.stack(stream).last().map(|frame| frame.id))
    }

    fn call(&mut self, stream: u32, at: u64, name: &'static str) -> SpanId {
        let parent = self.stack(stream).last().map(|frame| frame.id);
        let id = self.script.call(stream, at, name);
        self.stack(stream).push(Frame { id, role: Role::Plain });
        self.expect(id, SpanKind::Frame, stream, at, None, parent);
        id
    }

    fn ret(&mut self, stream: u32, at: u64) {
        let frame = self.stack(stream).pop().expect("a frame");
        self.script.ret(stream, at);
        self.end(frame.id, at, None);
    }

    /// A library function that tells something, with its frame.
    fn tells(&mut self, stream: u32, function: &'static str, keys: &[(Key, u64)]) -> SpanId {
        let at = self.tick();
        self.call(stream, at, function);
        let id = self.script.runtime(stream, at, function, keys);
        let end = self.tick();
        self.ret(stream, end);
        id
    }

    /// A frame that is the code of something, which starts with it.
    fn runs(&mut self, stream: u32, function: &'static str, keys: &[(Key, u64)], role: impl Fn(SpanId) -> Role) -> u64 {
        let at = self.tick();
        self.call(stream, at, "code");
        let id = self.script.runtime(stream, at, function, keys);
        self.stack(stream).last_mut().expect("a frame").role = role(id);
        at
    }

    fn act(&mut self, stream: u32, what: u8, choice: usize) {
        let top = self.stack(stream).last().copied();
        match what % 22 {
            0..=3 => {
                let at = self.tick();
                self.call(stream, at, NAMES[choice % NAMES.len()]);
            }
            4..=7 => {
                if let Some(frame) = top {
                    self.leave(stream, frame);
                }
            }
            8 => self.tail_call(stream, choice),
            9 => {
                let (at, parent) = (self.tick(), top.map(|frame| frame.id));
                let id = self.script.probe(stream, at, "probe");
                self.expect(id, SpanKind::Frame, stream, at, None, parent);
                self.expected.get_mut(&id).expect("it").reason = Some(Reason::EntryOnly);
            }
            10 => self.throw(stream, choice),
            11 => self.handle_signal(stream, choice),
            12 => self.create_thread(stream),
            13 => self.submit(stream),
            14 => self.execute(stream),
            15 => {
                let task = self.key();
                let parent = self.running_task(stream);
                let id = self.tells(stream, "swift_task_create", &[(Key::Task, task)]);
                self.expect(id, SpanKind::Task, stream, self.now - 10, Some(task), parent);
                self.runnable.push_back((task, id));
            }
            16 | 17 => self.run_job(stream),
            18 => self.suspend(stream),
            19 => self.cancel(stream),
            20 => {
                if let Some(handle) = self.joinable.pop() {
                    let at = self.tick();
                    self.call(stream, at, "pthread_join");
                    self.script.runtime(stream, at, "pthread_join", &[(Key::Pthread, handle)]);
                    let end = self.tick();
                    let keys = [(Key::Result, 0), (Key::Pthread, handle), (Key::ExitValue, 0)];
                    self.script.runtime_left(stream, (at, end), "pthread_join", EventKind::Return, &keys);
                    self.ret(stream, end);
                }
            }
            _ => {
                if let Some((task, id, continuation, suspension)) = self.suspended.pop_front() {
                    let keys = [(Key::Task, task), (Key::Continuation, continuation)];
                    self.tells(stream, "swift_continuation_resume", &keys);
                    let at = self.now - 10;
                    self.end(suspension, at, None);
                    self.runnable.push_back((task, id));
                }
            }
        }
    }

    /// A task that is suspended is canceled, and never heard of again.
    fn cancel(&mut self, stream: u32) {
        let Some((task, id, _, suspension)) = self.suspended.pop_front() else { return };
        self.tells(stream, "swift_task_cancel", &[(Key::Task, task)]);
        let at = self.now - 10;
        for id in [id, suspension] {
            self.end(id, at, Some(Reason::Canceled));
        }
    }

    /// Of a job, it is the task.
    fn running_task(&mut self, stream: u32) -> Option<SpanId> {
        let running = self.running(stream)?;
        match self.expected.get(&running) {
            Some(span) if span.kind == SpanKind::Job => span.parent,
            _ => Some(running),
        }
    }

    fn leave(&mut self, stream: u32, frame: Frame) {
        let at = self.tick();
        match frame.role {
            Role::Plain => return self.ret(stream, at),
            Role::Routine(id, handle) => {
                let keys = [(Key::Pthread, handle), (Key::ExitValue, 0)];
                self.ran(stream, at, id, "pthread_start_routine", EventKind::Return, &keys);
                self.end(id, at, None);
                self.ended.push(stream);
                if handle.is_multiple_of(2) {
                    self.joinable.push(handle);
                }
            }
            Role::Block(id, block) => {
                let keys = [(Key::Block, block), (Key::Invoke, 1)];
                self.ran(stream, at, id, "_dispatch_client_callout", EventKind::Return, &keys);
                self.end(id, at, None);
            }
            Role::Job(id, task) => {
                // Its task ends with it.
                let task_span = self.expected.get(&id).and_then(|job| job.parent).expect("its task");
                let still = self.expected.get(&task_span).is_some_and(|task| task.end.is_none());
                if still && !self.suspended.iter().any(|(other, ..)| *other == task) {
                    self.tells(stream, "swift_task_future_complete", &[(Key::Task, task)]);
                    let at = self.now - 10;
                    self.end(task_span, at, None);
                }
                return self.end_job(stream, id, task);
            }
        }
        let position = self.position();
        self.stack(stream).pop();
        self.end(frame.id, at, None);
        // The runtime tells it right before.
        self.expected.get_mut(&frame.id).expect("a frame").left = Some(position);
    }

    fn end_job(&mut self, stream: u32, id: SpanId, task: u64) {
        let at = self.tick();
        let frame = self.stack(stream).pop().expect("a frame");
        self.ran(stream, at, id, "swift_job_run", EventKind::Return, &[(Key::Task, task)]);
        self.end(id, at, None);
        self.end(frame.id, at, None);
    }

    fn tail_call(&mut self, stream: u32, choice: usize) {
        let Some(frame) = self.stack(stream).pop() else { return };
        let at = self.tick();
        let parent = self.stack(stream).last().map(|frame| frame.id);
        let id = self.script.tail_call(stream, at, NAMES[choice % NAMES.len()]);
        self.end(frame.id, at, Some(Reason::TailCall));
        self.expected.get_mut(&frame.id).expect("it").left = None;
        // What it was the code of goes on.
        self.stack(stream).push(Frame { id, role: frame.role });
        self.expect(id, SpanKind::Frame, stream, at, None, parent);
    }

    /// When a logical span started to run, by which its end is told.
    fn entered(&self, id: SpanId) -> u64 {
        self.expected.get(&id).expect("a span").start
    }

    /// The runtime tells that its code is left; then the frame is.
    fn ran(&mut self, stream: u32, at: u64, id: SpanId, function: &'static str, kind: EventKind, keys: &[(Key, u64)]) {
        let start = self.entered(id);
        self.script.runtime_left(stream, (start, at), function, kind, keys);
        match kind {
            EventKind::Exception => self.script.unwind(stream, at),
            _ => self.script.ret(stream, at),
        }
    }

    /// Something throws, and some frames are left.
    fn throw(&mut self, stream: u32, choice: usize) {
        let (name, reason) =
            [("longjmp", Reason::Longjmp), ("__cxa_throw", Reason::Exception), ("unknown_leaver", Reason::Unwind)]
                [choice % 3];
        let at = self.tick();
        self.call(stream, at, name);
        let at = self.tick();
        for _ in 0..=choice % 4 {
            let can = |frame: &mut Frame| matches!(frame.role, Role::Plain | Role::Block(..));
            let Some(frame) = self.stack(stream).pop_if(can) else { return };
            if let Role::Block(id, block) = frame.role {
                let keys = [(Key::Block, block), (Key::Invoke, 1)];
                self.ran(stream, at, id, "_dispatch_client_callout", EventKind::Exception, &keys);
                self.end(id, at, Some(reason));
            } else {
                self.script.unwind(stream, at);
            }
            self.end(frame.id, at, Some(reason));
        }
    }

    /// A handler runs on a stack of its own, and something in it.
    fn handle_signal(&mut self, stream: u32, choice: usize) {
        if self.stack(stream).len() < 2 {
            return;
        }
        let own = std::mem::take(self.stack(stream));
        let before = self.script.other_stack(stream, Vec::new());
        let at = self.tick();
        self.call(stream, at, "handler");
        for _ in 0..choice % 3 {
            let at = self.tick();
            self.call(stream, at, "in_handler");
        }
        while !self.stack(stream).is_empty() {
            let at = self.tick();
            self.ret(stream, at);
        }
        self.stacks.insert(stream, own);
        self.script.other_stack(stream, before);
    }

    fn create_thread(&mut self, stream: u32) {
        if self.streams >= 7 {
            return;
        }
        if !self.unborn.is_empty() {
            return self.start_thread();
        }
        let key = self.key();
        let parent = self.running(stream);
        let at = self.tick();
        self.call(stream, at, "pthread_create");
        let keys = [(Key::StartRoutine, 5), (Key::Argument, key), (Key::Detached, key % 2)];
        let id = self.script.runtime(stream, at, "pthread_create", &keys);
        self.expect(id, SpanKind::Thread, stream, at, Some(key), parent);
        self.unborn.push_back((id, key));
        if key.is_multiple_of(3) {
            self.start_thread();
        }
        let end = self.tick();
        let told = [(Key::Result, 0), (Key::Pthread, key)];
        self.script.runtime_left(stream, (at, end), "pthread_create", EventKind::Return, &told);
        self.ret(stream, end);
    }

    /// The thread that waits longest starts.
    fn start_thread(&mut self) {
        let Some((id, key)) = self.unborn.pop_front() else { return };
        let new = self.streams;
        self.streams += 1;
        let keys = [(Key::Pthread, key), (Key::StartRoutine, 5), (Key::Argument, key)];
        let at = self.runs(new, "pthread_start_routine", &keys, |_| Role::Routine(id, key));
        self.begin(id, new, at);
    }

    fn submit(&mut self, stream: u32) {
        let (block, parent) = (self.key(), self.running(stream));
        let keys = [(Key::Block, block), (Key::Invoke, 1), (Key::Queue, 1)];
        let id = self.tells(stream, "dispatch_async", &keys);
        self.expect(id, SpanKind::Block, stream, self.now - 10, Some(block), parent);
        self.expected.get_mut(&id).expect("it").reason = Some(Reason::Pending);
        self.submitted.push_back((id, block));
    }

    fn execute(&mut self, stream: u32) {
        let Some((id, block)) = self.submitted.pop_front() else { return };
        let keys = [(Key::Block, block), (Key::Invoke, 1)];
        let at = self.runs(stream, "_dispatch_client_callout", &keys, |_| Role::Block(id, block));
        self.begin(id, stream, at);
    }

    fn run_job(&mut self, stream: u32) {
        let Some((task, id)) = self.runnable.pop_front() else { return };
        let keys = [(Key::Task, task), (Key::Job, 0x1000 + task)];
        let at = self.runs(stream, "swift_job_run", &keys, |job| Role::Job(job, task));
        let Some(Frame { role: Role::Job(job, _), .. }) = self.stack(stream).last().copied() else { return };
        if self.expected.get(&id).is_some_and(|task| task.begun.is_none()) {
            self.begin(id, stream, at);
        }
        self.expect(job, SpanKind::Job, stream, at, Some(0x1000 + task), Some(id));
    }

    fn suspend(&mut self, stream: u32) {
        let Some(Frame { role: Role::Job(job, task), .. }) = self.stack(stream).last().copied() else { return };
        let id = self.expected.get(&job).and_then(|job| job.parent).expect("its task");
        if self.expected.get(&id).is_some_and(|task| task.end.is_some()) {
            return;
        }
        let continuation = self.key();
        let keys = [(Key::Task, task), (Key::Continuation, continuation)];
        let suspension = self.tells(stream, "swift_continuation_init", &keys);
        self.expect(suspension, SpanKind::Suspension, stream, self.now - 10, Some(continuation), Some(id));
        self.suspended.push_back((task, id, continuation, suspension));
        self.end_job(stream, job, task);
    }

    fn finish(&mut self) {
        let unborn: Vec<SpanId> = self.unborn.iter().map(|(id, _)| *id).collect();
        for id in unborn {
            self.expected.get_mut(&id).expect("it").reason = Some(Reason::ProcessExit);
        }
    }

    /// The id of a span that is known only from an event at this place.
    pub(crate) fn id_at(stream: u32, position: u64) -> SpanId {
        SpanId::new(StreamId(stream), Position(position))
    }
}
