//! Threads by what people call them.

use anyhow::{Result, bail};
use codec::atf::ThreadEntry;

use crate::trace::Trace;

/// The threads with this stream, id or name. A number is a stream before it is an id.
pub(super) fn named(trace: &Trace, wanted: &str) -> Result<Vec<ThreadEntry>> {
    let mut threads = trace.threads();
    let number: Option<u64> = wanted.parse().ok();
    let by_stream = threads.iter().any(|thread| Some(u64::from(thread.id)) == number);
    let all: Vec<String> = threads.iter().map(|thread| thread.id.to_string()).take(20).collect();
    threads.retain(|thread| match number {
        Some(number) if by_stream => u64::from(thread.id) == number,
        Some(number) => thread.os_id == Some(number),
        None => thread.name.as_deref() == Some(wanted),
    });
    if threads.is_empty() {
        bail!("no thread is {wanted:?}; there are {}", all.join(", "));
    }
    Ok(threads)
}
