//! A file that gets its name once all of it is there.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    process,
};

use sinks::disk::is_of_session;

/// Removes what there is of a file, unless it was finished.
#[derive(Debug)]
pub(super) struct Whole {
    /// What it is called until then, and after. A device or a pipe has no other name: it takes what comes.
    names: Option<(PathBuf, PathBuf)>,
}

impl Whole {
    /// Returns what to write to. What is there already stays until it is finished.
    pub(super) fn create(path: &Path) -> io::Result<(Self, File)> {
        // A link stays one.
        let path = if path.is_symlink() { fs::canonicalize(path)? } else { path.into() };
        let there = fs::metadata(&path).ok();
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            return Ok((Self { names: None }, OpenOptions::new().write(true).open(path)?));
        }
        // What is made of sessions must not destroy them.
        if is_of_session(&path) {
            return Err(io::Error::other("it is a part of a session: choose another name"));
        }
        let name = path.file_name().ok_or_else(|| io::Error::other("it is no name of a file"))?;
        let partial = path.with_file_name(format!("{}.{}.part", name.to_string_lossy(), process::id()));
        let file = File::create(&partial)?;
        let whole = Self { names: Some((partial, path)) };
        if let Some(there) = there {
            file.set_permissions(there.permissions())?;
        }
        Ok((whole, file))
    }

    /// All of it is written.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.names.take().map_or(Ok(()), |(partial, path)| {
            let named = fs::rename(&partial, path);
            named.inspect_err(|_| _ = fs::remove_file(&partial))
        })
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some((partial, _)) = &self.names {
            _ = fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use sinks::disk::OVERVIEW;

    use super::*;

    #[test]
    fn no_part_of_a_session_is_written_over() {
        let folder = std::env::temp_dir().join(format!("spoor-whole-{}", process::id()));
        let (session, elsewhere) = (folder.join("session"), folder.join("elsewhere"));
        for (folder, is_refused) in [(&session, true), (&elsewhere, false)] {
            fs::create_dir_all(folder).expect("a folder");
            for name in ["spans.parquet", OVERVIEW, "manifest.json"]
                .iter()
                .filter(|name| is_refused || **name != "manifest.json")
            {
                fs::write(folder.join(name), name).expect("a file");
            }
            for name in ["spans.parquet", OVERVIEW] {
                assert_eq!(Whole::create(&folder.join(name)).is_err(), is_refused, "{name}");
            }
        }
        assert!(Whole::create(&session.join("manifest.json")).is_err());
        assert!(Whole::create(&session.join("flame.folded")).is_ok());
        fs::remove_dir_all(folder).expect("it is there");
    }
}
