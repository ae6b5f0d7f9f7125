//! Names and source lines of modules that were stripped: from their separate debug files.
//!
//! A debug file is known by the build id that it shares with its module, or by its name and checksum, which the module
//! has. It lies below `/usr/lib/debug`, beside the module, in the cache of debuginfod's clients, or on a debuginfod
//! server, which is asked only if the user wants that. Some modules have a small one packed into them.

mod debuginfod;
mod lines;
mod xz;

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::{File, Metadata, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use agent::plan::{DebugSymbols, Image};

use debuginfod::Debuginfod;
pub(crate) use lines::{FileLines, LineReader, SourceFiles};
use xz::unpacked_bytes;

use crate::quantity::Size;

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
    /// The files of which it was said what is wrong with them.
    told: Mutex<HashSet<PathBuf>>,
}

/// What was found of the source lines of a module.
#[derive(Debug, Default)]
pub(crate) struct FoundLines {
    /// The file that has them.
    pub(crate) file: Option<File>,
    /// Why those that there are are not read.
    pub(crate) unread: Option<String>,
}

impl SymbolFinder {
    /// Looks into these directories before the system's. With `fetch` servers are asked for what is nowhere else.
    pub(crate) fn new(dirs: &[PathBuf], fetch: bool) -> Result<Self, String> {
        Ok(Self { dirs: dirs.to_vec(), debuginfod: Debuginfod::new(fetch)?, told: Mutex::default() })
    }

    /// How long fetching the debug files of so many modules may take.
    pub(crate) fn time_needed(&self, modules: usize) -> Duration {
        self.debuginfod.time_needed(modules)
    }

    /// Adds the symbols to an image that its own file lacks. The module's path is that in the target's view, whose root
    /// directory is `root`. With `may_wait` servers are asked, too. Returns where the source lines are. What cannot be used
    /// is said, once for each file.
    pub(crate) fn complete(&self, image: &mut Image, root: &Path, path: &Path, may_wait: bool) -> FoundLines {
        let own = self.lines(path, image.line_bytes(), || File::open(below(root, path)).ok());
        if image.has_all_symbols() && (own.file.is_some() || own.unread.is_some()) {
            return own;
        }
        let mut misfits = Vec::new();
        let found = self.local(image, root, path, &mut misfits).or_else(|| {
            let file = may_wait.then(|| self.debuginfod.fetch(image.build_id(), path)).flatten()?;
            let (debug, symbols) = check(&file, image.build_id(), None).ok()?;
            Some((file, debug, symbols))
        });
        let (lines, symbols) = match found {
            Some((place, file, symbols)) => {
                (self.lines(&place, symbols.line_bytes(), move || Some(file)), Some(symbols))
            }
            None => {
                for (file, why) in misfits {
                    self.say_once(&file, &format!("is not the debug file of {}: {why}", path.display()));
                }
                (FoundLines::default(), embedded(image))
            }
        };
        if let Some(symbols) = symbols.filter(|_| !image.has_all_symbols()) {
            image.add_symbols(symbols);
        }
        if own.file.is_some() || lines.file.is_none() && own.unread.is_some() { own } else { lines }
    }

    /// The file with a table of source lines of so many bytes, unless that is too large.
    fn lines(&self, path: &Path, bytes: u64, file: impl FnOnce() -> Option<File>) -> FoundLines {
        match bytes {
            0 => FoundLines::default(),
            1..=MOST_LINE_BYTES => FoundLines { file: file(), unread: None },
            _ => {
                let unread = format!("the table has {}, more than {}", Size(bytes), Size(MOST_LINE_BYTES));
                self.say_once(path, &format!("has source lines that are not read: {unread}"));
                FoundLines { file: None, unread: Some(unread) }
            }
        }
    }

    fn say_once(&self, file: &Path, what: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(file.to_owned()) {
            say!("{} {what}", file.display());
        }
    }

    /// The debug file of a module that is on this machine, and those that look like it and are another's.
    fn local(&self, image: &Image, root: &Path, path: &Path, misfits: &mut Vec<Misfit>) -> Option<Found> {
        let id = image.build_id();
        let mut look = |file: PathBuf, crc| match check(&file, id, crc) {
            Ok((debug, symbols)) => Some((file, debug, symbols)),
            Err(why) => {
                misfits.extend(why.map(|why| (file, why)));
                None
            }
        };
        let systems = [root.join(SYSTEM), Path::new("/").join(SYSTEM)];
        let dirs = || self.dirs.iter().chain(&systems);
        if let [first, rest @ ..] = id
            && !rest.is_empty()
        {
            let name = format!(".build-id/{first:02x}/{}.debug", hexadecimal(rest));
            let places = dirs().map(|dir| dir.join(&name)).chain(self.debuginfod.cached(id));
            if let Some(found) = places.into_iter().find_map(|file| look(file, None)) {
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
        places.into_iter().find_map(|file| look(file, Some(crc)))
    }
}

/// A path of the target's view below its root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// A debug file: where it is, and what is in it.
type Found = (PathBuf, File, DebugSymbols);

/// A debug file that is another's, and how that is known.
type Misfit = (PathBuf, String);

/// Reads a debug file if it is there and belongs to the module. Tells why a debug file does not.
fn check(path: &Path, build_id: &[u8], crc: Option<u32>) -> Result<(File, DebugSymbols), Option<String>> {
    // What is no file must not be waited for.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(|_| None)?;
    file.metadata().ok().filter(Metadata::is_file).ok_or(None)?;
    let symbols = DebugSymbols::read(&file).map_err(|_| None)?;
    let differs = match (build_id, symbols.build_id()) {
        ([_, ..], other @ [_, ..]) => (build_id != other)
            .then(|| format!("its build id is {}, that of the module {}", hexadecimal(other), hexadecimal(build_id))),
        _ => {
            let found = checksum(&file).map_err(|_| None)?;
            let expected = || crc.map_or("none".into(), |crc| format!("{crc:08x}"));
            (Some(found) != crc).then(|| format!("its checksum is {found:08x}, by the module {}", expected()))
        }
    };
    differs.map_or(Ok((file, symbols)), |why| Err(Some(why)))
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
