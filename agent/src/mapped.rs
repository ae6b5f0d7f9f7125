//! The library as it lies in the memory of a target, mapped by hand: no loader may be there.

use object::{
    Object, ObjectSegment, ObjectSymbol, RelocationFlags, RelocationTarget, SegmentFlags, elf, read::elf::ElfFile64,
};

/// The library, parsed.
#[derive(Debug)]
pub struct MappedLibrary<'a>(ElfFile64<'a>);

/// A part of it that has its own protection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Where it starts, from where the library does: at a page.
    pub start: u64,
    /// How much memory it takes: whole pages.
    pub size: u64,
    /// What of it is not zero.
    pub bytes: Vec<u8>,
    /// What may be done with it, as the system numbers it: 1 to read, 2 to write, 4 to execute.
    pub protection: u64,
}

/// Why the library cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// It is no library, or damaged.
    #[error("the agent library cannot be read: {0}")]
    Elf(#[from] object::Error),
    /// It needs something of a loader.
    #[error("the agent library cannot be mapped by hand: it needs {0}")]
    Needs(String),
}

const PAGE: u64 = 4096;

impl<'a> MappedLibrary<'a> {
    /// Parses the bytes of its file.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MapError> {
        Ok(Self(ElfFile64::parse(bytes)?))
    }

    /// How much memory it takes.
    pub fn size(&self) -> u64 {
        let ends = self.0.segments().map(|segment| segment.address() + segment.size());
        ends.max().unwrap_or(0).next_multiple_of(PAGE)
    }

    /// Its parts as they are where it starts at `base`.
    pub fn segments(&self, base: u64) -> Result<Vec<Segment>, MapError> {
        let mut segments = Vec::new();
        for segment in self.0.segments() {
            let start = segment.address() / PAGE * PAGE;
            let mut bytes = vec![0; (segment.address() - start) as usize];
            bytes.extend_from_slice(segment.data()?);
            let SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
            let flag = |flag: elf::ProgramFlags, protection| if p_flags.0 & flag.0 != 0 { protection } else { 0 };
            let protection = flag(elf::PF_R, 1) | flag(elf::PF_W, 2) | flag(elf::PF_X, 4);
            let size = (segment.address() + segment.size()).next_multiple_of(PAGE) - start;
            segments.push(Segment { start, size, bytes, protection });
        }
        for (at, value) in self.relocations(base)? {
            let place = segments.iter_mut().find_map(|segment| {
                let from = usize::try_from(at.checked_sub(segment.start)?).ok()?;
                segment.bytes.get_mut(from..from + 8)
            });
            let place = place.ok_or_else(|| MapError::Needs(format!("a relocation at {at:#x}, where nothing is")))?;
            place.copy_from_slice(&value.to_le_bytes());
        }
        Ok(segments)
    }

    /// What is written where it depends on the base.
    fn relocations(&self, base: u64) -> Result<Vec<(u64, u64)>, MapError> {
        let mut places = Vec::new();
        for (at, relocation) in self.0.dynamic_relocations().into_iter().flatten() {
            let addend = relocation.addend() as u64;
            let symbol = match relocation.target() {
                RelocationTarget::Symbol(index) => self
                    .0
                    .dynamic_symbol_table()
                    .map(|table| object::ObjectSymbolTable::symbol_by_index(&table, index))
                    .transpose()?,
                _ => None,
            };
            let address = symbol.filter(|symbol| !symbol.is_undefined()).map(|symbol| symbol.address());
            let value = match (relocation.flags(), address) {
                (RelocationFlags::Elf { r_type: elf::R_X86_64_RELATIVE }, _) => addend,
                (RelocationFlags::Elf { r_type: elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT }, Some(address)) => {
                    address
                }
                (RelocationFlags::Elf { r_type: elf::R_X86_64_64 }, Some(address)) => address.wrapping_add(addend),
                (flags, _) => return Err(MapError::Needs(format!("a relocation at {at:#x}: {flags:?}"))),
            };
            places.push((at, value.wrapping_add(base)));
        }
        Ok(places)
    }

    /// Where something of it is that has this name, from where the library starts.
    pub fn symbol(&self, name: &str) -> Result<u64, MapError> {
        let found = self.0.dynamic_symbols().find(|symbol| symbol.name() == Ok(name) && !symbol.is_undefined());
        found.map(|symbol| symbol.address()).ok_or_else(|| MapError::Needs(format!("{name}, which it does not have")))
    }
}
