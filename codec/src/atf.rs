//! ATF v2: the trace format on disk, little-endian.
//!
//! A session is a directory with a [`Manifest`] and, for each thread, an index file and possibly a detail
//! file. Writers collect bytes in memory and hand them to any [`Write`](std::io::Write); readers work on the
//! bytes of a whole file, mapped or read. Opening files is for others.

mod detail;
mod index;
mod integrity;
mod manifest;
mod origin;
mod thread;
mod writer;

pub use detail::{
    Context, DetailBody, DetailEvent, DetailEvents, DetailReader, DetailWriter, FunctionDetail, Keys, MAX_STACK_BYTES,
};
pub use index::{IndexEvent, IndexEvents, IndexReader, IndexWriter};
pub use integrity::{Corrupt, Corruption, FileChecksum, Integrity, OpenError, RunningChecksum};
pub use manifest::{
    BirthEntry, CountedEntry, EndEntry, FunctionEntry, GapEntry, LevelEntry, LimitEntry, Manifest, ManifestError,
    ManifestHead, ManifestTail, ModuleEntry, OffsetEntry, ProcessEntry, QueueEntry, TableEntry, ThreadEntry,
    TraceContextEntry,
};
pub use origin::Origin;
pub use thread::{BrokenLink, ThreadReader, ThreadWriter};
pub use writer::{AppendError, FileWriter, Sealed};

use crate::layout::Layout;

/// Every layout on disk, for holding the documentation against the code.
pub const LAYOUTS: [&[Layout]; 2] = [&index::LAYOUTS, &detail::LAYOUTS];

/// The size of every header and footer.
pub const EDGE_BYTES: usize = 64;
