//! A place that whole files are put to.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::{StreamExt, TryStreamExt};
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, local::LocalFileSystem, path::Path as Key};
use tokio::task::JoinSet;

use crate::{
    bucket::{Bucket, told, wait},
    file::open_regular,
};

/// How much is sent at a time. A store takes no more than ten thousand parts of an object.
const PART: u64 = 8 << 20;
const MOST_PARTS: u64 = 9_000;

/// How many parts are under way at once.
const PARTS_AT_ONCE: usize = 3;

/// A directory or a bucket that files are put to.
#[derive(Debug, Clone)]
pub struct Store {
    place: PathBuf,
    store: Arc<dyn ObjectStore>,
    prefix: String,
}

/// What was stored of a file, or is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// How many bytes it has.
    pub bytes: u64,
    /// Their CRC-32.
    pub checksum: u32,
}

impl Store {
    /// Opens a place. A directory is made.
    pub fn open(place: &Path) -> io::Result<Self> {
        if let Some((bucket, prefix)) = Bucket::of(place)? {
            return Ok(Self { place: place.into(), store: bucket.store.clone(), prefix });
        }
        fs::create_dir_all(place)?;
        let store = LocalFileSystem::new_with_prefix(place).map_err(io::Error::other)?;
        Ok(Self { place: place.into(), store: Arc::new(store), prefix: String::new() })
    }

    /// Where it is.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Fails where it cannot be looked into.
    pub fn probe(&self) -> io::Result<()> {
        let (store, key) = (Arc::clone(&self.store), self.key("")?);
        wait(async move { store.list_with_delimiter(Some(&key)).await }).map_err(|error| self.told(&error)).map(drop)
    }

    /// The files below a directory, by their names from there on, and how many bytes they have.
    pub fn list(&self, dir: &str) -> io::Result<BTreeMap<String, u64>> {
        let (store, key) = (Arc::clone(&self.store), self.key(dir)?);
        let from = key.clone();
        let listed = wait(async move { store.list(Some(&from)).try_collect::<Vec<_>>().await });
        let name =
            |location: &Key| Some(location.as_ref().strip_prefix(key.as_ref())?.trim_start_matches('/').to_owned());
        let listed = listed.map_err(|error| self.told(&error))?;
        Ok(listed.into_iter().filter_map(|object| Some((name(&object.location)?, object.size))).collect())
    }

    /// Reads a file, if it is there.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let (store, key) = (Arc::clone(&self.store), self.key(name)?);
        match wait(async move { store.get(&key).await?.bytes().await }) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.told(&error)),
        }
    }

    /// Reads a file to its end for what it has.
    pub fn check(&self, name: &str) -> io::Result<Stored> {
        let (store, key) = (Arc::clone(&self.store), self.key(name)?);
        let checked = wait(async move {
            let mut stream = store.get(&key).await?.into_stream();
            let (mut bytes, mut hasher) = (0_u64, crc32fast::Hasher::new());
            while let Some(chunk) = stream.next().await {
                let chunk = chunk?;
                bytes = bytes.saturating_add(chunk.len() as u64);
                hasher.update(&chunk);
            }
            Ok(Stored { bytes, checksum: hasher.finalize() })
        });
        checked.map_err(|error| self.told(&error))
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let (store, key) = (Arc::clone(&self.store), self.key(name)?);
        match wait(async move { store.delete(&key).await }) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.told(&error)),
        }
    }

    /// Puts a file there under a name. It appears once it is whole. `go_on` is asked between parts; where it fails, nothing
    /// appears.
    pub fn put(&self, name: &str, file: &Path, mut go_on: impl FnMut(u64) -> io::Result<()>) -> io::Result<Stored> {
        let mut from = open_regular(file)?;
        let length = from.metadata()?.len();
        let part = PART.max(length.div_ceil(MOST_PARTS));
        let mut hasher = crc32fast::Hasher::new();
        let mut next = |done: u64| -> io::Result<Vec<u8>> {
            go_on(done)?;
            let mut bytes = Vec::new();
            from.by_ref().take(part).read_to_end(&mut bytes)?;
            hasher.update(&bytes);
            Ok(bytes)
        };
        let (store, key) = (Arc::clone(&self.store), self.key(name)?);
        let first = next(0)?;
        let mut bytes = first.len() as u64;
        if bytes < part {
            wait(async move { store.put(&key, first.into()).await }).map_err(|error| self.told(&error))?;
            return Ok(Stored { bytes, checksum: hasher.finalize() });
        }
        let upload = wait(async move { store.put_multipart(&key).await });
        let mut parts = Parts { upload: upload.map_err(|error| self.told(&error))?, under_way: JoinSet::new() };
        let mut bytes_of_part = first;
        loop {
            let is_last = (bytes_of_part.len() as u64) < part;
            let sent;
            (parts, sent) = parts.send(bytes_of_part.into());
            let read = sent
                .map_err(|error| self.told(&error))
                .and_then(|()| if is_last { Ok(Vec::new()) } else { next(bytes) });
            match read {
                Ok(read) if read.is_empty() => break,
                Ok(read) => {
                    bytes = bytes.saturating_add(read.len() as u64);
                    bytes_of_part = read;
                }
                Err(error) => {
                    parts.abort();
                    return Err(error);
                }
            }
        }
        parts.finish().map_err(|error| self.told(&error))?;
        Ok(Stored { bytes, checksum: hasher.finalize() })
    }

    /// Has what was put into a directory survive a power failure. A bucket does so by itself.
    pub fn sync(&self) -> io::Result<()> {
        match crate::is_remote(&self.place) {
            true => Ok(()),
            false => Ok(rustix::fs::syncfs(fs::File::open(&self.place)?)?),
        }
    }

    fn key(&self, name: &str) -> io::Result<Key> {
        let key = format!("{}/{name}", self.prefix);
        Key::parse(key.trim_matches('/')).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }

    fn told(&self, error: &object_store::Error) -> io::Error {
        told(&self.place, error)
    }
}

/// A file that is sent in parts.
struct Parts {
    upload: Box<dyn object_store::MultipartUpload>,
    under_way: JoinSet<object_store::Result<()>>,
}

impl Parts {
    /// Sends a part, and waits while too many are under way.
    fn send(mut self, part: PutPayload) -> (Self, object_store::Result<()>) {
        wait(async move {
            self.under_way.spawn(self.upload.put_part(part));
            let mut sent = Ok(());
            while self.under_way.len() >= PARTS_AT_ONCE && sent.is_ok() {
                sent = self.one().await;
            }
            (self, sent)
        })
    }

    async fn one(&mut self) -> object_store::Result<()> {
        match self.under_way.join_next().await {
            None => Ok(()),
            Some(sent) => sent.map_err(|source| object_store::Error::JoinError { source })?,
        }
    }

    fn finish(mut self) -> object_store::Result<()> {
        wait(async move {
            while !self.under_way.is_empty() {
                if let Err(error) = self.one().await {
                    // What the store holds of it is of no use to anybody, and where it cannot be removed it is not seen.
                    drop(self.upload.abort().await);
                    return Err(error);
                }
            }
            self.upload.complete().await.map(drop)
        })
    }

    fn abort(mut self) {
        wait(async move {
            self.under_way.shutdown().await;
            drop(self.upload.abort().await);
        });
    }
}
