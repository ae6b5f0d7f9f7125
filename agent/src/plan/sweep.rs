//! One pass over all code: where branches land, and what each function does with its own return address.

use std::{
    num::NonZero,
    ops::Range,
    panic,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use gimli::UnwindContext;
use iced_x86::{Code as Op, Decoder, DecoderOptions, Instruction, OpKind, Register};

use super::{
    code::{Code, Marks, Section},
    frames::{Frame, Frames},
    image::Image,
    row::{Entry, Saves, Slot, entered},
    tables::Tables,
};

/// How much code is worth another thread.
const PART_BYTES: u64 = 1 << 18;

/// What one pass over all code has found.
#[derive(Debug)]
pub(super) struct Sweep<'a> {
    /// Where branches and calls land, and which addresses of code are taken.
    pub(super) targets: Marks<'a>,
    /// Where conditional branches from other frames land: compilers jump so within a function, and not to another.
    pub(super) branched: Marks<'a>,
    /// Where any jumps from other frames land: whoever makes such a jump may end with it, as in a tail call.
    pub(super) jumped: Marks<'a>,
    /// Where jumps from the same frame land.
    pub(super) looped: Marks<'a>,
    /// What is called, or has its address taken.
    pub(super) called: Marks<'a>,
    /// What is known of the body of each frame, in the order of the frames.
    pub(super) bodies: Vec<Body>,
}

/// What is known of the code of one unwind entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Body {
    /// How it is entered.
    pub(super) entry: Entry,
    /// Whether it reads or writes its own return address other than by returning.
    pub(super) touches_return: bool,
    /// Whether it unwinds the stack of its caller.
    pub(super) unwinds: bool,
}

impl<'a> Sweep<'a> {
    /// Goes through all code. The addresses in `starts` begin functions, whatever the code before them looks like.
    pub(super) fn of(image: &'a Image, frames: &Frames<'a>, starts: &Marks<'_>) -> Self {
        Self::in_parts(image, frames, starts, PART_BYTES)
    }

    pub(super) fn in_parts(image: &'a Image, frames: &Frames<'a>, starts: &Marks<'_>, part_bytes: u64) -> Self {
        let code = image.code();
        let parts = parts(code, frames.list(), part_bytes);
        let found = on_all_processors(parts.len(), |numbers| {
            let (mut found, mut context) = (Found::new(code), UnwindContext::new());
            for part in numbers.filter_map(|number| parts.get(number)) {
                let bytes = &image.data()[part.section.file.clone()];
                let mut walk = Walk::new(part, bytes, &mut found);
                for index in part.frames.clone() {
                    walk.known(index, frames, starts, &mut context);
                }
                if !part.section.is_plt {
                    walk.plain(part.end, starts);
                }
            }
            found
        });
        let Found { mut sweep, mut bodies, mut suspects, tables, taken } = found;
        bodies.sort_unstable_by_key(|(index, _)| *index);
        sweep.bodies = bodies.into_iter().map(|(_, body)| body).collect();
        tables.mark(image, frames.list(), starts, &mut sweep.targets, &mut sweep.looped);
        sweep.find_parts(code, frames);
        for address in taken {
            sweep.targets.set(address);
            sweep.called.set(address);
        }
        sweep.find_backtraces(code, &mut suspects);
        sweep
    }

    /// What has an odd frame at its start because it is a part of a function is jumped to by the rest of it. What the
    /// loader enters with more on the stack is not.
    fn find_parts(&mut self, code: &Code, frames: &Frames<'_>) {
        for (body, frame) in self.bodies.iter_mut().zip(frames.list()).filter(|(body, _)| body.entry == Entry::Odd) {
            let section = code.section(frame.start);
            if section.is_some_and(|section| self.targets.any(section, frame.start..frame.start + 1)) {
                body.entry = Entry::Part;
            }
        }
    }

    /// A function that walks the stack without leaving it does not show by what it saves. But it reads its own return
    /// address, and begins as all unwinders do: by calling what captures where they are.
    fn find_backtraces(&mut self, code: &Code, suspects: &mut [(usize, Vec<u64>)]) {
        for (_, calls) in &mut *suspects {
            // Everybody calls other modules, for example to abort.
            calls.retain(|&callee| code.section(callee).is_some_and(|section| !section.is_plt));
            calls.sort_unstable();
            calls.dedup();
        }
        let mut common: Option<Vec<u64>> = None;
        for (index, calls) in &*suspects {
            if self.bodies[*index].unwinds {
                let shared = common.get_or_insert_with(|| calls.clone());
                shared.retain(|callee| calls.binary_search(callee).is_ok());
            }
        }
        let Some(common) = common else { return };
        for (index, calls) in &*suspects {
            if calls.iter().any(|callee| common.binary_search(callee).is_ok()) {
                self.bodies[*index].unwinds = true;
            }
        }
    }
}

/// Code that is walked through in one go: unwind entries of a section, with what is before each of them.
#[derive(Debug)]
struct Part<'a> {
    section: &'a Section,
    /// By their place in the list.
    frames: Range<usize>,
    /// Where it begins, and where what is behind the last unwind entry ends.
    start: u64,
    end: u64,
}

/// All code in parts, none much larger than is worth a thread unless one unwind entry is.
fn parts<'a>(code: &'a Code, frames: &[Frame], part_bytes: u64) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut next = 0;
    for section in code.sections() {
        let last = next + frames[next..].partition_point(|frame| frame.start < section.end());
        let mut start = section.address;
        loop {
            let first = next;
            while next < last && (next == first || frames[next].start.saturating_sub(start) < part_bytes) {
                next += 1;
            }
            // What is between two parts belongs to the second.
            let behind = frames[first..next].last().map_or(start, |frame| frame.end);
            let end = if next == last { section.end() } else { behind };
            parts.push(Part { section, frames: first..next, start, end });
            if next == last {
                break;
            }
            start = behind.min(section.end());
        }
    }
    parts
}

/// Has numbers below `count` worked through by as many threads as there are processors.
fn on_all_processors<'a>(
    count: usize,
    work: impl Fn(&mut dyn Iterator<Item = usize>) -> Found<'a> + Sync,
) -> Found<'a> {
    let next = AtomicUsize::new(0);
    // ORDERING: it gives each number out once, and nothing else depends on it.
    let one =
        || work(&mut std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|next| *next < count)));
    let others = thread::available_parallelism().map_or(1, NonZero::get).min(count).saturating_sub(1);
    thread::scope(|scope| {
        // Where no thread can be had, this one does all of it.
        let others: Vec<_> = (0..others)
            .map_while(|_| thread::Builder::new().name("sweep".into()).spawn_scoped(scope, one).ok())
            .collect();
        let own = one();
        let others = others.into_iter().map(|other| other.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        others.fold(own, Found::with)
    })
}

/// What a walk has found.
struct Found<'a> {
    sweep: Sweep<'a>,
    /// With the place of their unwind entries in the list.
    bodies: Vec<(usize, Body)>,
    /// What may walk the stack, and what it calls.
    suspects: Vec<(usize, Vec<u64>)>,
    tables: Tables,
    /// Addresses of code that are computed.
    taken: Vec<u64>,
}

impl<'a> Found<'a> {
    fn new(code: &'a Code) -> Self {
        let marks = || Marks::new(code);
        let sweep = Sweep {
            targets: marks(),
            branched: marks(),
            jumped: marks(),
            looped: marks(),
            called: marks(),
            bodies: Vec::new(),
        };
        Self { sweep, bodies: Vec::new(), suspects: Vec::new(), tables: Tables::default(), taken: Vec::new() }
    }

    /// What both have found.
    fn with(mut self, other: Self) -> Self {
        let (own, others) = (&mut self.sweep, other.sweep);
        own.targets.add(&others.targets);
        own.branched.add(&others.branched);
        own.jumped.add(&others.jumped);
        own.looped.add(&others.looped);
        own.called.add(&others.called);
        self.bodies.extend(other.bodies);
        self.suspects.extend(other.suspects);
        self.tables.add(other.tables);
        self.taken.extend(other.taken);
        self
    }
}

/// A walk through the instructions of a part.
struct Walk<'w, 'a> {
    section: &'w Section,
    decoder: Decoder<'w>,
    instruction: Instruction,
    found: &'w mut Found<'a>,
    /// The unwind entry that it is in.
    frame: Range<u64>,
    /// What it calls, as long as the code of one unwind entry lasts.
    calls: Vec<u64>,
}

impl<'w, 'a> Walk<'w, 'a> {
    /// `bytes` are those of the section.
    fn new(part: &Part<'w>, bytes: &'w [u8], found: &'w mut Found<'a>) -> Self {
        let section = part.section;
        let decoder = Decoder::with_ip(64, bytes, section.address, DecoderOptions::NONE);
        let mut walk =
            Self { section, decoder, instruction: Instruction::default(), found, frame: 0..0, calls: Vec::new() };
        walk.seek(part.start);
        walk
    }

    /// Code up to the end of an unwind entry.
    fn known(&mut self, index: usize, frames: &Frames<'_>, starts: &Marks<'_>, context: &mut UnwindContext<usize>) {
        let frame = &frames.list()[index];
        if !self.section.is_plt {
            self.plain(frame.start, starts);
        }
        self.calls.clear();
        let body = self.frame(frames, frame, context);
        if body.entry == Entry::Call && (body.unwinds || body.touches_return) {
            self.found.suspects.push((index, std::mem::take(&mut self.calls)));
        }
        self.found.tables.finish(Some(index));
        self.found.bodies.push((index, body));
    }

    fn seek(&mut self, address: u64) {
        let position = address.saturating_sub(self.section.address) as usize;
        if self.decoder.set_position(position).is_ok() {
            self.decoder.set_ip(address);
        }
    }

    /// Decodes one instruction and notes where it leads. False at the end.
    #[inline]
    fn step(&mut self) -> bool {
        if !self.decoder.can_decode() {
            return false;
        }
        self.decoder.decode_out(&mut self.instruction);
        let instruction = &self.instruction;
        if instruction.op0_kind() == OpKind::NearBranch64 {
            let target = instruction.near_branch_target();
            let marks = &mut self.found.sweep;
            marks.targets.set_near(self.section, target);
            if instruction.code() == Op::Call_rel32_64 {
                self.calls.push(target);
                marks.called.set_near(self.section, target);
            } else if self.frame.contains(&target) {
                marks.looped.set_near(self.section, target);
            } else {
                marks.jumped.set_near(self.section, target);
                if instruction.is_jcc_short_or_near() {
                    marks.branched.set_near(self.section, target);
                }
            }
        } else if instruction.code() == Op::Lea_r64_m && instruction.memory_base() == Register::RIP {
            let address = instruction.memory_displacement64();
            self.found.tables.computed(address);
            if self.section.address <= address && address < self.section.end() {
                self.found.taken.push(address);
            }
        } else if instruction.code() == Op::Jmp_rm64 {
            if instruction.op0_kind() == OpKind::Register {
                self.found.tables.jumped();
            } else if instruction.memory_base() == Register::None && instruction.memory_index() != Register::None {
                self.found.tables.named(instruction.memory_displacement64());
            }
        } else if instruction.is_invalid() {
            // Data. Code begins somewhere behind, perhaps at the very next byte.
            self.seek(instruction.ip() + 1);
        }
        true
    }

    /// Code that no unwind entry describes. There may be data between the functions, so every start counts.
    fn plain(&mut self, end: u64, starts: &Marks<'_>) {
        while self.decoder.ip() < end && self.step() {
            let (from, to) = (self.instruction.ip() + 1, self.decoder.ip().min(end));
            if let Some(start) = starts.first(self.section, from..to) {
                self.seek(start);
            }
        }
        self.calls.clear();
        self.found.tables.finish(None);
    }

    /// The code of one unwind entry, row by row: each says where the return address is.
    fn frame(&mut self, frames: &Frames<'_>, frame: &Frame, context: &mut UnwindContext<usize>) -> Body {
        self.seek(frame.start);
        self.frame = frame.start..frame.end;
        let mut body = Body { entry: Entry::Broken, touches_return: false, unwinds: false };
        if let Some((entry, saves)) = self.rows(frames, frame, context, &mut body.touches_return) {
            body.entry = entry;
            body.unwinds = saves.returned && !saves.argument;
        }
        while self.decoder.ip() < frame.end && self.step() {}
        self.seek(frame.end);
        self.frame = 0..0;
        body
    }

    fn rows(
        &mut self,
        frames: &Frames<'_>,
        frame: &Frame,
        context: &mut UnwindContext<usize>,
        touches_return: &mut bool,
    ) -> Option<(Entry, Saves)> {
        let entry = frames.entry(frame).ok()?;
        let is_signal = entry.cie().is_signal_trampoline();
        let mut rows = entry.rows(frames.section(), frames.bases(), context).ok()?;
        let mut saves = Saves::default();
        let mut how = None;
        let mut from = frame.start;
        while let Some(row) = rows.next_row().ok()? {
            if row.start_address() < from || row.end_address() > frame.end {
                return None;
            }
            from = row.end_address();
            how = how.or_else(|| Some(if is_signal { Entry::Signal } else { entered(row) }));
            saves.note(row);
            let slot = Slot::of(row);
            if self.decoder.ip() != row.start_address() {
                self.seek(row.start_address());
            }
            while self.decoder.ip() < row.end_address() && self.step() {
                *touches_return |= slot.is_some_and(|slot| slot.is_touched(&self.instruction));
            }
        }
        how.map(|entry| (entry, saves))
    }
}
