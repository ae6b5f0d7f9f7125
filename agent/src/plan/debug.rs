//! The symbols that another file has for a module: its separate debug file.

use std::{fs::File, io::Read};

use object::{
    LittleEndian, ReadCache, ReadRef, elf,
    read::elf::{CompressionHeader, FileHeader, SectionHeader},
};

use super::image::{Header, ImageError, SectionHeader64, check_ident};

const E: LittleEndian = LittleEndian;

/// The symbols of a debug file, for [`Image::add_symbols`](super::Image::add_symbols).
#[derive(Debug, Clone)]
pub struct DebugSymbols {
    build_id: Vec<u8>,
    pub(super) symbols: Vec<u8>,
    pub(super) strings: Vec<u8>,
    line_bytes: u64,
}

impl DebugSymbols {
    /// Reads a file, and of it no more than is needed: it may have gigabytes.
    pub fn read(file: &File) -> Result<Self, ImageError> {
        let mut ident = Vec::new();
        // What cannot be read is seen to be missing.
        let _ = file.take(64).read_to_end(&mut ident);
        check_ident(&ident)?;
        Self::of(&ReadCache::new(file))
    }

    /// Parses the bytes of a file.
    pub fn parse(data: &[u8]) -> Result<Self, ImageError> {
        check_ident(data)?;
        Self::of(data)
    }

    fn of<'a, R: ReadRef<'a>>(data: R) -> Result<Self, ImageError> {
        let header = Header::parse(data).map_err(|_| ImageError::Malformed("the header"))?;
        let table = header.sections(E, data).map_err(|_| ImageError::Malformed("the table of sections"))?;
        let mut found = Self { build_id: Vec::new(), symbols: Vec::new(), strings: Vec::new(), line_bytes: 0 };
        for section in table.iter() {
            match section.sh_type(E) {
                elf::SHT_SYMTAB if found.symbols.is_empty() => {
                    let Ok(strings) = table.section(object::SectionIndex(section.sh_link(E) as usize)) else {
                        continue;
                    };
                    if let (Ok(symbols), Ok(strings)) = (section.data(E, data), strings.data(E, data)) {
                        (found.symbols, found.strings) = (symbols.to_vec(), strings.to_vec());
                    }
                }
                elf::SHT_NOTE if found.build_id.is_empty() => {
                    let Ok(Some(mut notes)) = section.notes(E, data) else { continue };
                    while let Ok(Some(note)) = notes.next() {
                        if note.name() == elf::ELF_NOTE_GNU && note.n_type(E) == elf::NT_GNU_BUILD_ID {
                            found.build_id = note.desc().to_vec();
                        }
                    }
                }
                _ => {
                    let name = table.section_name(E, section).unwrap_or_default();
                    found.line_bytes = line_bytes(name, section, data).unwrap_or(found.line_bytes);
                }
            }
        }
        Ok(found)
    }

    /// The build id that it has; empty if there is none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// How many bytes its table of source lines has, unpacked; 0 if there is none.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }
}

/// How many bytes a table of source lines has, unpacked, if the section with this name is one.
pub(super) fn line_bytes<'a, R: ReadRef<'a>>(name: &[u8], section: &SectionHeader64, data: R) -> Option<u64> {
    let size = section.sh_size(E);
    match name {
        b".debug_line" if section.sh_type(E) == elf::SHT_PROGBITS => {
            let packed = section.compression(E, data).ok().flatten();
            Some(packed.map_or(size, |(header, ..)| header.ch_size(E)))
        }
        // As old toolchains pack it: a word, and how many bytes it has unpacked.
        b".zdebug_line" => {
            let head = data.read_bytes_at(section.sh_offset(E), 12).ok()?;
            let unpacked = head.strip_prefix(b"ZLIB").and_then(|bytes| bytes.try_into().ok());
            Some(unpacked.map_or(size, u64::from_be_bytes))
        }
        _ => None,
    }
}
