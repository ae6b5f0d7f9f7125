//! The names that the symbol tables have for addresses.

use object::{LittleEndian, elf, pod};

use super::image::Image;

const E: LittleEndian = LittleEndian;

/// Names are cut here, so that a table whose every symbol names one endless string takes no endless time.
const MAX_NAME: usize = 16 * 1024;

/// A function symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol<'a> {
    /// Its link-time address.
    pub(super) address: u64,
    /// Its name without a version.
    pub(super) name: &'a [u8],
    /// Whether only its own module knows it.
    is_local: bool,
}

/// All function symbols by address; those of one address are different names, the best first.
pub(super) fn symbols(image: &Image) -> Vec<Symbol<'_>> {
    let mut all = Vec::new();
    for (bytes, strings) in image.tables() {
        let count = bytes.len() / size_of::<elf::Sym64<LittleEndian>>();
        let Ok((entries, _)) = pod::slice_from_bytes::<elf::Sym64<LittleEndian>>(bytes, count) else { continue };
        all.extend(entries.iter().filter_map(|entry| symbol(entry, strings)));
    }
    all.sort_unstable_by_key(|symbol| symbol.address);
    let mut best = Vec::with_capacity(all.len());
    for aliases in all.chunk_by_mut(|a, b| a.address == b.address) {
        if aliases.len() > 1 {
            aliases.sort_unstable_by_key(|symbol| (symbol.name, symbol.is_local));
        }
        let from = best.len();
        for &symbol in &*aliases {
            if best.get(from..).and_then(<[Symbol<'_>]>::last).is_none_or(|last| last.name != symbol.name) {
                best.push(symbol);
            }
        }
        // What others call it by, then what reads best. The order by name from above settles the rest.
        best[from..].sort_by_key(|symbol| (symbol.is_local, symbol.name.first() == Some(&b'_'), symbol.name.len()));
    }
    best
}

/// The function that an entry defines, if it does.
fn symbol<'a>(entry: &elf::Sym64<LittleEndian>, strings: &'a [u8]) -> Option<Symbol<'a>> {
    let kind = entry.st_type();
    let address = entry.st_value.get(E);
    let is_function = kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC;
    if !is_function || address == 0 || entry.st_shndx.get(E) == elf::SHN_UNDEF {
        return None;
    }
    let name = strings.get(entry.st_name.get(E) as usize..).unwrap_or_default();
    let name = &name[..name.len().min(MAX_NAME)];
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let name = match name.iter().position(|&byte| byte == b'@') {
        Some(version) if version > 0 => &name[..version],
        _ => name,
    };
    Some(Symbol { address, name, is_local: entry.st_bind() == elf::STB_LOCAL })
}
