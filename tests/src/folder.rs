//! Folders that are gone when the test is.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::failure;

/// A folder for one test. It is removed with all that is in it, unless the test failed.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new empty folder. `name` is for those who look at what a failed test left behind.
    pub fn new(name: &str) -> Self {
        Self::within(&env::temp_dir(), name)
    }

    /// The same in memory, if there is room, for what does not work on a disk that is slow.
    pub fn in_memory(name: &str) -> Self {
        const ROOM: u64 = 2 << 30;
        let memory = Path::new("/dev/shm");
        let has_room = rustix::fs::statvfs(memory).is_ok_and(|disk| disk.f_bavail * disk.f_frsize >= ROOM);
        if has_room { Self::within(memory, name) } else { Self::new(name) }
    }

    fn within(place: &Path, name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        failure::tell_at_once();
        // ORDERING: the numbers only have to differ.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("spoor-service-{}-{number}-{name}", process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A place in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Everything in a folder and below it, by path relative to it, in order.
    pub fn tree(of: &Path) -> Vec<PathBuf> {
        let (mut tree, mut folders) = (Vec::new(), vec![of.to_path_buf()]);
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                folders.extend(entry.file_type().is_ok_and(|kind| kind.is_dir()).then(|| entry.path()));
                tree.extend(entry.path().strip_prefix(of).map(PathBuf::from));
            }
        }
        tree.sort();
        tree
    }

    /// The files in a folder and below it, by path relative to it, and what is in them.
    pub fn contents(of: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = Self::tree(of).into_iter().filter(|path| of.join(path).is_file());
        files.map(|path| (path.clone(), fs::read(of.join(path)).expect("a file"))).collect()
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // What cannot be removed is left to whoever cleans the machine.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
