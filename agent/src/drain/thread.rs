//! A thread of the target, as it is told to the collector.

use codec::{SessionNs, StreamId, profile::Thread};

use crate::ship::Shipper;

/// What is known of a thread.
#[derive(Debug, Clone)]
pub(super) struct TracedThread {
    pub(super) stream: StreamId,
    pub(super) tid: u32,
    /// The handle that pthread functions know it by.
    pub(super) pthread: u64,
    /// When it took its ring, by the counter.
    pub(super) taken: u64,
    pub(super) start: SessionNs,
    pub(super) end: Option<SessionNs>,
    pub(super) creator: Option<StreamId>,
    pub(super) name: String,
}

impl TracedThread {
    /// Tells the collector.
    pub(super) fn tell(&self, shipper: &mut Shipper) {
        let Self { stream, start, end, creator, .. } = *self;
        shipper.option(Thread { stream, os_id: self.tid.into(), start, end, creator, name: &self.name }.into());
    }

    /// Gives it another name, as bytes that may be padded with zeros. Whether that is news.
    pub(super) fn rename(&mut self, bytes: &[u8]) -> bool {
        let name = text(bytes);
        let news = name != self.name;
        if news {
            self.name = name;
        }
        news
    }
}

/// Bytes up to the first zero, with what is not UTF-8 replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}
