//! Where functions are in their sources, read from debug files beside everything else.

use std::{
    collections::BTreeMap,
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

/// A thread that reads debug files.
#[derive(Debug)]
pub(crate) struct LineReader {
    jobs: Sender<Job>,
}

#[derive(Debug)]
struct Job {
    module: u32,
    file: Arc<File>,
    /// The link-time addresses of the functions.
    addresses: Vec<u64>,
}

impl LineReader {
    /// Starts it. It tells what it has found of each module, until nobody has more for it.
    pub(crate) fn start(tell: impl Fn(u32, FileLines) + Send + 'static) -> io::Result<Self> {
        let (jobs, received) = mpsc::channel::<Job>();
        thread::Builder::new().name("lines".into()).spawn(move || {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
            for job in received {
                // The file comes from outside, and is read by code of others. What is wrong with it costs its lines.
                let found = catch_unwind(AssertUnwindSafe(|| find(&job.file, &job.addresses)));
                tell(job.module, found.unwrap_or_default());
            }
        })?;
        Ok(Self { jobs })
    }

    /// Has the lines of a module's functions read.
    pub(crate) fn read(&self, module: u32, file: Arc<File>, addresses: Vec<u64>) {
        // It ends when this does.
        let _ = self.jobs.send(Job { module, file, addresses });
    }
}

fn find(file: &File, addresses: &[u64]) -> FileLines {
    let mut files = FileLines::new();
    // The program may be gone, and with it the path by which the file was found.
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let Ok(loader) = Loader::new(path) else { return files };
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
