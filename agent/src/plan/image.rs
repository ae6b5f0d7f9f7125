//! A parsed ELF file.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use object::{
    LittleEndian, ReadRef, elf,
    read::elf::{FileHeader, ProgramHeader, SectionHeader},
};

use super::{
    code::{Code, Section},
    debug::DebugSymbols,
};

pub(super) type Header = elf::FileHeader64<LittleEndian>;
pub(super) type SectionHeader64 = elf::SectionHeader64<LittleEndian>;
type Segment = elf::ProgramHeader64<LittleEndian>;

const PAGE: u64 = 4096;
const E: LittleEndian = LittleEndian;

/// An ELF file for Linux on x86_64, with its bytes.
#[derive(Debug, Clone)]
pub struct Image {
    data: Vec<u8>,
    build_id: Vec<u8>,
    interpreter: Option<String>,
    is_static: bool,
    span: Range<u64>,
    segments: Vec<(u64, Range<usize>)>,
    code: Code,
    tables: Vec<SymbolTable>,
    has_all_symbols: bool,
    line_bytes: u64,
    /// Symbols from elsewhere.
    debug: Option<DebugSymbols>,
    debug_link: Option<Range<usize>>,
    embedded: Option<Range<usize>>,
    eh_frame: Option<(u64, Range<usize>)>,
    go_table: Option<Range<usize>>,
}

/// Where in the file a table of symbols and its strings are.
#[derive(Debug, Clone)]
struct SymbolTable {
    symbols: Range<usize>,
    strings: Range<usize>,
}

/// Why a file is no image that can be planned.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum ImageError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// It is something else.
    #[error("not an ELF file: it does not start with 7f 45 4c 46")]
    NotElf,
    /// It is for another processor.
    #[error("made for {name}, but only x86_64 can be traced")]
    Machine { name: String },
    /// It is a 32-bit program.
    #[error("a 32-bit program, but only 64-bit ones can be traced")]
    Bits32,
    /// It is an object file, a core file or the like.
    #[error("neither a program nor a shared library: ELF type {0}, expected 2 or 3")]
    Type(u16),
    /// It ends early.
    #[error("the file is cut off: {what} ends at byte {end}, but the file has {size}")]
    Truncated { what: &'static str, end: u64, size: u64 },
    /// Its headers contradict themselves.
    #[error("a damaged ELF file: {0}")]
    Malformed(&'static str),
}

impl Image {
    /// Reads and parses a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ImageError> {
        let path = path.as_ref();
        let data = std::fs::read(path).map_err(|source| ImageError::Read { path: path.to_owned(), source })?;
        Self::parse(data)
    }

    /// Parses the bytes of a file.
    pub fn parse(data: Vec<u8>) -> Result<Self, ImageError> {
        check_ident(&data)?;
        let size = data.len() as u64;
        let cut = |what, end| ImageError::Truncated { what, end, size };
        let bytes = data.as_slice();
        let header = Header::parse(bytes).map_err(|_| cut("the header", size_of::<Header>() as u64))?;

        let segments_end =
            header.e_phoff.get(E).saturating_add(u64::from(header.e_phnum.get(E)) * size_of::<Segment>() as u64);
        if segments_end > size {
            return Err(cut("the table of segments", segments_end));
        }
        let segments = header.program_headers(E, bytes).map_err(|_| ImageError::Malformed("the table of segments"))?;
        let span = loaded_span(segments, size)?;

        let sections_end = header
            .e_shoff
            .get(E)
            .saturating_add(u64::from(header.e_shnum.get(E)) * size_of::<SectionHeader64>() as u64);
        if sections_end > size {
            return Err(cut("the table of sections", sections_end));
        }
        let table = header.sections(E, bytes).map_err(|_| ImageError::Malformed("the table of sections"))?;

        let mut sections = Vec::new();
        let mut tables = Vec::new();
        let (mut has_all_symbols, mut line_bytes) = (false, 0);
        let (mut debug_link, mut embedded) = (None, None);
        let (mut eh_frame, mut go_table) = (None, None);
        for section in table.iter() {
            let Some(file) = file_range(section, bytes.len()) else { continue };
            let name = table.section_name(E, section).unwrap_or_default();
            let flags = section.sh_flags(E);
            let kind = section.sh_type(E);
            if flags.contains(elf::SHF_ALLOC) && flags.contains(elf::SHF_EXECINSTR) {
                let is_plt = name == b".plt" || name.starts_with(b".plt.") || name == b".iplt";
                sections.push(Section::new(section.sh_addr(E), file, is_plt));
            } else if kind == elf::SHT_SYMTAB || kind == elf::SHT_DYNSYM {
                let strings = table.section(object::SectionIndex(section.sh_link(E) as usize)).ok();
                // One of each: more would only be the same symbols again.
                if tables.len() < 2
                    && let Some(strings) = strings.and_then(|strings| file_range(strings, bytes.len()))
                {
                    tables.push(SymbolTable { symbols: file, strings });
                    has_all_symbols |= kind == elf::SHT_SYMTAB;
                }
            } else if name == b".eh_frame" && eh_frame.is_none() {
                eh_frame = Some((section.sh_addr(E), file));
            } else {
                match name {
                    b".gnu_debuglink" => debug_link = Some(file),
                    b".gnu_debugdata" => embedded = Some(file),
                    b".gopclntab" | b".data.rel.ro.gopclntab" => go_table = Some(file),
                    _ => line_bytes = super::debug::line_bytes(name, section, bytes).unwrap_or(line_bytes),
                }
            }
        }

        let interpreter = segments.iter().find_map(|segment| segment.interpreter(E, bytes).ok().flatten());
        let interpreter = interpreter.map(|path| String::from_utf8_lossy(path).into_owned());
        let is_static = interpreter.is_none() && (header.e_type.get(E) == elf::ET_EXEC || is_pie(segments, bytes));
        let build_id = build_id(segments, bytes).unwrap_or_default().to_vec();
        let code = Code::new(sections, bytes.len());
        let mut segments: Vec<_> = segments.iter().filter_map(|segment| loaded(segment, bytes.len())).collect();
        segments.sort_unstable_by_key(|(address, _)| *address);
        Ok(Self {
            build_id,
            interpreter,
            is_static,
            span,
            segments,
            code,
            tables,
            has_all_symbols,
            line_bytes,
            debug: None,
            debug_link,
            embedded,
            eh_frame,
            go_table,
            data,
        })
    }

    /// The build id that the linker noted; empty if there is none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// How many bytes of address space it takes from [`link_base`](Self::link_base) on.
    pub fn size(&self) -> u64 {
        self.span.end - self.span.start
    }

    /// The lowest page it is linked for: 0 where it can be loaded anywhere.
    pub fn link_base(&self) -> u64 {
        self.span.start
    }

    /// The program that loads it, if it names one.
    pub fn interpreter(&self) -> Option<&str> {
        self.interpreter.as_deref()
    }

    /// Whether it is a program that nothing loads, so that nothing can be loaded into it.
    pub fn is_static(&self) -> bool {
        self.is_static
    }

    /// Whether it is a program of Go.
    pub fn is_go(&self) -> bool {
        self.go_table.is_some()
    }

    /// Whether it has a symbol for every function, not only for those that others may call.
    pub fn has_all_symbols(&self) -> bool {
        self.has_all_symbols
    }

    /// How many bytes its table of source lines has, unpacked; 0 if there is none.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// The name of its separate debug file and the CRC-32 of that, if it names one.
    pub fn debug_link(&self) -> Option<(&[u8], u32)> {
        let bytes = &self.data[self.debug_link.clone()?];
        let (name, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some((name, u32::from_le_bytes(crc.try_into().ok()?)))
    }

    /// The debug file that is packed into it, compressed with xz.
    pub fn embedded_debug_file(&self) -> Option<&[u8]> {
        self.embedded.clone().map(|file| &self.data[file])
    }

    /// Takes the symbols of its debug file for its own.
    pub fn add_symbols(&mut self, symbols: DebugSymbols) {
        self.debug = Some(symbols);
    }

    /// The bytes of the file.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// The bytes that the file has for an address on, up to the end of its segment.
    pub(super) fn loaded(&self, address: u64) -> &[u8] {
        let behind = self.segments.partition_point(|(start, _)| *start <= address);
        let Some((start, file)) = behind.checked_sub(1).and_then(|index| self.segments.get(index)) else { return &[] };
        usize::try_from(address - start).ok().and_then(|skipped| self.data[file.clone()].get(skipped..)).unwrap_or(&[])
    }

    /// The executable sections.
    pub(super) fn code(&self) -> &Code {
        &self.code
    }

    /// The tables of symbols, each with its strings.
    pub(super) fn tables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let own =
            self.tables.iter().map(|table| (&self.data[table.symbols.clone()], &self.data[table.strings.clone()]));
        own.chain(self.debug.as_ref().map(|debug| (&*debug.symbols, &*debug.strings)))
    }

    /// About how many bytes its symbols have.
    pub(super) fn symbol_bytes(&self) -> usize {
        self.data.len() + self.debug.as_ref().map_or(0, |debug| debug.symbols.len() + debug.strings.len())
    }

    /// The table of functions that Go's linker makes.
    pub(super) fn go_table(&self) -> Option<&[u8]> {
        self.go_table.clone().map(|file| &self.data[file])
    }

    /// The address and the bytes of the unwind entries.
    pub(super) fn eh_frame(&self) -> Option<(u64, &[u8])> {
        self.eh_frame.as_ref().map(|(address, file)| (*address, &self.data[file.clone()]))
    }
}

/// Says what a file is that is not for us, from its first 20 bytes.
pub(super) fn check_ident(data: &[u8]) -> Result<(), ImageError> {
    if !data.starts_with(b"\x7fELF") {
        return Err(ImageError::NotElf);
    }
    let size = data.len() as u64;
    let &[class, order, ..] = data.get(4..20).ok_or(ImageError::Truncated { what: "the header", end: 64, size })?
    else {
        return Err(ImageError::NotElf);
    };
    let number = |at: usize| if order == 2 { [data[at + 1], data[at]] } else { [data[at], data[at + 1]] };
    let machine = u16::from_le_bytes(number(18));
    if machine != elf::EM_X86_64.0 || order != 1 {
        let name = match elf::Machine(machine) {
            elf::EM_386 => "x86 (32-bit)".into(),
            elf::EM_ARM => "arm (32-bit)".into(),
            elf::EM_AARCH64 => "arm64".into(),
            elf::EM_RISCV => "riscv".into(),
            elf::EM_PPC64 => "ppc64".into(),
            elf::EM_S390 => "s390".into(),
            elf::EM_MIPS => "mips".into(),
            elf::EM_LOONGARCH => "loongarch".into(),
            elf::Machine(number) => format!("machine {number}"),
        };
        return Err(ImageError::Machine { name });
    }
    if class != 2 {
        return Err(ImageError::Bits32);
    }
    let kind = u16::from_le_bytes(number(16));
    if kind != elf::ET_EXEC.0 && kind != elf::ET_DYN.0 {
        return Err(ImageError::Type(kind));
    }
    Ok(())
}

/// The pages that the loaded segments take, all of them whole in the file.
fn loaded_span(segments: &[Segment], size: u64) -> Result<Range<u64>, ImageError> {
    let mut span: Option<Range<u64>> = None;
    for segment in segments.iter().filter(|segment| segment.p_type(E) == elf::PT_LOAD) {
        let end = segment.p_offset(E).saturating_add(segment.p_filesz(E));
        if end > size {
            return Err(ImageError::Truncated { what: "a segment", end, size });
        }
        let from = segment.p_vaddr(E) / PAGE * PAGE;
        let to = segment.p_vaddr(E).checked_add(segment.p_memsz(E)).and_then(|end| end.checked_next_multiple_of(PAGE));
        let to = to.ok_or(ImageError::Malformed("a segment wraps around the address space"))?;
        span = Some(span.map_or(from..to, |span| span.start.min(from)..span.end.max(to)));
    }
    span.ok_or(ImageError::Malformed("nothing in it would be loaded"))
}

/// The address and the bytes of a segment that is loaded.
fn loaded(segment: &Segment, size: usize) -> Option<(u64, Range<usize>)> {
    let from = usize::try_from(segment.p_offset(E)).ok()?;
    let to = from.checked_add(usize::try_from(segment.p_filesz(E)).ok()?)?;
    (segment.p_type(E) == elf::PT_LOAD && to <= size).then_some((segment.p_vaddr(E), from..to))
}

/// Where the bytes of a section are, if it has any and the file has them.
fn file_range(section: &SectionHeader64, size: usize) -> Option<Range<usize>> {
    let (from, len) = section.file_range(E)?;
    let from = usize::try_from(from).ok()?;
    let to = from.checked_add(usize::try_from(len).ok()?)?;
    (to <= size).then_some(from..to)
}

/// Whether it calls itself a program that can be loaded anywhere. Shared libraries do not.
fn is_pie(segments: &[Segment], data: &[u8]) -> bool {
    segments
        .iter()
        .filter_map(|segment| segment.dynamic(E, data).ok().flatten())
        .flatten()
        .any(|entry| entry.d_tag.get(E) == elf::DT_FLAGS_1 && entry.d_val.get(E) & elf::DF_1_PIE.0 != 0)
}

/// The build id from the notes that are loaded.
fn build_id<'a>(segments: &[Segment], data: &'a [u8]) -> Option<&'a [u8]> {
    let data: &'a [u8] = data.read_bytes_at(0, data.len() as u64).ok()?;
    for segment in segments {
        let Ok(Some(mut notes)) = segment.notes(E, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(E) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc());
            }
        }
    }
    None
}
