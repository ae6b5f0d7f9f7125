//! The functions of a Go program, from the table that Go's own runtime finds them in. Stripping a program leaves it.
//!
//! Its runtime looks at return addresses at any moment, and moves stacks, so that only entries are recorded. Its stacks are
//! small, and a function first checks that there is room and otherwise begins again on a larger one: what follows that check
//! is the entry.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::{
    Reason,
    code::Section,
    image::Image,
    symbols::{MAX_NAME, Symbol},
};

/// A function of Go's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GoFunction<'a> {
    /// Its link-time address.
    pub(super) address: u64,
    /// How long it is, with the padding behind it.
    pub(super) size: u64,
    name: &'a [u8],
    /// Whether it is written in assembly: of such a function nobody knows which registers it needs.
    is_assembly: bool,
}

impl<'a> GoFunction<'a> {
    pub(super) fn symbol(&self) -> Symbol<'a> {
        Symbol { address: self.address, size: self.size, name: self.name, is_local: true }
    }

    /// Where its entry is to be recorded. `bytes` are those of its section.
    pub(super) fn body(&self, section: &Section, bytes: &[u8]) -> Result<u64, Reason> {
        if self.is_assembly {
            return Err(Reason::GoAssembly);
        }
        let bytes = bytes.get((self.address - section.address) as usize..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(self.size as usize)];
        let decoder = || Decoder::with_ip(64, bytes, self.address, DecoderOptions::NONE);
        let body = behind_check(decoder());
        // A loop that begins where the function does is no call.
        let is_back = |instruction: Instruction| {
            instruction.op0_kind() == OpKind::NearBranch64
                && instruction.mnemonic() != Mnemonic::Call
                && instruction.near_branch_target() == body
        };
        if decoder().into_iter().any(is_back) { Err(Reason::BranchIntoStart) } else { Ok(body) }
    }
}

/// The address behind the check for room on the stack, or that of the first instruction where there is none.
fn behind_check(mut decoder: Decoder<'_>) -> u64 {
    const MOST: usize = 8;
    let start = decoder.ip();
    let mut compares = false;
    for _ in 0..MOST {
        let instruction = decoder.decode();
        // The goroutine is in r14, and begins with the bounds of its stack.
        let is_bound = instruction.memory_base() == Register::R14
            && matches!(instruction.memory_displacement64(), 0x10 | 0x18)
            && instruction.memory_index() == Register::None;
        match instruction.mnemonic() {
            Mnemonic::Cmp if is_bound => compares = true,
            Mnemonic::Jbe if compares => return decoder.ip(),
            Mnemonic::Nop | Mnemonic::Jb => {}
            Mnemonic::Lea | Mnemonic::Mov | Mnemonic::Sub if instruction.op0_register() == Register::R12 => {}
            _ => break,
        }
    }
    start
}

/// Whether Go's runtime may have to say where this instruction failed, which it could not for a copy elsewhere. What is on
/// the stack, in the goroutine or at a constant address is there.
pub(super) fn may_fault(instruction: &Instruction) -> bool {
    let is_known = matches!(instruction.memory_base(), Register::RSP | Register::RIP | Register::R14);
    let reads = instruction.op_kinds().any(|kind| kind == OpKind::Memory) && instruction.mnemonic() != Mnemonic::Lea;
    let divides = matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
    divides || reads && !is_known && !matches!(instruction.mnemonic(), Mnemonic::Nop)
}

/// The functions by address; none where it is no Go program, or one of a version before 1.18.
pub(super) fn functions(image: &Image) -> Vec<GoFunction<'_>> {
    let table = image.go_table().and_then(Table::of);
    table.and_then(|table| table.functions(|starts| find_text(image, starts))).unwrap_or_default()
}

/// The table, which begins with where its parts are.
struct Table<'a> {
    bytes: &'a [u8],
    count: usize,
    /// The address that functions are relative to; 0 where it is not said.
    text: u64,
    names: usize,
    entries: usize,
    /// Where the flags are in what is said of a function.
    flags: usize,
}

impl<'a> Table<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        const SINCE_1_18: u32 = 0xffff_fff0;
        const SINCE_1_20: u32 = 0xffff_fff1;
        /// No byte for the alignment of instructions, and eight for an address.
        const X86_64: [u8; 4] = [0, 0, 1, 8];
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let place = |at: usize| usize::try_from(word(at)?).ok();
        let flags = match u32::from_le_bytes(*bytes.first_chunk()?) {
            SINCE_1_18 => 37,
            SINCE_1_20 => 41,
            _ => return None,
        };
        if bytes.get(4..8)? != X86_64 {
            return None;
        }
        Some(Self { bytes, count: place(8)?, text: word(24)?, names: place(32)?, entries: place(64)?, flags })
    }

    /// The functions; none where the table contradicts itself. `find_text` says what they are relative to, if nothing does.
    fn functions(&self, find_text: impl FnOnce(&[u32]) -> Option<u64>) -> Option<Vec<GoFunction<'a>>> {
        let entries = self.bytes.get(self.entries..)?;
        let (pairs, _) = entries.as_chunks::<8>();
        let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        // Behind the last there is where it ends.
        let end = entries.get(self.count.checked_mul(8)?..).and_then(number)?;
        let starts: Vec<u32> = pairs.get(..self.count)?.iter().filter_map(|pair| number(pair)).chain([end]).collect();
        if !starts.is_sorted() {
            return None;
        }
        let text = if self.text != 0 { self.text } else { find_text(&starts)? };
        let about = |pair: &[u8; 8]| entries.get(number(&pair[4..])? as usize..);
        // Of C that was linked by Go's own linker there is no source file, and it keeps to another convention.
        let is_go = |pair: &[u8; 8]| about(pair)?.get(20..).and_then(number).map(|file| file != 0);
        let function = |(pair, range): (&[u8; 8], &[u32])| {
            let about = about(pair)?;
            let name = self.bytes.get(self.names.checked_add(number(about.get(4..)?)? as usize)?..)?;
            let name = name[..name.len().min(MAX_NAME)].split(|byte| *byte == 0).next()?;
            let address = text.checked_add(range[0].into())?;
            let size = u64::from(range[1] - range[0]);
            const ASSEMBLY: u8 = 4;
            Some(GoFunction { address, size, name, is_assembly: about.get(self.flags)? & ASSEMBLY != 0 })
        };
        pairs
            .iter()
            .zip(starts.windows(2))
            .filter(|(pair, range)| range[0] < range[1] && is_go(pair) != Some(false))
            .map(function)
            .collect()
    }
}

/// The address that functions are relative to: since 1.26 the table does not say it. It is where Go's code begins, and C may
/// come before; there is padding before most functions.
fn find_text(image: &Image, starts: &[u32]) -> Option<u64> {
    const ALIGNMENT: usize = 16;
    const PADDING: u8 = 0xCC;
    const TRIED: usize = 256;
    const MOST: usize = 1 << 16;
    let tried = &starts[1..starts.len().min(TRIED)];
    image.code().sections().iter().find_map(|section| {
        let bytes = &image.data()[section.file.clone()];
        let fits = |from: &usize| {
            let is_padded = |start: &&u32| bytes.get(from + **start as usize - 1) == Some(&PADDING);
            tried.iter().filter(|start| **start > 0).filter(is_padded).count() * 2 > tried.len()
        };
        let last = bytes.len().checked_sub(*starts.last()? as usize)?;
        (0..=last).step_by(ALIGNMENT).take(MOST).find(fits).map(|from| section.address + from as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of two functions, the second in assembly, as Go 1.20 writes it.
    fn table() -> Vec<u8> {
        const NAMES: usize = 72;
        const ENTRIES: usize = 96;
        let mut bytes = vec![0; ENTRIES + 20 + 2 * 44];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &0xffff_fff1_u32.to_le_bytes());
        put(6, &[1, 8]);
        for (at, value) in [(8, 2), (24, 0x1000), (32, NAMES as u64), (64, ENTRIES as u64)] {
            put(at, &value.to_le_bytes());
        }
        put(NAMES, b"main.one\0asm\0");
        let words: [u32; 5] = [0, 20, 0x20, 64, 0x60];
        words.iter().enumerate().for_each(|(at, word)| put(ENTRIES + at * 4, &word.to_le_bytes()));
        put(ENTRIES + 20 + 20, &[1]);
        put(ENTRIES + 64 + 4, &9_u32.to_le_bytes());
        put(ENTRIES + 64 + 20, &[1]);
        put(ENTRIES + 64 + 41, &[4]);
        bytes
    }

    fn functions(bytes: &[u8]) -> Option<Vec<GoFunction<'_>>> {
        Table::of(bytes)?.functions(|_| None)
    }

    #[test]
    fn functions_are_found_with_their_names() {
        let bytes = table();
        let expected = [
            GoFunction { address: 0x1000, size: 0x20, name: b"main.one", is_assembly: false },
            GoFunction { address: 0x1020, size: 0x40, name: b"asm", is_assembly: true },
        ];
        assert_eq!(functions(&bytes).expect("a table"), expected);
    }

    #[test]
    fn functions_of_c_are_left_out() {
        let mut bytes = table();
        bytes[96 + 64 + 20] = 0;
        assert_eq!(functions(&bytes).map(|functions| functions.len()), Some(1));
    }

    #[test]
    fn a_table_that_lies_has_no_functions_or_others_and_does_no_harm() {
        let whole = table();
        for end in 0..whole.len() {
            let _ = functions(&whole[..end]);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                assert!(functions(&bytes).is_none_or(|functions| functions.len() <= 2), "byte {at} is {value}");
            }
        }
    }

    #[test]
    fn the_check_for_room_is_passed_over() {
        let behind = |code: &[u8]| behind_check(Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE)) - 0x1000;
        // cmp rsp, [r14+16]; jbe
        let small = [0x49, 0x3b, 0x66, 0x10, 0x76, 0x52, 0x48, 0x83, 0xec, 0x20];
        assert_eq!(behind(&small), 6);
        // lea r12, [rsp-0x3a0]; cmp r12, [r14+16]; jbe
        let large =
            [0x4c, 0x8d, 0xa4, 0x24, 0x60, 0xfc, 0xff, 0xff, 0x4d, 0x3b, 0x66, 0x10, 0x0f, 0x86, 0xbb, 0, 0, 0, 0x90];
        assert_eq!(behind(&large), 18);
        // lea rax, [rax+rax*2]; ret
        assert_eq!(behind(&[0x48, 0x8d, 0x04, 0x40, 0xc3]), 0);
    }
}
