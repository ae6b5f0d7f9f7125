//! What is mapped in the target: its modules, where there is room for stubs, and the memory itself.

use std::{
    fs::{self, File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::PathBuf,
};

use agent::shared::LOCAL_THIS;
use anyhow::{Result, bail};

use super::file_name;
use crate::process;

/// A jump reaches 2 GiB; what instructions refer to lies in other parts of the module, or a little outside.
const REACH: u64 = (2 << 30) - (64 << 20);

/// A part of the target's address space.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    writable: bool,
    executable: bool,
    /// Whether what is written to it is written to the file.
    shared: bool,
    offset: u64,
    /// As the kernel tells it: a path, a name in brackets, or nothing.
    name: String,
}

/// A file that the target runs code of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Where its first byte is.
    pub(crate) base: u64,
    pub(crate) end: u64,
    /// Its path in the target's view.
    pub(crate) path: String,
}

/// The target's address space.
#[derive(Debug)]
pub(crate) struct Maps {
    pid: i32,
    mappings: Vec<Mapping>,
}

impl Maps {
    pub(crate) fn read(pid: i32) -> io::Result<Self> {
        let text = process::look_into(pid, |folder| {
            let text = fs::read(folder.join("maps"))?;
            if text.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(text) }
        });
        // A path need not be text. What is cut in it cannot be opened, and is told.
        let mappings = String::from_utf8_lossy(&text?).lines().filter_map(parse).collect();
        Ok(Self { pid, mappings })
    }

    /// The files that the target runs code of, by address.
    pub(crate) fn modules(&self) -> Vec<Mapped> {
        let mut modules: Vec<Mapped> = Vec::new();
        let mut rest = self.mappings.as_slice();
        while let [first, behind @ ..] = rest {
            rest = behind;
            // The kernel and the loader map a file from its start, its parts in order, with nothing else of it between.
            if !first.name.starts_with('/') || first.offset != 0 {
                continue;
            }
            let same = |mapping: &&Mapping| mapping.name == first.name || mapping.name.is_empty();
            let parts: Vec<_> =
                behind.iter().take_while(same).take_while(|next| next.offset != 0 || next.name.is_empty()).collect();
            let last = parts.iter().rfind(|mapping| mapping.name == first.name).map_or(first, |last| last);
            // A program that maps a library to look at it has one mapping; the loader makes several, with and without
            // code, and shares none.
            let of_file = || parts.iter().copied().chain([first]).filter(|mapping| mapping.name == first.name);
            let has_code = of_file().any(|mapping| mapping.executable);
            if has_code && of_file().any(|mapping| !mapping.executable) && !of_file().any(|mapping| mapping.shared) {
                modules.push(Mapped { base: first.start, end: last.end, path: first.name.clone() });
            }
        }
        modules
    }

    /// Room for code behind the code of a module that stays, which nobody executes: that many zeros, up to the end of a page. The
    /// program has begun at `entry`.
    pub(crate) fn padding(&self, memory: &TargetMemory, entry: u64, bytes: u64) -> Option<u64> {
        let program = self.name_at(entry);
        let stays = |mapping: &&Mapping| {
            let file = file_name(&mapping.name);
            program == Some(&mapping.name) || ["ld-", "libc."].iter().any(|start| file.starts_with(start))
        };
        let code = self.mappings.iter().filter(|mapping| mapping.executable).filter(stays);
        code.filter_map(|mapping| mapping.end.checked_sub(bytes)).find(|start| {
            let mut there = vec![1; bytes as usize];
            memory.read(*start, &mut there).is_ok() && there.iter().all(|byte| *byte == 0)
        })
    }

    /// What is mapped at an address.
    pub(crate) fn name_at(&self, address: u64) -> Option<&str> {
        let holds = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        self.mappings.iter().find(holds).map(|mapping| mapping.name.as_str())
    }

    /// Whether a thread of the process loads or unloads a library: the locks of the C library's loader say who holds them. They are
    /// recursive, in the loader's data.
    pub(crate) fn is_loading(&self, pid: i32) -> bool {
        const RECURSIVE: u32 = 1;
        let is_loader = |mapping: &&Mapping| file_name(&mapping.name).starts_with("ld-") && mapping.writable;
        let Ok(memory) = TargetMemory::open(pid) else { return false };
        let is_held = |words: &[u32]| matches!(*words, [1 | 2, depth, owner, 1, RECURSIVE] if depth > 0 && owner > 0);
        self.mappings.iter().filter(is_loader).any(|mapping| {
            let mut bytes = vec![0; (mapping.end - mapping.start) as usize];
            let read = memory.read(mapping.start, &mut bytes);
            let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
            read.is_ok() && words.windows(5).step_by(2).any(is_held)
        })
    }

    /// Where mappings of this name begin.
    pub(crate) fn starts_of(&self, name: &str) -> impl Iterator<Item = u64> {
        self.mappings.iter().filter(move |mapping| mapping.name == name).map(|mapping| mapping.start)
    }

    /// Where mappings of code begin that is in no file and has this many bytes.
    pub(super) fn code_without_file(&self, bytes: u64) -> impl Iterator<Item = u64> {
        let is_code = move |mapping: &&Mapping| mapping.executable && mapping.name.is_empty();
        let is_as_large = move |mapping: &&Mapping| mapping.end - mapping.start == bytes;
        self.mappings.iter().filter(is_code).filter(is_as_large).map(|mapping| mapping.start)
    }

    /// Where a file of the target can be opened: the target may see other files than we do.
    pub(crate) fn open_path(&self, module: &Mapped) -> PathBuf {
        self.root().join(module.path.trim_start_matches('/'))
    }

    /// The target's root directory.
    pub(crate) fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", process::living(self.pid)))
    }

    /// Where this many bytes may begin so that a jump reaches all of them from all of a module, and back.
    pub(super) fn reach_of(&self, module: &Mapped, bytes: u64) -> Range<u64> {
        module.end.saturating_sub(REACH)..(module.base + REACH).saturating_sub(bytes)
    }

    /// Places for this many bytes so close to a module that a jump reaches all of one from all of the other, the
    /// nearest first. The heap begins, or will begin, at `heap`.
    pub(crate) fn room_near(&self, module: &Mapped, bytes: u64, heap: u64) -> Vec<u64> {
        /// What stays free beside other mappings, so that a heap or a stack can still grow.
        const MARGIN: u64 = 1 << 20;
        /// Not below: the kernel keeps the lowest addresses free.
        const LOWEST: u64 = 1 << 16;
        /// What stays free behind the heap.
        const HEAP: u64 = 1 << 30;
        let grown = self.mappings.iter().find(|mapping| mapping.name == "[heap]").map_or(heap, |mapping| mapping.end);
        let mut taken: Vec<_> = self.mappings.iter().map(|mapping| (mapping.start, mapping.end)).collect();
        taken.extend([(heap, grown.saturating_add(HEAP)), (1 << 47, u64::MAX)]);
        taken.sort_unstable();
        let mut places = Vec::new();
        let mut free = LOWEST;
        for (start, end) in taken {
            let (from, to) = (free.saturating_add(MARGIN), start.saturating_sub(MARGIN).saturating_sub(bytes));
            free = free.max(end);
            if from > to {
                continue;
            }
            // The place in the gap that is nearest to the module.
            let place = module.base.clamp(from, to) & !0xFFF;
            let low = place.min(module.base);
            let high = (place + bytes).max(module.end);
            if place >= from && high - low <= REACH {
                places.push(place);
            }
        }
        places.sort_by_key(|place| place.abs_diff(module.base));
        places
    }
}

/// The target's memory. Writing to it asks for no permission of the page: code stays code.
#[derive(Debug)]
pub(crate) struct TargetMemory(File);

impl TargetMemory {
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        process::look_into(pid, |folder| {
            let memory = Self(OpenOptions::new().read(true).write(true).open(folder.join("mem"))?);
            if memory.is_nobodys() { Err(io::ErrorKind::NotFound.into()) } else { Ok(memory) }
        })
    }

    pub(crate) fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, address)
    }

    /// Whether nobody has this memory any more, since the process runs another program. One that is about to end has none either.
    pub(crate) fn is_replaced(&self, pid: i32) -> bool {
        self.is_nobodys() && Maps::read(pid).is_ok()
    }

    fn is_nobodys(&self) -> bool {
        // Of memory that is there, this place is not mapped.
        matches!(self.0.read_at(&mut [0], 0), Ok(0))
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}

impl TargetMemory {
    /// Refuses a program that has something of its own at `gs`. What the library has there says where it is.
    pub(crate) fn may_use_gs(&self, gs: u64) -> Result<()> {
        let mut this = [0; 8];
        let is_ours =
            self.read(gs.wrapping_add(LOCAL_THIS as u64), &mut this).is_ok() && u64::from_ne_bytes(this) == gs;
        if gs != 0 && !is_ours {
            bail!("the program uses the register gs for itself, and so does the agent: it cannot be traced");
        }
        Ok(())
    }
}

fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let name = fields.nth(2).unwrap_or("").trim_start();
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        writable: permissions.contains('w'),
        executable: permissions.contains('x'),
        shared: permissions.contains('s'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        name: name.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
00400000-00401000 r--p 00000000 fe:00 11                                 /usr/bin/low
00401000-00402000 r-xp 00001000 fe:00 11                                 /usr/bin/low
00402000-00403000 rw-p 00002000 fe:00 11                                 /usr/bin/low
00403000-00404000 rw-p 00000000 00:00 0                                  [heap]
7f0000000000-7f0000001000 r--p 00000000 fe:00 12                         /usr/lib/a b.so
7f0000001000-7f0000002000 r-xp 00001000 fe:00 12                         /usr/lib/a b.so
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
7f0000003000-7f0000004000 r--p 00000000 fe:00 13                         /usr/share/data
7f0000005000-7f0000006000 r-xp 00000000 fe:00 14                         /usr/lib/looked-at.so
7f0000007000-7f0000008000 r--s 00000000 fe:00 15                         /usr/lib/shared.so
7f0000008000-7f0000009000 rwxs 00001000 fe:00 15                         /usr/lib/shared.so
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
";

    const HEAP: u64 = 0x40_3000;

    fn maps() -> Maps {
        Maps { pid: 1, mappings: TEXT.lines().filter_map(parse).collect() }
    }

    #[test]
    fn modules_are_files_that_the_loader_has_mapped() {
        let modules = maps().modules();
        let shown: Vec<_> = modules.iter().map(|module| (module.base, module.end, module.path.as_str())).collect();
        let expected =
            [(0x40_0000, 0x40_3000, "/usr/bin/low"), (0x7F00_0000_0000, 0x7F00_0000_2000, "/usr/lib/a b.so")];
        assert_eq!(shown, expected);
    }

    #[test]
    fn room_is_free_and_near() {
        let maps = maps();
        for module in maps.modules() {
            let places = maps.room_near(&module, 1 << 20, HEAP);
            assert!(!places.is_empty());
            for place in places {
                assert!(place.abs_diff(module.base) < 2 << 30);
                let free = |mapping: &Mapping| mapping.end <= place || place + (1 << 20) <= mapping.start;
                assert!(maps.mappings.iter().all(free), "{place:x}");
                assert!(!(HEAP..HEAP + (1 << 30)).contains(&place), "{place:x}");
            }
        }
    }

    #[test]
    fn room_is_found_between_the_loader_and_the_stack() {
        const TEXT: &str = "\
555555554000-555555556000 r-xp 00000000 fe:00 11                         /usr/bin/low
7ff7f7fc4000-7ffff7fc6000 rw-s 00000000 00:01 12                         /memfd:rings
7ffff7fca000-7ffff7fcb000 r--p 00000000 fe:00 13                         /usr/lib/ld.so
7ffff7fcb000-7ffff7fff000 r-xp 00001000 fe:00 13                         /usr/lib/ld.so
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
";
        let maps = Maps { pid: 1, mappings: TEXT.lines().filter_map(parse).collect() };
        let loader = maps.modules().pop().expect("there is one");
        let places = maps.room_near(&loader, 1 << 20, 0x5555_5555_7000);
        assert_eq!(places, [loader.end + (1 << 20)]);
    }
}
