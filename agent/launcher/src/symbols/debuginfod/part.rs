//! A file of the cache that is being fetched: others may be fetching the same, and whoever does may be killed over it.

use std::{
    fs::{self, File},
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, linkat, open};

/// A file that is not in the cache before it is whole.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) file: File,
    /// Where it is meanwhile, where the file system has no files without names.
    named: Option<PathBuf>,
}

impl Part {
    /// One for a file in this directory. Removes those there that somebody was killed over.
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        remove_abandoned(dir);
        match open(dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o600)) {
            Ok(file) => Self::locked(file.into(), None),
            Err(_) => Self::create_named(dir),
        }
    }

    fn create_named(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("debuginfo.{}.part", std::process::id()));
        Self::locked(File::create(&path)?, Some(path))
    }

    /// As long as somebody has it, it is locked, so that nobody takes it for abandoned.
    fn locked(file: File, named: Option<PathBuf>) -> io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { file, named })
    }

    /// Where it can be read.
    pub(super) fn path(&self) -> PathBuf {
        self.named.clone().unwrap_or_else(|| format!("/proc/self/fd/{}", self.file.as_raw_fd()).into())
    }

    /// Gives it its place in the cache. One that is there already is as good.
    pub(super) fn keep(mut self, place: &Path) -> io::Result<()> {
        match self.named.take() {
            Some(path) => fs::rename(path, place),
            None => match linkat(CWD, self.path(), CWD, place, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => Ok(()),
                Err(rustix::io::Errno::EXIST) => replace(&self.path(), place),
                Err(error) => Err(error.into()),
            },
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(path) = &self.named {
            let _ = fs::remove_file(path);
        }
    }
}

/// Puts a file without a name where another one is.
fn replace(file: &Path, place: &Path) -> io::Result<()> {
    let name = place.with_file_name(format!("debuginfo.{}.whole.part", std::process::id()));
    linkat(CWD, file, CWD, &name, AtFlags::SYMLINK_FOLLOW)?;
    fs::rename(&name, place)
}

/// Removes what nobody has locked.
fn remove_abandoned(dir: &Path) {
    let is_part = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("debuginfo.") && name.ends_with(".part"))
    };
    let paths = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in paths.filter(|path| is_part(path)) {
        let file = File::open(&path);
        if file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_somebody_was_killed_over_is_removed_and_what_somebody_has_is_not() {
        let dir = std::env::temp_dir().join(format!("spoor-parts-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("made");
        let abandoned = dir.join("debuginfo.1.part");
        fs::write(&abandoned, "half").expect("written");
        let held = Part::create_named(&dir).expect("made");
        let mut part = Part::create(&dir).expect("made");
        assert!(!abandoned.exists() && held.path().exists());
        let place = dir.join("debuginfo");
        for text in ["whole", "another"] {
            part.file.write_all(text.as_bytes()).expect("written");
            part.keep(&place).expect("kept");
            assert_eq!(fs::read_to_string(&place).expect("it is there"), text);
            part = Part::create(&dir).expect("made");
        }
        drop((held, part));
        assert_eq!(fs::read_dir(&dir).expect("it is there").count(), 1, "nothing else is left");
        fs::remove_dir_all(&dir).expect("it is there");
    }
}
