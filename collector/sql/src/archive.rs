//! The sessions that a question is about.

use std::{
    fs,
    io::{self, BufReader},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use answers::trace::Trace;
use codec::atf::{ManifestHead, ManifestTail};
use datafusion::{
    common::Result,
    execution::object_store::ObjectStoreUrl,
    object_store::{ObjectMeta, ObjectStore, path::Path as Location},
};

use crate::notes::Notes;

const TABLE: &str = "spans.parquet";
const MANIFEST: &str = "manifest.json";

/// Sessions, in the order of their names.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) sessions: Vec<Arc<Session>>,
    pub(crate) notes: Notes,
    /// The bucket that they are in, and its address.
    pub(crate) bucket: Option<(Arc<dyn ObjectStore>, String)>,
}

impl Archive {
    /// The session in a directory, or all that are in it.
    pub(crate) fn open(place: &Path) -> io::Result<Self> {
        let dirs = sinks::disk::sessions_in(place)?;
        let session = |dir: &Path| {
            let session = Session::new(dir.into());
            if storage::is_remote(dir) {
                // To ask for them one by one when they are needed takes much longer.
                session.head();
            }
            Arc::new(session)
        };
        let sessions = storage::each(&dirs, session);
        Ok(Self { sessions, notes: Notes::default(), bucket: storage::object_store(place)? })
    }

    /// What the files of all sessions are called relative to.
    pub(crate) fn url(&self) -> Result<ObjectStoreUrl> {
        self.bucket
            .as_ref()
            .map_or_else(|| Ok(ObjectStoreUrl::local_filesystem()), |(_, url)| ObjectStoreUrl::parse(url))
    }
}

/// A session. Of its manifest only so much is read as is needed.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    head: OnceLock<ManifestHead>,
}

/// Where the table of a session is, or why there is none.
pub(crate) enum Table {
    There(ObjectMeta),
    Missing(String),
    Wrong(String),
}

impl Session {
    fn new(dir: PathBuf) -> Self {
        let full = || Some(fs::canonicalize(&dir).ok()?.file_name()?.to_string_lossy().into_owned());
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).or_else(full).unwrap_or_default();
        Self { name, dir, head: OnceLock::new() }
    }

    /// What its manifest says first; what cannot be read is not in it.
    pub(crate) fn head(&self) -> &ManifestHead {
        self.head.get_or_init(|| {
            let file = storage::open(&self.dir.join(MANIFEST));
            let head = |file: storage::File| ManifestHead::read(BufReader::new(file.reader()));
            file.map_or_else(|_| ManifestHead::default(), head)
        })
    }

    /// All that its manifest says, or all but its functions.
    pub(crate) fn trace(&self, has_functions: bool) -> std::result::Result<Trace, String> {
        let open = if has_functions { Trace::open } else { Trace::outline };
        open(&self.dir).map_err(|error| format!("{error:#}"))
    }

    /// When its zero was, since 1970: by the collector's clock, or else by that of its machine.
    pub(crate) fn zero_unix_ns(&self) -> Option<i64> {
        let head = self.head();
        let zero = head.offset.map(|offset| offset.zero_unix_ns).or(head.epoch_unix_ns)?;
        i64::try_from(zero).ok()
    }

    /// No span of it begins earlier or later than this, since its zero. One that goes on in several directories has spans in each
    /// that began in those before, so the first event tells nothing.
    pub(crate) fn bounds_ns(&self) -> Option<(i64, i64)> {
        let head = self.head();
        if !head.is_whole || head.time_end_ns == 0 {
            return None;
        }
        let since = |time: u64| i64::try_from(time.saturating_sub(head.clock_zero_ns.unwrap_or(0))).ok();
        let first = head.birth.as_ref().map_or(Some(0), |birth| since(birth.at_ns))?;
        Some((first.min(since(head.time_start_ns)?), since(head.time_end_ns)?))
    }

    /// Finds its table.
    pub(crate) fn table(&self) -> Table {
        let path = self.dir.join(TABLE);
        let data = match storage::metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.no_table(),
            Err(error) => return Table::Wrong(format!("{TABLE}: {error}")),
        };
        if data.is_dir {
            return Table::Wrong(format!("{TABLE} is no regular file"));
        }
        match location(&path) {
            Ok(location) => {
                let last_modified = data.modified.map(Into::into).unwrap_or_default();
                Table::There(ObjectMeta { location, last_modified, size: data.len, e_tag: None, version: None })
            }
            Err(error) => Table::Wrong(format!("{TABLE}: {error}")),
        }
    }

    fn no_table(&self) -> Table {
        let read = storage::read(&self.dir.join(MANIFEST)).map_err(|error| error.to_string());
        match read.and_then(|json| ManifestTail::read(&json).map_err(|error| error.to_string())) {
            Err(error) => Table::Missing(format!("it has no table of spans, and its manifest cannot be read: {error}")),
            Ok(ManifestTail { table: Some(table), .. }) => {
                Table::Wrong(format!("{TABLE} is not there, and should have {} spans", table.rows))
            }
            Ok(tail) if tail.end.is_none() => Table::Missing("it has no table of spans: it is not finished".into()),
            Ok(tail) if tail.spans.as_deref() == Some("no") => {
                Table::Missing("it has no table of spans: its collector was told to make none (spans=no)".into())
            }
            Ok(_) => {
                let why = "it has no table of spans yet: a collector that records to this directory makes it";
                Table::Missing(why.into())
            }
        }
    }
}

/// What a file is called in its store.
fn location(path: &Path) -> io::Result<Location> {
    match storage::key(path) {
        Some(key) => Location::parse(key).map_err(io::Error::other),
        None => Location::from_absolute_path(fs::canonicalize(path)?).map_err(io::Error::other),
    }
}
