//! Whether something can be made in a directory.

use std::{fs, io, path::Path};

/// Makes a directory in `dir` and removes it again. A disk that is full is no error: it may get room.
pub(crate) fn probe(dir: &Path) -> io::Result<()> {
    let path = dir.join(format!(".spoor-probe-{}", std::process::id()));
    match fs::create_dir(&path) {
        // Others of this process may try at the same time.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => match fs::remove_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}
