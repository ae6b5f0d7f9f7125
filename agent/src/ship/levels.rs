//! Functions that were turned down, and calls that were only counted.

use codec::{
    StreamId,
    heph::List,
    profile::{Counted, CountedCalls, LevelChange, Levels},
};

use super::{HEAD_BYTES, Shipper};

impl Shipper {
    /// Tells from when on functions have other levels.
    pub fn levels(&mut self, changes: &[LevelChange]) {
        for part in List::parts(changes, self.datagram_bytes().saturating_sub(HEAD_BYTES)) {
            self.option(Levels { changes: part.into() }.into());
        }
    }

    /// Tells how many calls a thread has made that are no events.
    pub fn counted(&mut self, stream: StreamId, calls: &[CountedCalls]) {
        for part in List::parts(calls, self.datagram_bytes().saturating_sub(HEAD_BYTES)) {
            self.option(Counted { stream, calls: part.into() }.into());
        }
    }
}
