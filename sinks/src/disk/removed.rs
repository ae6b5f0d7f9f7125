//! What was taken out of a part so that the rest can go on: it is put aside, and nothing is deleted.

use std::{
    fs::{self, OpenOptions},
    io,
    path::Path,
};

use super::directory::{another, read_if_there};

/// The folder for it, in the directory of the part.
pub(super) const REMOVED: &str = "removed";

/// Cuts a file of a part behind `keep` bytes, having put aside what lies there. Without any left, the file goes.
///
/// `name` is what the file is called in the folder, where the byte that it was cut at is added, and `bytes` are all that
/// it has.
pub(super) fn cut(dir: &Path, path: &Path, name: &str, bytes: &[u8], keep: u64) -> io::Result<()> {
    let tail = usize::try_from(keep).ok().and_then(|keep| bytes.get(keep..)).unwrap_or_default();
    put(&dir.join(REMOVED), &format!("{name}-from-{keep}"), tail)?;
    match keep {
        0 => fs::remove_file(path),
        _ => OpenOptions::new().write(true).open(path)?.set_len(keep),
    }
}

/// Puts bytes aside under this name, or another where it is taken.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    for attempt in 1.. {
        let path = folder.join(another(name, attempt));
        // The beginning of the same may be what somebody was interrupted at.
        if read_if_there(&path)?.is_none_or(|found| bytes.starts_with(&found)) {
            return fs::write(path, bytes);
        }
    }
    Ok(())
}

/// How many bytes were put aside of a part, all times together.
pub(super) fn removed_bytes(dir: &Path) -> io::Result<u64> {
    match fs::read_dir(dir.join(REMOVED)) {
        Ok(entries) => entries.map(|entry| Ok(entry?.metadata()?.len())).sum(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_aside_stays_there() {
        let dir = std::env::temp_dir().join(format!("spoor-removed-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("made");
        let path = dir.join("file");
        for bytes in [&b"headtail"[..], b"headother", b"headothers", b"head"] {
            fs::write(&path, bytes).expect("written");
            cut(&dir, &path, "file", bytes, 4).expect("cut");
            assert_eq!(fs::read(&path).expect("it is there"), b"head");
        }
        let read = |name: &str| fs::read(dir.join(REMOVED).join(name)).expect("it is there");
        assert_eq!((read("file-from-4"), read("file-from-4-2")), (b"tail".to_vec(), b"others".to_vec()));
        assert_eq!(removed_bytes(&dir).expect("it is there"), 10);
        cut(&dir, &path, "file", b"head", 0).expect("cut");
        assert!(!path.exists() && read("file-from-0") == b"head");
        fs::remove_dir_all(&dir).expect("it is there");
    }
}
