//! The names that the symbol tables have for addresses.

use object::{LittleEndian, elf, pod};

use super::{go::GoFunction, image::Image};

const E: LittleEndian = LittleEndian;

/// Names are cut here, so that a table whose every symbol names one endless string takes no endless time.
pub(super) const MAX_NAME: usize = 16 * 1024;

/// A function symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol<'a> {
    /// Its link-time address.
    pub(super) address: u64,
    /// How long it is, as far as is said.
    pub(super) size: u64,
    /// Its name without a version.
    pub(super) name: &'a [u8],
    /// Whether only its own module knows it.
    pub(super) is_local: bool,
}

/// All function symbols by address, with those of Go's own table; those of one address are different names, the best first.
pub(super) fn symbols<'a>(image: &'a Image, go: &[GoFunction<'a>]) -> Vec<Symbol<'a>> {
    let listed = entries(image).filter_map(|(entry, strings)| symbol(entry, strings));
    let mut all: Vec<_> = listed.chain(go.iter().map(GoFunction::symbol)).collect();
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

/// Whether Swift's compiler has made a function with this name.
pub(super) fn is_swift(name: &str) -> bool {
    name.starts_with("$s")
}

/// The entries of all symbol tables, each with the strings that its name is among.
fn entries(image: &Image) -> impl Iterator<Item = (&elf::Sym64<LittleEndian>, &[u8])> {
    image.tables().flat_map(|(bytes, strings)| {
        let count = bytes.len() / size_of::<elf::Sym64<LittleEndian>>();
        let entries = pod::slice_from_bytes::<elf::Sym64<LittleEndian>>(bytes, count).map(|(entries, _)| entries);
        entries.unwrap_or_default().iter().map(move |entry| (entry, strings))
    })
}

/// The function that an entry defines, if it does.
fn symbol<'a>(entry: &elf::Sym64<LittleEndian>, strings: &'a [u8]) -> Option<Symbol<'a>> {
    let kind = entry.st_type();
    let address = entry.st_value.get(E);
    let is_function = kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC;
    if !is_function || address == 0 || entry.st_shndx.get(E) == elf::SHN_UNDEF {
        return None;
    }
    let (size, name) = (entry.st_size.get(E), name(entry, strings));
    Some(Symbol { address, size, name, is_local: entry.st_bind() == elf::STB_LOCAL })
}

/// The name of an entry, without a version.
fn name<'a>(entry: &elf::Sym64<LittleEndian>, strings: &'a [u8]) -> &'a [u8] {
    let name = strings.get(entry.st_name.get(E) as usize..).unwrap_or_default();
    let name = &name[..name.len().min(MAX_NAME)];
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    match name.iter().position(|&byte| byte == b'@') {
        Some(version) if version > 0 => &name[..version],
        _ => name,
    }
}
