//! Names and source lines of modules that were stripped: from their separate debug files.
//!
//! A debug file is known by the build id that it shares with its module, or by its name and checksum, which the module
//! has. It lies below `/usr/lib/debug`, beside the module, in the cache of debuginfod's clients, or on a debuginfod
//! server, which is asked only if the user wants that. Some modules have a small one packed into them.

mod debuginfod;
mod lines;
mod xz;

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use agent::plan::{DebugSymbols, Image};

use debuginfod::Debuginfod;
pub(crate) use lines::{FileLines, LineReader};
use xz::unpacked_bytes;

/// Where systems keep debug files.
const SYSTEM: &str = "usr/lib/debug";

/// The largest debug file that a module may have packed into it.
const MOST_EMBEDDED_BYTES: usize = 256 << 20;

/// Larger tables of source lines are left alone: reading them takes several times as much memory.
const MOST_LINE_BYTES: u64 = 128 << 20;

/// Finds debug files.
#[derive(Debug, Default)]
pub(crate) struct SymbolFinder {
    dirs: Vec<PathBuf>,
    debuginfod: Debuginfod,
}

impl SymbolFinder {
    /// Looks into these directories before the system's. With `fetch` servers are asked for what is nowhere else.
    pub(crate) fn new(dirs: &[PathBuf], fetch: bool) -> Result<Self, String> {
        Ok(Self { dirs: dirs.to_vec(), debuginfod: Debuginfod::new(fetch)? })
    }

    /// How long fetching the debug files of so many modules may take.
    pub(crate) fn time_needed(&self, modules: usize) -> Duration {
        self.debuginfod.time_needed(modules)
    }

    /// Adds the symbols to an image that its own file lacks. The module's path is that in the target's view, whose root
    /// directory is `root`. With `may_wait` servers are asked, too. Returns the file that has the source lines.
    pub(crate) fn complete(&self, image: &mut Image, root: &Path, path: &Path, may_wait: bool) -> Option<File> {
        let own =
            (1..=MOST_LINE_BYTES).contains(&image.line_bytes()).then(|| File::open(below(root, path)).ok()).flatten();
        if image.has_all_symbols() && own.is_some() {
            return own;
        }
        let found = self.local(image, root, path).or_else(|| {
            let file = may_wait.then(|| self.debuginfod.fetch(image.build_id(), path)).flatten()?;
            check(&file, image.build_id(), None)
        });
        let found = found.map(|(file, symbols)| (Some(file), symbols));
        let (file, symbols) = found.or_else(|| Some((None, embedded(image)?)))?;
        let lines = file.filter(|_| (1..=MOST_LINE_BYTES).contains(&symbols.line_bytes()));
        if !image.has_all_symbols() {
            image.add_symbols(symbols);
        }
        own.or(lines)
    }

    /// The debug file of a module that is on this machine.
    fn local(&self, image: &Image, root: &Path, path: &Path) -> Option<(File, DebugSymbols)> {
        let id = image.build_id();
        let systems = [root.join(SYSTEM), Path::new("/").join(SYSTEM)];
        let dirs = || self.dirs.iter().chain(&systems);
        if let [first, rest @ ..] = id
            && !rest.is_empty()
        {
            let name = format!(".build-id/{first:02x}/{}.debug", hexadecimal(rest));
            let places = dirs().map(|dir| dir.join(&name)).chain(self.debuginfod.cached(id));
            if let Some(found) = places.into_iter().find_map(|file| check(&file, id, None)) {
                return Some(found);
            }
        }
        let (name, crc) = image.debug_link()?;
        let name = Path::new(OsStr::from_bytes(name));
        // A name is no path to somewhere else.
        (name.file_name() == Some(name.as_os_str())).then_some(())?;
        let beside = path.parent()?;
        let own = below(root, beside);
        let places = [own.join(name), own.join(".debug").join(name)];
        let places = places.into_iter().chain(dirs().map(|dir| below(dir, beside).join(name)));
        places.into_iter().find_map(|file| check(&file, id, Some(crc)))
    }
}

/// A path of the target's view below its root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Reads a debug file if it is there and belongs to the module.
fn check(path: &Path, build_id: &[u8], crc: Option<u32>) -> Option<(File, DebugSymbols)> {
    // What is no file must not be waited for.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(())?;
    let symbols = DebugSymbols::read(&file).ok()?;
    let is_its_own = match (build_id, symbols.build_id()) {
        ([_, ..], [_, ..]) => build_id == symbols.build_id(),
        _ => Some(checksum(&file).ok()?) == crc,
    };
    is_its_own.then_some((file, symbols))
}

/// The CRC-32 of a file.
fn checksum(file: &File) -> io::Result<u32> {
    let (mut hasher, mut buffer, mut at) = (crc32fast::Hasher::new(), vec![0; 1 << 20], 0);
    loop {
        let read = file.read_at(&mut buffer, at)?;
        if read == 0 {
            return Ok(hasher.finalize());
        }
        hasher.update(&buffer[..read]);
        at += read as u64;
    }
}

/// The symbols of the debug file that is packed into a module.
fn embedded(image: &Image) -> Option<DebugSymbols> {
    let packed = image.embedded_debug_file()?;
    // Before anything is unpacked: a few bytes of xz can stand for gigabytes.
    (unpacked_bytes(packed)? <= MOST_EMBEDDED_BYTES).then_some(())?;
    let mut unpacked = Vec::new();
    lzma_rs::xz_decompress(&mut &*packed, &mut unpacked).ok()?;
    DebugSymbols::parse(&unpacked).ok()
}

/// Bytes as a build id is written.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
