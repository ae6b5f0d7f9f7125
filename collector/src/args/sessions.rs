//! Arguments of `collector sessions`.

use std::{path::PathBuf, time::SystemTime};

use answers::sessions::Wanted;
use clap::{Args, ValueEnum};
use codec::text::Glob;

use super::{TableArgs, place};
use crate::{names, quantity::Period};

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    /// A directory of sessions, or one session, with its child processes; also in a bucket: s3://BUCKET/PREFIX
    #[arg(value_name = "WHERE", default_value = "./traces", value_parser = place())]
    pub(crate) place: PathBuf,
    /// Only sessions of this program: its path or its file name; * matches any characters, ? matches one
    #[arg(long, value_name = "GLOB")]
    program: Option<String>,
    /// Only sessions from this machine
    #[arg(long, value_name = "GLOB")]
    host: Option<String>,
    /// Only sessions that still ran at this time or later: so long ago (90s, 2h, 1d), or a time in UTC
    ///
    /// Times in UTC are written as 2026-01-02 or 2026-01-02T03:04:05.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<u64>,
    /// Only sessions that began before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<u64>,
    /// Only sessions with missing events, or that cannot be read
    #[arg(long)]
    lossy: bool,
    /// Sort order; by start, each session is below the one that made it
    #[arg(long, value_enum, value_name = "BY", default_value = "start")]
    pub(crate) sort: SessionOrder,
    /// Maximum number of sessions: the last by start, otherwise the first
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) table: TableArgs,
}

impl SessionsArgs {
    /// For the library.
    pub(crate) fn wanted(&self) -> Wanted {
        let glob = |text: &Option<String>| text.as_deref().map(Glob::new);
        Wanted {
            program: glob(&self.program),
            host: glob(&self.host),
            since_ns: self.since,
            until_ns: self.until,
            is_lossy: self.lossy,
        }
    }
}

/// An order of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SessionOrder {
    /// When they began, the latest last
    Start,
    /// Program, then start
    Program,
    /// Machine, then start
    Host,
    /// Number of events, the largest first
    Events,
    /// Number of missing events, the largest first
    Missing,
    /// Size, the largest first
    Bytes,
}

/// A time since 1970 in nanoseconds.
fn moment(text: &str) -> Result<u64, String> {
    if let Ok(Period(ago)) = text.parse::<Period>() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        return Ok(u64::try_from(now.saturating_sub(ago).as_nanos()).unwrap_or(u64::MAX));
    }
    let seconds = names::unix_seconds(text).map(|seconds| seconds.saturating_mul(1_000_000_000));
    seconds.ok_or_else(|| "expected so long ago, such as 2h, or a time in UTC such as 2026-01-02T03:04:05".into())
}
