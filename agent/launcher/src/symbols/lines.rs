//! Where functions are in their sources, read from debug files beside everything else.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    os::fd::AsRawFd,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread,
};

use addr2line::Loader;

/// The functions that each source file has: the index of each, and its line.
pub(crate) type FileLines = BTreeMap<String, Vec<(u32, u32)>>;

/// How far behind the program and delivery the reader stands.
const NICENESS: i32 = 10;

/// A thread that reads debug files, each once: many processes may have the same.
#[derive(Debug)]
pub(crate) struct LineReader {
    jobs: Sender<Job>,
}

struct Job {
    file: Arc<File>,
    /// The link-time addresses of the functions.
    addresses: Vec<u64>,
    /// Takes what was found.
    tell: Box<dyn FnOnce(Arc<FileLines>) + Send>,
}

impl LineReader {
    /// Starts it. It ends when nobody has more for it.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, received) = mpsc::channel::<Job>();
        thread::Builder::new().name("lines".into()).spawn(move || {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
            // Whoever has the same file has the same functions of it.
            let mut known = HashMap::<*const File, (Arc<File>, Arc<FileLines>)>::new();
            for Job { file, addresses, tell } in received {
                let (_, lines) = known.entry(Arc::as_ptr(&file)).or_insert_with(|| {
                    // The file comes from outside, and is read by code of others. What is wrong with it costs its lines.
                    let found = catch_unwind(AssertUnwindSafe(|| find(&file, &addresses)));
                    (file, Arc::new(found.unwrap_or_default()))
                });
                tell(Arc::clone(lines));
            }
        })?;
        Ok(Self { jobs })
    }

    /// Has the lines of a module's functions read.
    pub(crate) fn read(
        &self,
        file: Arc<File>,
        addresses: Vec<u64>,
        tell: impl FnOnce(Arc<FileLines>) + Send + 'static,
    ) {
        // It ends when this does.
        let _ = self.jobs.send(Job { file, addresses, tell: Box::new(tell) });
    }
}

/// The source files of functions, looked up one by one: while a program waits, for as few as possible.
pub(crate) struct SourceFiles<'a> {
    file: Option<&'a File>,
    loader: OnceCell<Option<Loader>>,
}

impl<'a> SourceFiles<'a> {
    /// Those that this file tells of, which is read when the first is asked for.
    pub(crate) fn of(file: Option<&'a File>) -> Self {
        Self { file, loader: OnceCell::new() }
    }

    /// The file that the function at a link-time address is from.
    pub(crate) fn file(&self, address: u64) -> Option<String> {
        // As in the thread above.
        let found = catch_unwind(AssertUnwindSafe(|| {
            let loader = self.loader.get_or_init(|| self.file.and_then(load)).as_ref()?;
            Some(loader.find_location(address).ok()??.file?.to_owned())
        }));
        found.ok().flatten()
    }
}

/// The program may be gone, and with it the path by which the file was found.
fn load(file: &File) -> Option<Loader> {
    Loader::new(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))).ok()
}

fn find(file: &File, addresses: &[u64]) -> FileLines {
    let mut files = FileLines::new();
    let Some(loader) = load(file) else { return files };
    for (index, address) in (0..).zip(addresses) {
        let Ok(Some(location)) = loader.find_location(*address) else { continue };
        if let (Some(file), Some(line @ 1..)) = (location.file, location.line) {
            match files.get_mut(file) {
                Some(lines) => lines.push((index, line)),
                None => drop(files.insert(file.into(), vec![(index, line)])),
            }
        }
    }
    files
}
