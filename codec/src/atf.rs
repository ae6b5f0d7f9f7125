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
mod section;
mod thread;

pub use detail::{
    Context, DETAIL_CONTEXT_LAYOUT, DETAIL_EVENT_LAYOUT, DETAIL_FOOTER_LAYOUT, DETAIL_FUNCTION_LAYOUT,
    DETAIL_HEADER_LAYOUT, DETAIL_KEYS_LAYOUT, DetailBody, DetailEvent, DetailEvents, DetailReader, DetailWriter,
    FunctionDetail, Keys, MAX_STACK_BYTES,
};
pub use index::{
    INDEX_EVENT_LAYOUT, INDEX_FOOTER_LAYOUT, INDEX_HEADER_LAYOUT, IndexEvent, IndexEvents, IndexReader, IndexWriter,
};
pub use integrity::{Corrupt, Corruption, Integrity, OpenError};
pub use manifest::{
    EndEntry, FunctionEntry, GapEntry, LimitEntry, Manifest, ManifestError, ModuleEntry, ProcessEntry, QueueEntry,
    ThreadEntry,
};
pub use origin::Origin;
pub use section::{AppendError, Sealed};
pub use thread::{BrokenLink, ThreadReader, ThreadWriter};

/// The size of every header and footer.
pub const EDGE_BYTES: usize = 64;
