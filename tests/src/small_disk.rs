//! A disk that is full at will.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    Folder,
    process::{Process, Stdout},
    python::skip,
};

/// A file system in memory with little room. A process with mounts of its own has it; it is gone when that process is.
#[derive(Debug)]
pub struct SmallDisk {
    /// Where everybody can reach it.
    path: PathBuf,
    _holder: Process,
    _place: Folder,
}

impl SmallDisk {
    /// One with so much room. Where nobody may mount anything, the test that asked is over, and says so.
    pub fn new(kib: u64) -> Option<Self> {
        let place = Folder::new("small-disk");
        let mut command = Command::new("unshare");
        let script = format!("mount -t tmpfs -o size={kib}k none \"$0\" && echo mounted >&2 && exec sleep 600");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(place.path());
        let holder = Process::start(command, Stdout::Collect);
        let is_mounted =
            holder.find(Duration::from_secs(20), |lines| lines.iter().any(|line| line == "mounted").then_some(()));
        if is_mounted.is_none() {
            skip(&format!("unshare and mount: {}", holder.said()));
            return None;
        }
        let path = Path::new("/proc")
            .join(holder.pid().to_string())
            .join("root")
            .join(&place.path().display().to_string()[1..]);
        Some(Self { path, _holder: holder, _place: place })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it no room.
    pub fn fill(&self) {
        self.fill_but(0);
    }

    /// The same, but for so much.
    pub fn fill_but(&self, kib: u64) {
        let mut file = File::create(self.path.join("filler")).expect("a file takes no room");
        for bytes in [64 << 10, 4 << 10, 1] {
            while file.write_all(&vec![0; bytes]).is_ok() {}
        }
        let length = file.metadata().expect("a file").len();
        file.set_len(length.saturating_sub(kib << 10)).expect("it gets shorter");
    }

    /// Gives the room back.
    pub fn free(&self) {
        fs::remove_file(self.path.join("filler")).expect("it was full");
    }
}

impl AsRef<Path> for SmallDisk {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}
