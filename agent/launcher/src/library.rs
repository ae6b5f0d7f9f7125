//! The library that goes into the target. It travels inside this command, and is put into a file for the loader.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process,
};

use anyhow::{Result, anyhow};
use rustix::fs::StatVfsMountFlags;

pub(crate) const BYTES: &[u8] = include_bytes!(env!("SPOOR_LIBRARY_FILE"));
const HASH: &str = env!("SPOOR_LIBRARY_HASH");

/// Who will load it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A process of this user.
    Own,
    /// A process of somebody else, who may not look into this user's folders.
    Other,
}

/// Puts the library where `reader` can load it, and says where. What is already there is used if it is whole.
pub(crate) fn place(reader: Reader) -> Result<PathBuf> {
    let mut failures = Vec::new();
    for folder in folders(reader) {
        match place_in(&folder, reader) {
            Ok(path) => return Ok(path),
            Err(error) => failures.push(format!("{}: {error}", folder.display())),
        }
    }
    Err(anyhow!(
        "cannot write the agent library, {} bytes: {} (set XDG_CACHE_HOME or TMPDIR to a folder that can be written to \
         and that is not mounted noexec)",
        BYTES.len(),
        failures.join("; ")
    ))
}

/// Another version has another name, so that one never takes the place of the other.
fn file_name() -> String {
    format!("libagent-{HASH}.so")
}

fn folders(reader: Reader) -> Vec<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let own = (reader == Reader::Own).then_some(cache).flatten().map(|folder| folder.join("spoor"));
    let user = rustix::process::geteuid().as_raw();
    own.into_iter().chain([env::temp_dir().join(format!("spoor-{user}"))]).collect()
}

fn place_in(folder: &Path, reader: Reader) -> io::Result<PathBuf> {
    // What `LD_PRELOAD` is separated by.
    if folder.as_os_str().as_encoded_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        return Err(io::Error::other("has a space or a colon in its name, which the loader takes for its end"));
    }
    DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(io::Error::other("is not a folder that only this user can write to"));
    }
    if reader == Reader::Other {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    if rustix::fs::statvfs(folder)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other("is mounted noexec, and nothing can be loaded from there"));
    }
    let path = folder.join(file_name());
    if !is_whole(&path) {
        write(folder, &path)?;
    }
    Ok(path)
}

fn is_whole(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let mut bytes = Vec::with_capacity(BYTES.len() + 1);
    file.read_to_end(&mut bytes).is_ok() && bytes == BYTES
}

/// Under another name first, so that nobody ever loads half of it.
fn write(folder: &Path, path: &Path) -> io::Result<()> {
    let partial = folder.join(format!("{}.{}", file_name(), process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&partial)?;
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
        file.write_all(BYTES)?;
        fs::rename(&partial, path)
    })();
    if written.is_err() {
        // Nothing can be done about a file that cannot even be removed.
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_file_is_written_again() {
        let folder = env::temp_dir().join(format!("spoor-test-{}", process::id()));
        let path = place_in(&folder, Reader::Own).expect("placed");
        assert_eq!(fs::read(&path).expect("read"), BYTES);
        fs::write(&path, b"half").expect("written");
        assert_eq!(place_in(&folder, Reader::Own).expect("placed again"), path);
        assert_eq!(fs::read(&path).expect("read"), BYTES);

        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("permissions");
        let error = place_in(&folder, Reader::Own).expect_err("anybody could change it");
        assert!(error.to_string().contains("only this user"), "{error}");
        fs::remove_dir_all(&folder).expect("removed");

        let error = place_in(Path::new("/tmp/a:b"), Reader::Own).expect_err("not to be preloaded");
        assert!(error.to_string().contains("colon"), "{error}");
    }
}
