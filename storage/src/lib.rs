//! Where sessions are: in directories of this machine, or in a bucket of an object store.
//!
//! A path that begins with `s3://` names what is in a bucket; any other is one of this machine. Readers open both by these
//! functions and see no difference. What is in a bucket is read in ranges, and only where it is asked for; it was written
//! once and is not changed.

#![forbid(unsafe_code)]

mod blocks;
mod bucket;
mod file;
mod store;

use std::{
    fs, io,
    num::NonZero,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::SystemTime,
};

use object_store::ObjectStore;

use self::bucket::Bucket;
pub use self::{
    file::{File, Reader},
    store::{Store, Stored},
};

const S3: &str = "s3://";

/// How many things of a bucket are asked for at a time.
const AT_ONCE: usize = 32;

/// What is known of a file or a directory without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Whether it is a directory, and not a file. What is neither, such as a pipe, is not told of.
    pub is_dir: bool,
    /// How many bytes it has.
    pub len: u64,
    /// When it was written.
    pub modified: Option<SystemTime>,
    /// What tells it from another that has its name later: the device and the number of a file, or what stands for them.
    pub identity: (u64, u64),
}

/// What is in a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// What it is. None where it is a link, or neither a file nor a directory.
    pub metadata: Option<Metadata>,
}

/// Whether a path names what is in a bucket.
pub fn is_remote(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(S3.as_bytes())
}

/// Reads what people write for a place: `s3://BUCKET/PREFIX`, `file:///DIR`, or the path of a directory.
///
/// # Errors
///
/// Where that is no place.
pub fn place(text: &str) -> Result<PathBuf, String> {
    if let Some(rest) = text.strip_prefix(S3) {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if bucket.is_empty() || !bucket.chars().all(is_name) {
            return Err("expected s3://BUCKET/PREFIX".into());
        }
        let prefix = prefix.trim_matches('/');
        object_store::path::Path::parse(prefix).map_err(|error| format!("{error}"))?;
        let end = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        return Ok(format!("{S3}{bucket}{end}").into());
    }
    match text.strip_prefix("file://") {
        Some(path) if path.starts_with('/') => Ok(path.into()),
        Some(_) => Err("expected file:///DIR, with the path from the root".into()),
        None if text.contains("://") => Err("expected s3://BUCKET/PREFIX, file:///DIR, or a directory".into()),
        None if text.is_empty() => Err("expected a directory".into()),
        None => Ok(text.into()),
    }
}

/// The store that a path is in, if that is a bucket, and the path of the store itself.
pub fn object_store(path: &Path) -> io::Result<Option<(Arc<dyn ObjectStore>, String)>> {
    let bucket = Bucket::of(path)?;
    Ok(bucket.map(|(bucket, _)| (bucket.store.clone() as Arc<dyn ObjectStore>, format!("{S3}{}", bucket.name))))
}

/// What a path is called in its bucket, if it is in one.
pub fn key(path: &Path) -> Option<&str> {
    Some(path.to_str()?.strip_prefix(S3)?.split_once('/').map_or("", |(_, key)| key))
}

/// Opens a file to read it. What is none, and could have us wait for ever, is refused.
pub fn open(path: &Path) -> io::Result<File> {
    match Bucket::of(path)? {
        Some((bucket, key)) => Ok(File::Remote(bucket.open(&key)?)),
        None => file::open_regular(path).map(File::Local),
    }
}

/// Reads a whole file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open(path)?.reader(), &mut bytes)?;
    Ok(bytes)
}

/// The CRC-32 of bytes.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// How many bytes a file has, and their checksum.
pub fn checksum_of(path: &Path) -> io::Result<Stored> {
    let (file, mut buffer) = (open(path)?, vec![0; 1 << 20]);
    let (mut bytes, mut hasher) = (0_u64, crc32fast::Hasher::new());
    loop {
        let read = file.read_at(&mut buffer, bytes)?;
        hasher.update(buffer.get(..read).unwrap_or_default());
        bytes = bytes.saturating_add(read as u64);
        if read < buffer.len() {
            return Ok(Stored { bytes, checksum: hasher.finalize() });
        }
    }
}

/// What is known of a file or a directory. Links are followed.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    match Bucket::of(path)? {
        Some((bucket, key)) => bucket.metadata(&key),
        None => Metadata::of(&fs::metadata(path)?).ok_or_else(no_file),
    }
}

/// What is in a directory, in no order.
pub fn entries(dir: &Path) -> io::Result<Vec<Entry>> {
    if let Some((bucket, key)) = Bucket::of(dir)? {
        let found = bucket.entries(&key)?;
        let entry = |(name, metadata): (String, _)| Entry { path: dir.join(&name), name, metadata: Some(metadata) };
        return Ok(found.into_iter().map(entry).collect());
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // It may be gone again.
        let metadata = entry.metadata().ok().and_then(|data| Metadata::of(&data));
        let name = entry.file_name().to_string_lossy().into_owned();
        entries.push(Entry { name, path: entry.path(), metadata });
    }
    Ok(entries)
}

/// Gets to know all files below a directory of a bucket, which is less than to ask for each of them.
pub fn look_below(dir: &Path) -> io::Result<()> {
    match Bucket::of(dir)? {
        Some((bucket, key)) => bucket.look_below(&key),
        None => Ok(()),
    }
}

/// Asks the same of many places, several at a time: as many as there are processors, or more where they are in a bucket. The
/// answers come in the order of the places.
pub fn each<T: Send>(places: &[PathBuf], ask: impl Fn(&Path) -> T + Sync) -> Vec<T> {
    let is_far = places.iter().any(|place| is_remote(place));
    let at_once = if is_far { AT_ONCE } else { thread::available_parallelism().map_or(1, NonZero::get) };
    let share = places.len().div_ceil(at_once).max(1);
    let ask = &ask;
    thread::scope(|scope| {
        let shares = places.chunks(share);
        let asking: Vec<_> = shares
            .map(|places| scope.spawn(move || places.iter().map(|place| ask(place)).collect::<Vec<_>>()))
            .collect();
        asking
            .into_iter()
            .flat_map(|asked| asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

impl Metadata {
    fn of(data: &fs::Metadata) -> Option<Self> {
        (data.is_dir() || data.is_file()).then(|| Self {
            is_dir: data.is_dir(),
            len: data.len(),
            modified: data.modified().ok(),
            identity: (data.dev(), data.ino()),
        })
    }
}

fn no_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_people_write_them() {
        for (text, is) in [
            ("s3://b", "s3://b"),
            ("s3://b/", "s3://b"),
            ("s3://my-bucket.x/a/b/", "s3://my-bucket.x/a/b"),
            ("file:///var/traces", "/var/traces"),
            ("traces", "traces"),
            ("./s3/x", "./s3/x"),
        ] {
            assert_eq!(place(text), Ok(PathBuf::from(is)), "{text}");
        }
        for wrong in ["s3://", "s3:///a", "s3://a b/c", "s3://b/a//c", "s3://b/../c", "file://traces", "gs://b/p", ""] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
        assert!(is_remote(Path::new("s3://b/x")) && !is_remote(Path::new("s3/x")));
    }

    #[test]
    fn paths_below_a_bucket_stay_there() {
        let dir = place("s3://b/p").expect("a place");
        let session = dir.join("20260101-000000-1");
        assert_eq!(session.to_str(), Some("s3://b/p/20260101-000000-1"));
        assert_eq!(session.parent(), Some(&*dir));
        assert!(is_remote(&session.with_file_name("other")) && is_remote(&session.join("thread_1/index.atf")));
    }

    #[test]
    fn answers_come_in_order() {
        let places: Vec<_> = (0..100).map(|number| PathBuf::from(format!("s3://b/{number}"))).collect();
        assert_eq!(each(&places, |place| place.to_owned()), places);
        assert_eq!(each(&[], |place| place.to_owned()), Vec::<PathBuf>::new());
    }
}
