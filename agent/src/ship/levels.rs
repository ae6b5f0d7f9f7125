//! Functions that were turned down, and calls that were only counted.

use codec::{
    StreamId,
    heph::List,
    profile::{Counted, CountedCalls, LevelChange, Levels},
};

use super::{HEAD_BYTES, Shipper, options::group};

impl Shipper {
    /// Tells from when on functions have other levels.
    pub fn levels(&mut self, changes: &[LevelChange]) {
        for part in List::parts(changes, self.datagram_bytes().saturating_sub(HEAD_BYTES)) {
            self.option(Levels { changes: part.into() }.into());
        }
    }

    /// Tells how many calls a thread has made that are no events, by function, in the order of their ids. What is told later takes
    /// the place of that, and has all of these functions.
    pub fn counted(&mut self, stream: StreamId, calls: &[CountedCalls]) {
        for part in calls.chunk_by(|one, next| group(one) == group(next)) {
            self.option(Counted { stream, calls: part.into() }.into());
        }
    }
}
