//! The planner: which functions of a module can be hooked, and how.
//!
//! It reads the ELF file of a module and, where the module is loaded, the bytes in memory. It touches no process: what
//! it says is done by others, and the same plan serves to list what would be traced.
//!
//! A hook is a jump of five bytes at the start of a function. The instructions it overwrites are copied into a
//! [`Trampoline`], which runs them and goes on behind the jump. To see the return, the hook also replaces the return
//! address on the stack, the *slot*. Both can break a program, so a function is hooked only if the following rules
//! allow it. No rule knows a function by its name, so they hold for stripped modules, too, and for libraries nobody
//! has seen yet.
//!
//! # Where functions begin
//!
//! Functions come from `.symtab`, from `.dynsym`, and from where the unwind entries in `.eh_frame` begin: only those
//! know the local functions of a stripped module. Every address is listed once, also where nothing is hooked.
//!
//! # The rules
//!
//! 1. **Entered by a call.** An unwind entry must begin exactly at the function and say that the return address is on
//!    top of the stack (CFA = rsp+8, return address at CFA−8), and it must not be that of a signal frame. Otherwise
//!    the word on top of the stack is something else, and replacing it destroys it. This leaves the parts of functions
//!    that compilers move away, the entry point of the program, the return from signal handlers, and what the loader
//!    enters with more on the stack. Some entries begin with the padding before a function; where nothing names that
//!    address and nothing branches to it, the function begins somewhere behind it, and is left.
//!
//! 2. **Described.** What no unwind entry describes is left. It is assembly or generated code, of which nobody knows
//!    what it does with the stack. Swift's compiler leaves such entries out where no exception can pass. Its functions are
//!    known by their mangled names; they are entered by a call or a jump like others, so their entry is recorded, and their
//!    return address is left alone. Many tasks have their names from them.
//!
//!    Go's compiler makes none at all; the module `go` says what is done there.
//!
//! 3. **Lets its return address be.** A function that reads or writes the slot itself (an operand at CFA−8, or a `pop`
//!    while the slot is on top) would see our address there: `setjmp` saves it, `vfork` carries it across two
//!    processes, `dlopen` looks up who has called. Of such a function only the entry is recorded ([`Kind::Probe`]).
//!    Whoever enters it by a tail call has a slot that is replaced: the hook has to put the real address back first.
//!
//! 4. **Unwinders see the real stack.** Functions that unwind must find real return addresses in all slots
//!    ([`Kind::Unwinder`]). They are known by what they save: the compiler's way to leave for another frame
//!    (`__builtin_eh_return`) saves rax or rdx, which no ordinary function has to preserve; one that saves rcx as well
//!    just preserves everything. A function that only walks the stack does not leave, but it reads its own return
//!    address and calls what all unwinders of the module call to learn where they are.
//!
//! 5. **Nobody jumps into the hook.** If a branch or call anywhere in the module lands within the covered bytes, other
//!    than on the first, it would land in the middle of our jump. `mempcpy` enters `memmove` in this way. All code is
//!    swept for branches, once, instruction by instruction; the sweep sets in anew at every function and every row of
//!    an unwind entry, so that data in code does not derail it for long. Addresses of code that are computed count, too,
//!    and so do the tables of a `switch`. A branch to the first byte is harmless: it takes the jump, and looks like the
//!    tail call that it is.
//!
//! 6. **Nobody was there before.** Where memory differs from the file, somebody else has patched the function, and
//!    its first bytes are not what they seem.
//!
//! 7. **There is room.** Five bytes must belong to the function or to padding behind it that nothing reaches, and no
//!    call within them may return into them. An `endbr64` stays in front of the hook, because indirect calls must land
//!    on one. Linkage tables are not functions and are left.
//!
//! 8. **The copy does the same.** Instructions are copied one by one, each to do at its new place what it did at its
//!    old one; [`Prologue::relocate`] says how. An operand that names the function's own address keeps naming the
//!    original, or the program would compare and pass around addresses of copies. A call pushes the return address of
//!    the original, because unwinders have no entry for the copy.
//!
//! What cannot be seen: a branch into the first bytes through a table that the loader fills in, and an unwinder that
//! was not compiled with `__builtin_eh_return`. A file without a table of sections has no functions.

mod action;
mod code;
mod debug;
mod differences;
mod frames;
mod go;
mod image;
mod prologue;
mod row;
mod sweep;
mod symbols;
mod tables;
mod trampoline;

pub use action::{Action, Hook, Kind, Reason};
pub use debug::DebugSymbols;
pub use image::{Image, ImageError};
pub use prologue::{PATCH_SIZE, Prologue};
pub use trampoline::Trampoline;

use std::ops::Range;

use code::{Marks, Section};
use differences::differences;
use frames::{Frame, Frames};
use go::GoFunction;
use iced_x86::{Decoder, DecoderOptions};
use row::Entry;
use sweep::{Body, Sweep};
use symbols::{Symbol, is_swift, symbols};

/// What somebody else's patch overwrites at most. A function that differs from its file in so many bytes from its
/// start is theirs.
const FOREIGN_PATCH: u64 = 16;

/// Fills a buffer with the bytes of a loaded module at a link-time address; the caller of the planner adds where the
/// module was loaded. False if they cannot be read.
pub type Memory<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// What to do with each function of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModulePlan {
    /// All functions by address, one for each address, also those that are left alone.
    pub functions: Vec<Function>,
}

impl ModulePlan {
    /// Leaves all functions alone that would be hooked like this.
    pub fn leave(&mut self, kind: Kind, reason: Reason) {
        let hooked = self.functions.iter_mut().filter(|function| function.hook().is_some_and(|hook| hook.kind == kind));
        hooked.for_each(|function| function.action = Action::Leave(reason));
    }
}

/// A function, and what to do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its link-time address.
    pub address: u64,
    /// The best of its names; empty if it has none.
    pub name: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// What to do.
    pub action: Action,
}

impl Function {
    /// The hook, if it is to be hooked.
    pub fn hook(&self) -> Option<&Hook> {
        match &self.action {
            Action::Hook(hook) => Some(hook),
            Action::Leave(_) => None,
        }
    }
}

/// A function that somebody may not want to be hooked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// All of its names, the best first; none for a function without.
    pub names: &'a [&'a str],
    /// Its link-time address.
    pub address: u64,
    /// How many bytes it has, as its symbol or its unwind entry says; 0 where nothing does.
    pub size: u64,
}

/// Says whether a function is to be left alone, and why.
pub type Leave<'a> = &'a dyn Fn(&Candidate<'_>) -> Option<Reason>;

/// Plans a module from its file and, for one that is loaded, its memory. What `leave` does not want is left alone, but for
/// functions that others need to be hooked: unwinders, and those that look at a return address which is another function's.
pub fn plan(image: &Image, memory: Option<Memory<'_>>, leave: Leave<'_>) -> ModulePlan {
    let code = image.code();
    let frames = Frames::of(image);
    let go = go::functions(image);
    let symbols = symbols(image, &go);
    let mut starts = Marks::new(code);
    for address in symbols.iter().map(|symbol| symbol.address).chain(frames.list().iter().map(|frame| frame.start)) {
        starts.set(address);
    }
    let sweep = Sweep::of(image, &frames, &starts);
    let patched = memory.map(|memory| differences(image, memory));
    let planner = Planner { image, frames: &frames, starts, sweep, patched, go };

    // Symbols may share names, but no more than this: what is kept is bounded by the size of the file.
    let mut budget = image.symbol_bytes() * 2;
    let mut functions = Vec::with_capacity(symbols.len().max(frames.list().len()));
    let mut unnamed = frames.list().iter().peekable();
    let mut index = 0;
    for aliases in symbols.chunk_by(|a, b| a.address == b.address) {
        let address = aliases[0].address;
        while let Some(frame) = unnamed.next_if(|frame| frame.start < address) {
            functions.push(planner.function(frame.start..frame.start, Vec::new(), &mut index, leave));
        }
        unnamed.next_if(|frame| frame.start == address);
        let end = aliases.iter().map(|symbol| address.saturating_add(symbol.size)).max().unwrap_or(address);
        functions.push(planner.function(address..end, names(aliases, &mut budget), &mut index, leave));
    }
    for frame in unnamed {
        functions.push(planner.function(frame.start..frame.start, Vec::new(), &mut index, leave));
    }
    ModulePlan { functions }
}

/// The names of symbols as long as there is room for them.
fn names(symbols: &[Symbol<'_>], budget: &mut usize) -> Vec<String> {
    let mut names = Vec::with_capacity(symbols.len());
    for symbol in symbols.iter().filter(|symbol| !symbol.name.is_empty()) {
        if let Some(left) = budget.checked_sub(symbol.name.len()) {
            *budget = left;
            names.push(String::from_utf8_lossy(symbol.name).into_owned());
        }
    }
    names
}

/// What is known of a module, for the decision about each function.
struct Planner<'a> {
    image: &'a Image,
    frames: &'a Frames<'a>,
    starts: Marks<'a>,
    sweep: Sweep<'a>,
    patched: Option<Marks<'a>>,
    go: Vec<GoFunction<'a>>,
}

impl Planner<'_> {
    /// Plans one function, which is where its symbol says. They come by address: `index` is that of the first frame that may
    /// still matter.
    fn function(&self, symbol: Range<u64>, mut names: Vec<String>, index: &mut usize, leave: Leave<'_>) -> Function {
        let (list, address) = (self.frames.list(), symbol.start);
        while list.get(*index).is_some_and(|frame| frame.end <= address) {
            *index += 1;
        }
        let frame = list.get(*index).filter(|frame| frame.start <= address);
        let frame = frame.map(|frame| (frame, self.sweep.bodies[*index]));
        let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
        let action = match self.decide(symbol, &borrowed, frame, leave) {
            Ok(hook) => Action::Hook(hook),
            Err(reason) => Action::Leave(reason),
        };
        let name = if names.is_empty() { String::new() } else { names.remove(0) };
        Function { address, name, aliases: names, action }
    }

    fn decide(
        &self,
        symbol: Range<u64>,
        names: &[&str],
        frame: Option<(&Frame, Body)>,
        leave: Leave<'_>,
    ) -> Result<Hook, Reason> {
        let address = symbol.start;
        let section = self.image.code().section(address).ok_or(Reason::NotCode)?;
        if section.is_plt {
            return Err(Reason::Plt);
        }
        // Who unwinds must find the real return addresses of what is hooked, whether it is itself wanted or not.
        let unwinds = frame.is_some_and(|(_, body)| body.unwinds) || names.iter().any(|name| is_unwinder(name));
        let has = |marks: &Marks<'_>| marks.any(section, address..address + 1);
        // What is jumped to by a hooked function has that one's slot, and must find the real address there.
        let looks = frame.is_some_and(|(_, body)| body.touches_return) && has(&self.sweep.jumped);
        let described = frame.filter(|(frame, _)| frame.start == address).map_or(0, |(frame, _)| frame.end - address);
        let size = described.max(symbol.end - address);
        if !unwinds
            && !looks
            && let Some(reason) = leave(&Candidate { names, address, size })
        {
            return Err(reason);
        }
        if let Ok(index) = self.go.binary_search_by_key(&address, |function| function.address) {
            return self.go(section, &self.go[index]);
        }
        if frame.is_none() && names.iter().any(|name| is_swift(name)) {
            return Ok(Hook { kind: Kind::Probe, prologue: self.prologue(section, &symbol)?, loops: false });
        }
        let (frame, body) = frame.ok_or(Reason::NoUnwindEntry)?;
        if frame.start != address {
            return Err(Reason::InsideAnother);
        }
        let is_cold = names.iter().any(|name| name.ends_with(".cold") || name.contains(".cold."));
        match body.entry {
            Entry::Signal => return Err(Reason::SignalFrame),
            Entry::Broken => return Err(Reason::BrokenUnwindEntry),
            _ if is_cold => return Err(Reason::ColdPart),
            Entry::Part => return Err(Reason::ColdPart),
            Entry::Odd => return Err(Reason::OddEntryFrame),
            Entry::Call => {}
        }
        // The cold part of a function that is cut off before it has touched the stack looks like a function itself.
        if names.is_empty() && has(&self.sweep.branched) && !has(&self.sweep.called) {
            return Err(Reason::ColdPart);
        }
        let prologue = self.prologue(section, &(frame.start..frame.end))?;
        let is_entered = |address| self.sweep.targets.any(section, address..address + 1);
        if names.is_empty() && prologue.begins_with_padding() && !is_entered(address) {
            return Err(Reason::PaddingFirst);
        }
        let kind = match body {
            _ if unwinds => Kind::Unwinder,
            Body { touches_return: true, .. } => Kind::Probe,
            _ => Kind::Frame,
        };
        let loops = self.sweep.looped.any(section, address..prologue.patch + 1);
        Ok(Hook { kind, prologue, loops })
    }

    fn go(&self, section: &Section, function: &GoFunction<'_>) -> Result<Hook, Reason> {
        let body = function.body(section, &self.image.data()[section.file.clone()])?;
        let prologue = self.prologue(section, &(body..function.address + function.size))?;
        let mut covered = Decoder::new(64, prologue.bytes(), DecoderOptions::NONE);
        let may_fault = covered.iter().any(|instruction| go::may_fault(&instruction));
        if may_fault { Err(Reason::MayFault) } else { Ok(Hook { kind: Kind::Go, prologue, loops: false }) }
    }

    fn prologue(&self, section: &Section, function: &Range<u64>) -> Result<Prologue, Reason> {
        let bytes = &self.image.data()[section.file.clone()];
        let prologue = Prologue::read(section, bytes, function.start, function.end, &self.starts)?;
        let covered_end = prologue.patch + prologue.covered as u64;
        if let Some(patched) = &self.patched {
            let end = covered_end.max(function.end.min(function.start + FOREIGN_PATCH));
            if patched.any(section, function.start..end) {
                return Err(Reason::AlreadyPatched);
            }
        }
        if self.sweep.targets.any(section, prologue.patch + 1..covered_end) {
            return Err(Reason::BranchIntoStart);
        }
        Ok(prologue)
    }
}

/// Whether a function unwinds by its name. The rule finds those of GCC's library under any name; those of other
/// unwinding libraries work in other ways, and have standard names.
fn is_unwinder(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "_Unwind_Backtrace",
        "_Unwind_ForcedUnwind",
        "_Unwind_RaiseException",
        "_Unwind_Resume",
        "_Unwind_Resume_or_Rethrow",
        "__unw_init_local",
        "__unw_step",
        "unw_init_local",
        "unw_step",
        "_ULx86_64_init_local",
        "_ULx86_64_step",
    ];
    NAMES.contains(&name)
}

#[cfg(test)]
mod tests;
