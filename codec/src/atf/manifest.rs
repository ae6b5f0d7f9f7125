//! The manifest: what a session was, what is in its directory, and what is missing.

mod head;
mod lines;
mod outline;
mod symbol;
mod tail;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Serializer, Value};
use thiserror::Error;

use self::lines::Lines;
pub use self::{head::ManifestHead, tail::ManifestTail};
use super::FileChecksum;

/// The manifest of a session directory, `manifest.json`.
///
/// Readers of ATF v2 need `threads` and the two times; all else is Spoor's and may be absent. Fields that are
/// not known here are kept as they are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// The threads, each with a directory `thread_<id>`.
    pub threads: Vec<ThreadEntry>,
    /// When the first event happened, by the trace's clock.
    pub time_start_ns: u64,
    /// When the last event happened, by the trace's clock.
    pub time_end_ns: u64,
    /// The session's id, 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The traced process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessEntry>,
    /// Which process made it, where that is a session too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub birth: Option<BirthEntry>,
    /// The distributed trace that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<TraceContextEntry>,
    /// The name of the clock: `boottime`, `mach_continuous`, `qpc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// What that clock showed at the session's zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_zero_ns: Option<u64>,
    /// When the session's zero was, in nanoseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch_unix_ns: Option<u64>,
    /// When a collector first heard of the session, by its own clock, in nanoseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_unix_ns: Option<u64>,
    /// The same by the collector's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<OffsetEntry>,
    /// The modules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ModuleEntry>,
    /// The functions of all modules, and of module 0 those that stand for other events. Older sessions have them as
    /// `functions`.
    #[serde(rename = "symbols", alias = "functions", default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionEntry>,
    /// The dispatch queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueEntry>,
    /// The events that are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<GapEntry>,
    /// How many events the agent dropped, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drops: BTreeMap<String, u64>,
    /// What could not be captured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitEntry>,
    /// Functions whose level has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelEntry>,
    /// Calls that were counted and not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<CountedEntry>,
    /// How the session ended; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<EndEntry>,
    /// Which part of the session this is, from 1; absent where it was not split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// When `spans.parquet` is made: `live`, `after` the end, or `no`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<String>,
    /// The table of spans, once it is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableEntry>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The session's zero by the collector's clock, which all its sessions share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OffsetEntry {
    /// Nanoseconds since the Unix epoch.
    pub zero_unix_ns: u64,
    /// By how many nanoseconds that may be wrong.
    pub error_ns: u64,
    /// When it was measured, by the trace's clock.
    pub at_ns: u64,
}

/// A thread of the session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadEntry {
    /// The id that its directory is named by: its stream.
    pub id: u32,
    /// Whether it has a detail file.
    pub has_detail: bool,
    /// Its id with the operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_id: Option<u64>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The id of the thread that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creator: Option<u32>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ns: Option<u64>,
    /// How many events it produced, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub produced: Option<u64>,
    /// How many of them are in its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// The position of its first event or gap in this part of the session; absent where that is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// The checksum of its index as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_checksum: Option<String>,
    /// The checksum of its detail file as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail_checksum: Option<String>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A table of spans that is finished.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableEntry {
    /// How many spans it has.
    pub rows: u64,
    /// How many bytes its file has.
    pub bytes: u64,
    /// The checksum of its file.
    pub checksum: String,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The traced process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ProcessEntry {
    /// Its id.
    pub pid: u32,
    /// The machine's name.
    pub host: String,
    /// The processor: `x86_64`, `arm64`.
    pub arch: String,
    /// The operating system: `linux`, `macos`, ….
    pub os: String,
    /// The path of its executable.
    pub executable: String,
    /// Its arguments, its own name first.
    pub arguments: Vec<String>,
    /// How many arguments it has; more than there are in `arguments` where they did not fit.
    pub argument_count: u32,
    /// The version of the agent in it.
    pub agent_version: String,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The session that another came from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BirthEntry {
    /// The id of the parent's session, 32 hexadecimal digits.
    pub parent: String,
    /// How the process was made: `forked`, `replaced`, `spawned`.
    pub how: String,
    /// The thread of the parent that made it, by its id with the operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// When, inside the call that made it.
    pub at_ns: u64,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The distributed trace that a session is part of.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TraceContextEntry {
    /// The id of the first session of its family, 32 hexadecimal digits.
    pub root: String,
    /// The `traceparent` that the process was started with, as W3C Trace Context has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The `tracestate` beside that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A module of the process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ModuleEntry {
    /// Its id: the upper half of its functions' ids. Older sessions have it as `id`.
    #[serde(rename = "module_id", alias = "id")]
    pub id: u32,
    /// The path of its file.
    pub path: String,
    /// Its build id in hexadecimal digits, empty where it has none.
    #[serde(default)]
    pub build_id: String,
    /// The address it is loaded at.
    #[serde(default)]
    pub base: u64,
    /// How many bytes of address space it takes.
    #[serde(default)]
    pub size: u64,
    /// When it was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_ns: Option<u64>,
    /// When it was unloaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unloaded_ns: Option<u64>,
    /// How many functions it has; fewer in `functions` means that some of their names were lost.
    #[serde(default)]
    pub function_count: u32,
    /// The hash of its function table, 16 hexadecimal digits.
    #[serde(default)]
    pub function_table_hash: String,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A function of a module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FunctionEntry {
    /// Its id: module in the upper half, index in the lower. Written as `function_id`, with the `module_id` beside it
    /// for other readers; older sessions have it as the number `id`.
    pub id: u64,
    /// Where it is in its module.
    pub offset: u64,
    /// Its name.
    pub name: String,
    /// Where it begins in its sources: the file, a colon, and the line.
    pub source: Option<String>,
    /// Fields that are not known here.
    pub extra: Map<String, Value>,
}

/// A dispatch queue.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct QueueEntry {
    /// The number that events use for it.
    pub id: u64,
    /// Its label.
    pub label: String,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Events of one thread that are missing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GapEntry {
    /// The thread.
    pub thread: u32,
    /// The position of the first missing event in what the thread produced.
    pub first: u64,
    /// How many are missing.
    pub count: u64,
    /// Why: `network`, `agent:<reason>`, `collector:<reason>`.
    pub cause: String,
    /// How many events of the thread's index come before the gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_index: Option<u64>,
    /// How many separate ranges this entry stands for, where gaps were merged; absent where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranges: Option<u64>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Something that could not be captured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LimitEntry {
    /// The module it concerns; 0 is the process as a whole.
    pub module: u32,
    /// Why.
    pub reason: String,
    /// What exactly.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// How many things are affected.
    pub count: u64,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// From when on a function had another level. One of which nothing is told was full.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LevelEntry {
    /// The function's id, as a number.
    pub function: u64,
    /// From when on.
    pub at_ns: u64,
    /// `full`, `counted` or `off`.
    pub level: String,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Calls of a function that a thread has made and that were counted, not recorded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CountedEntry {
    /// The thread.
    pub thread: u32,
    /// The function's id, as a number.
    pub function: u64,
    /// How many.
    pub count: u64,
    /// How many more were left out because they took too little time.
    #[serde(default)]
    pub brief: u64,
    /// How long those took, in all.
    #[serde(default)]
    pub brief_ns: u64,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How the session ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndEntry {
    /// How: `exited`, `signaled`, `detached`, `replaced`, `lost contact`, `stopped`, `closed`, `killed`, `rotated`.
    pub how: String,
    /// The exit code or the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<u64>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The member that comes last: the checksum of all bytes before the comma in front of it.
const CHECKSUM: &str = "checksum";
const DIGITS_BEHIND: &str = "\"checksum\": \"";
/// What a manifest without it ends with.
const END: &[u8] = b"\n}";

fn last_member(before: &[u8]) -> String {
    format!(",\n  {DIGITS_BEHIND}{}\"\n}}\n", FileChecksum::of(before))
}

impl Manifest {
    /// Reads a manifest. What it says can still be wrong: see [`check`](Self::check).
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        let mut manifest: Self = serde_json::from_slice(json)?;
        manifest.extra.remove(CHECKSUM);
        Ok(manifest)
    }

    /// The manifest as JSON, with its checksum.
    pub fn to_json(&self) -> Result<Vec<u8>, ManifestError> {
        let mut json = Vec::new();
        self.serialize(&mut Serializer::with_formatter(&mut json, Lines::default()))?;
        json.truncate(json.len().saturating_sub(END.len()));
        let last = last_member(&json);
        json.extend_from_slice(last.as_bytes());
        Ok(json)
    }

    /// Whether these bytes have a checksum, which is theirs. One that is another's is an error.
    pub fn check_bytes(json: &[u8]) -> Result<bool, ManifestError> {
        let length = last_member(b"").len();
        let Some((before, last)) = json.len().checked_sub(length).and_then(|at| json.split_at_checked(at)) else {
            return Ok(false);
        };
        let expected = last_member(before);
        let digits = expected.find(DIGITS_BEHIND).map_or(0, |at| at.saturating_add(DIGITS_BEHIND.len()));
        match last == expected.as_bytes() {
            true => Ok(true),
            false if last.get(..digits) == expected.as_bytes().get(..digits) => Err(ManifestError::Checksum),
            false => Ok(false),
        }
    }

    /// How many events are missing, by thread, over all gaps.
    pub fn missing(&self) -> BTreeMap<u32, u64> {
        let mut missing = BTreeMap::new();
        for gap in &self.gaps {
            let count: &mut u64 = missing.entry(gap.thread).or_default();
            *count = count.saturating_add(gap.count);
        }
        missing
    }

    /// Checks that what it says can be so, and that all events are accounted for.
    pub fn check(&self) -> Result<(), ManifestError> {
        if self.time_start_ns > self.time_end_ns {
            return Err(ManifestError::Times { start_ns: self.time_start_ns, end_ns: self.time_end_ns });
        }
        let mut missing = self.missing();
        let mut ids = BTreeSet::new();
        for thread in &self.threads {
            if !ids.insert(thread.id) {
                return Err(ManifestError::ThreadTwice { id: thread.id });
            }
            let missing = missing.remove(&thread.id).unwrap_or(0);
            if let (Some(produced), Some(written)) = (thread.produced, thread.written)
                && written.checked_add(missing) != Some(produced)
            {
                return Err(ManifestError::Accounting { id: thread.id, produced, written, missing });
            }
        }
        match missing.into_keys().next() {
            Some(id) => Err(ManifestError::GapWithoutThread { id }),
            None => Ok(()),
        }
    }
}

/// What is wrong with a manifest.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum ManifestError {
    /// Not JSON, or not a manifest. The message tells line and column, and is no source besides: it would be told twice.
    #[error("manifest.json: {0}")]
    Json(serde_json::Error),
    /// It ends before it starts.
    #[error("manifest.json: time_start_ns {start_ns} is after time_end_ns {end_ns}")]
    Times { start_ns: u64, end_ns: u64 },
    /// It is not what its writer wrote.
    #[error("manifest.json: its checksum is another's: it was changed")]
    Checksum,
    /// Two threads would share a directory.
    #[error("manifest.json: thread {id} is there twice")]
    ThreadTwice { id: u32 },
    /// What a thread produced is not what was written and what is missing.
    #[error("manifest.json: thread {id} produced {produced} events, but {written} written and {missing} missing")]
    Accounting { id: u32, produced: u64, written: u64, missing: u64 },
    /// A gap in a thread that is not there.
    #[error("manifest.json: a gap is in thread {id}, which is not there")]
    GapWithoutThread { id: u32 },
}

impl From<serde_json::Error> for ManifestError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}
