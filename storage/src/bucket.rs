//! A bucket of an object store, asked in ranges.

use std::{
    collections::HashMap,
    future::Future,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    ops::Range,
    path::Path,
    sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::{
    ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, Checksum},
    path::Path as Key,
};
use tokio::runtime::Runtime;

use crate::{
    Metadata, S3,
    blocks::{Blocks, Object},
};

/// For how long it is taken as known what an object is.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// Of how many objects that is kept.
const MOST_KNOWN: usize = 100_000;

/// For how long a request is tried again, and for how long one may take.
const TRIED_FOR: Duration = Duration::from_secs(20);
const LONGEST: Duration = Duration::from_secs(60);

/// How many characters are told of what a server says.
const MOST_TOLD: usize = 400;

/// A bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    pub(crate) store: Arc<AmazonS3>,
    known: Mutex<HashMap<String, Known>>,
    pub(crate) blocks: Mutex<Blocks>,
}

/// What is known of an object.
#[derive(Debug, Clone)]
struct Known {
    metadata: Metadata,
    tag: Option<String>,
    at: Instant,
    /// Opened, if it was.
    object: Option<Arc<Object>>,
}

static BUCKETS: LazyLock<Mutex<HashMap<String, Arc<Bucket>>>> = LazyLock::new(Mutex::default);

impl Bucket {
    /// The bucket of a path that names what is in one, and what that is called there.
    pub(crate) fn of(path: &Path) -> io::Result<Option<(Arc<Self>, String)>> {
        let Some(rest) = path.to_str().and_then(|path| path.strip_prefix(S3)) else { return Ok(None) };
        let (name, key) = rest.split_once('/').unwrap_or((rest, ""));
        let mut buckets = lock(&BUCKETS);
        if !buckets.contains_key(name) {
            buckets.insert(name.into(), Arc::new(Self::new(name)?));
        }
        Ok(buckets.get(name).map(|bucket| (Arc::clone(bucket), key.trim_matches('/').into())))
    }

    fn new(name: &str) -> io::Result<Self> {
        let retry = RetryConfig { max_retries: 8, retry_timeout: TRIED_FOR, ..RetryConfig::default() };
        let builder = AmazonS3Builder::from_env().with_bucket_name(name).with_retry(retry);
        // Whoever set them in the environment means them.
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let options = ClientOptions::new().with_connect_timeout(Duration::from_secs(5)).with_timeout(LONGEST);
        let builder = match is_set("AWS_TIMEOUT") || is_set("AWS_CONNECT_TIMEOUT") {
            true => builder,
            false => builder.with_client_options(with_http(options)),
        };
        // The server refuses what does not arrive as it was sent.
        let store = builder
            .with_checksum_algorithm(Checksum::SHA256)
            .build()
            .map_err(|error| told(Path::new(&format!("{S3}{name}")), &error))?;
        Ok(Self { name: name.into(), store: Arc::new(store), known: Mutex::default(), blocks: Mutex::default() })
    }

    /// Opens an object.
    pub(crate) fn open(self: &Arc<Self>, key: &str) -> io::Result<Arc<Object>> {
        let known = self.look(key)?;
        if let Some(object) = known.object {
            return Ok(object);
        }
        let Known { metadata, tag, .. } = known;
        let object = Arc::new(Object::new(Arc::clone(self), key.into(), metadata, tag));
        if let Some(known) = lock(&self.known).get_mut(key) {
            known.object = Some(Arc::clone(&object));
        }
        Ok(object)
    }

    /// What is known of an object, or of a directory, of which a bucket has none: only objects whose names begin with its.
    pub(crate) fn metadata(&self, key: &str) -> io::Result<Metadata> {
        match self.look(key) {
            Err(error) => {
                let (store, prefix) = (Arc::clone(&self.store), self.key(key)?);
                let first = wait(async move { store.list(Some(&prefix)).next().await });
                match first {
                    Some(Ok(_)) => Ok(DIRECTORY),
                    Some(Err(error)) => Err(self.told(&error)),
                    None => Err(error),
                }
            }
            known => Ok(known?.metadata),
        }
    }

    /// What is directly below a directory.
    pub(crate) fn entries(&self, key: &str) -> io::Result<Vec<(String, Metadata)>> {
        let (store, prefix) = (Arc::clone(&self.store), self.key(key)?);
        let listed = wait(async move { store.list_with_delimiter(Some(&prefix)).await });
        let listed = listed.map_err(|error| self.told(&error))?;
        let name = |key: &Key| key.filename().map(str::to_owned);
        let directories = listed.common_prefixes.iter().filter_map(|key| Some((name(key)?, DIRECTORY)));
        let mut entries: Vec<_> = directories.collect();
        for object in listed.objects {
            entries.extend(name(&object.location).map(|name| (name, metadata_of(&object))));
            self.note(object);
        }
        match entries.is_empty() {
            true => Err(io::Error::new(io::ErrorKind::NotFound, "nothing is there")),
            false => Ok(entries),
        }
    }

    /// Gets to know all objects below a directory.
    pub(crate) fn look_below(&self, key: &str) -> io::Result<()> {
        let (store, prefix) = (Arc::clone(&self.store), self.key(key)?);
        let listed: Vec<_> = wait(async move { store.list(Some(&prefix)).collect().await });
        for object in listed {
            self.note(object.map_err(|error| self.told(&error))?);
        }
        Ok(())
    }

    /// Bytes of an object that has this tag.
    pub(crate) fn get(&self, key: &str, tag: Option<&str>, range: Range<u64>) -> io::Result<Bytes> {
        let (store, key) = (Arc::clone(&self.store), self.key(key)?);
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: tag.map(str::to_owned),
            ..GetOptions::default()
        };
        let got = wait(async move { store.get_opts(&key, options).await?.bytes().await });
        got.map_err(|error| match error {
            object_store::Error::Precondition { .. } => io::Error::other("it was changed while it was read"),
            error => self.told(&error),
        })
    }

    fn look(&self, key: &str) -> io::Result<Known> {
        if let Some(known) = lock(&self.known).get(key).filter(|known| known.at.elapsed() < KNOWN_FOR) {
            return Ok(known.clone());
        }
        if key.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (store, name) = (Arc::clone(&self.store), self.key(key)?);
        let object = wait(async move { store.head(&name).await }).map_err(|error| self.told(&error))?;
        Ok(self.note(object))
    }

    /// Remembers what an object is. One that is still the same stays open.
    fn note(&self, object: ObjectMeta) -> Known {
        let (metadata, at) = (metadata_of(&object), Instant::now());
        let mut known = lock(&self.known);
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        let before =
            known.remove(object.location.as_ref()).filter(|before| before.metadata.identity == metadata.identity);
        let now = Known { metadata, tag: object.e_tag, at, object: before.and_then(|before| before.object) };
        known.insert(object.location.into(), now.clone());
        now
    }

    fn key(&self, key: &str) -> io::Result<Key> {
        Key::parse(key).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }

    fn told(&self, error: &object_store::Error) -> io::Error {
        told(Path::new(&format!("{S3}{}", self.name)), error)
    }
}

const DIRECTORY: Metadata = Metadata { is_dir: true, len: 0, modified: None, identity: (0, 0) };

fn metadata_of(object: &ObjectMeta) -> Metadata {
    let mut hasher = DefaultHasher::new();
    (&object.location, &object.e_tag, object.last_modified).hash(&mut hasher);
    Metadata {
        is_dir: false,
        len: object.size,
        modified: Some(object.last_modified.into()),
        identity: (object.size, hasher.finish()),
    }
}

/// A server without encryption is one that was named so in the environment.
fn with_http(options: ClientOptions) -> ClientOptions {
    let named =
        ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].iter().find_map(|name| std::env::var(name).ok());
    options.with_allow_http(named.is_some_and(|named| named.starts_with("http://")))
}

/// Runs what is asked of a store, and waits for it: from any thread, also one of another runtime.
pub(crate) fn wait<T: Send + 'static>(asked: impl Future<Output = T> + Send + 'static) -> T {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let builder = builder.worker_threads(2).thread_name("storage").enable_all();
        builder.build().expect("a machine that runs this has threads")
    });
    let (answer, answered) = mpsc::channel();
    runtime.spawn(async move { answer.send(asked.await) });
    answered.recv().expect("what was asked does not panic")
}

/// What a store says, as an error of files, on one line.
pub(crate) fn told(place: &Path, error: &object_store::Error) -> io::Error {
    use object_store::Error as E;
    let kind = match error {
        E::NotFound { .. } => io::ErrorKind::NotFound,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    let text = error.to_string();
    let words: Vec<_> = text.split_whitespace().collect();
    let text: String = words.join(" ").chars().take(MOST_TOLD).collect();
    io::Error::new(kind, format!("{}: {text}", place.display()))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
