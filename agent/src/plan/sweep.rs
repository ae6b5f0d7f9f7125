//! One pass over all code: where branches land, and what each function does with its own return address.

use std::ops::Range;

use gimli::UnwindContext;
use iced_x86::{Code as Op, Decoder, DecoderOptions, Instruction, OpKind, Register};

use super::{
    code::{Code, Marks, Section},
    frames::{Frame, Frames},
    image::Image,
    row::{Entry, Saves, Slot, entered},
    tables::Tables,
};

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
        let code = image.code();
        let bodies = Vec::with_capacity(frames.list().len());
        let marks = || Marks::new(code);
        let mut sweep =
            Self { targets: marks(), branched: marks(), jumped: marks(), looped: marks(), called: marks(), bodies };
        let mut context = UnwindContext::new();
        let mut suspects = Vec::new();
        let mut tables = Tables::default();
        let mut taken = Vec::new();
        let mut rest = frames.list();
        for section in code.sections() {
            let (here, others) = rest.split_at(rest.partition_point(|frame| frame.start < section.end()));
            rest = others;
            let bytes = &image.data()[section.file.clone()];
            let Self { targets, branched, jumped, looped, called, bodies } = &mut sweep;
            let found = Found { targets, branched, jumped, looped, called, tables: &mut tables, taken: &mut taken };
            let mut walk = Walk::new(section, bytes, found);
            for frame in here {
                if !section.is_plt {
                    walk.plain(frame.start, starts);
                }
                walk.calls.clear();
                let body = walk.frame(frames, frame, &mut context);
                if body.entry == Entry::Call && (body.unwinds || body.touches_return) {
                    suspects.push((bodies.len(), std::mem::take(&mut walk.calls)));
                }
                walk.found.tables.finish(Some(bodies.len()));
                bodies.push(body);
            }
            if !section.is_plt {
                walk.plain(section.end(), starts);
            }
        }
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

/// What a walk writes to.
struct Found<'w, 'a> {
    targets: &'w mut Marks<'a>,
    branched: &'w mut Marks<'a>,
    jumped: &'w mut Marks<'a>,
    looped: &'w mut Marks<'a>,
    called: &'w mut Marks<'a>,
    tables: &'w mut Tables,
    /// Addresses of code that are computed.
    taken: &'w mut Vec<u64>,
}

/// A walk through the instructions of one section.
struct Walk<'w, 'a> {
    section: &'w Section,
    decoder: Decoder<'w>,
    instruction: Instruction,
    found: Found<'w, 'a>,
    /// The unwind entry that it is in.
    frame: Range<u64>,
    /// What it calls, as long as the code of one unwind entry lasts.
    calls: Vec<u64>,
}

impl<'w, 'a> Walk<'w, 'a> {
    fn new(section: &'w Section, bytes: &'w [u8], found: Found<'w, 'a>) -> Self {
        let decoder = Decoder::with_ip(64, bytes, section.address, DecoderOptions::NONE);
        Self { section, decoder, instruction: Instruction::default(), found, frame: 0..0, calls: Vec::new() }
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
            self.found.targets.set_near(self.section, target);
            if instruction.code() == Op::Call_rel32_64 {
                self.calls.push(target);
                self.found.called.set_near(self.section, target);
            } else if self.frame.contains(&target) {
                self.found.looped.set_near(self.section, target);
            } else {
                self.found.jumped.set_near(self.section, target);
                if instruction.is_jcc_short_or_near() {
                    self.found.branched.set_near(self.section, target);
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
