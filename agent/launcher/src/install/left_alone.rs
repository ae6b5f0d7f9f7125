//! Functions that are called so often that their hooks have to go, whatever they do.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Instant};

use agent::{shared::read_slot, stub::Patch};
use anyhow::Result;

use super::Installer;

impl Installer {
    /// Takes the hooks out of functions that are off for good. Who is in one of their stubs goes on from there.
    pub(crate) fn leave_alone(&mut self, deadline: Instant) -> Result<()> {
        let functions = self.functions.left_alone(self.seen_left_alone);
        if functions.is_empty() {
            return Ok(());
        }
        // ORDERING: where its stub is does not change.
        let header = |function: &u32| read_slot(self.arena.slot(*function)?.load(Ordering::Relaxed));
        let headers: BTreeSet<u64> = functions.iter().filter_map(header).map(|(.., header)| header).collect();
        let is_one = |patch: &&Patch| headers.range(patch.stub.clone()).next().is_some();
        let patches: Vec<_> =
            self.modules.iter().flat_map(|module| module.patches.iter()).filter(is_one).cloned().collect();
        self.unpatch(&patches, deadline)?;
        self.left_alone.extend(patches.iter().map(|patch| patch.address));
        self.seen_left_alone += functions.len();
        Ok(())
    }
}
