//! Functions that are called so often that their hooks have to go, whatever they do, and come back later.

use std::{
    collections::BTreeSet,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use agent::{shared::read_slot, stub::Patch};
use anyhow::Result;

use super::{Installed, Installer, Stopped, TargetMemory};

/// What is where a jump was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum There {
    Jump,
    Original,
    /// Somebody else's hook, or nothing.
    Other,
}

impl There {
    pub(super) fn of(patch: &Patch, memory: &TargetMemory) -> Self {
        let mut there = [0; 5];
        match memory.read(patch.address, &mut there) {
            Ok(()) if there == patch.jump => Self::Jump,
            Ok(()) if there == patch.original => Self::Original,
            _ => Self::Other,
        }
    }
}

impl Installer {
    /// Takes hooks out that nobody wants, and puts those back that are wanted again. Threads may take so long to stop.
    pub(crate) fn settle_hooks(&mut self, patience: Duration) -> Result<()> {
        self.take_out(patience)?;
        self.put_back(patience)
    }

    /// Who is in one of their stubs goes on from there.
    fn take_out(&mut self, patience: Duration) -> Result<()> {
        let functions = self.functions.take_unwanted();
        if functions.is_empty() {
            return Ok(());
        }
        let patches: Vec<_> =
            functions.iter().filter_map(|function| Some((*function, self.patch_of(*function)?))).collect();
        self.left_alone.extend(patches.iter().cloned());
        let patches: Vec<_> = patches.into_iter().map(|(_, patch)| patch).collect();
        let taken = self.unpatch(&patches, Instant::now() + patience);
        if taken.is_err() {
            self.find_hooks();
        }
        taken
    }

    fn put_back(&mut self, patience: Duration) -> Result<()> {
        let mut out = Vec::new();
        for function in self.functions.wanted_again() {
            match self.left_alone.get(&function).map(|patch| (patch, There::of(patch, &self.memory))) {
                Some((patch, There::Original)) => out.push((function, patch)),
                Some((_, There::Other)) => {}
                // It was never out, or its module is gone.
                Some((_, There::Jump)) | None => self.functions.found(function, true),
            }
        }
        if out.is_empty() {
            return Ok(());
        }
        let stopped = Stopped::stop(self.pid, &[], Instant::now() + patience)?;
        out.retain(|(_, patch)| There::of(patch, &self.memory) == There::Original);
        let mut patches: Vec<&Patch> = out.iter().map(|(_, patch)| *patch).collect();
        patches.sort_unstable_by_key(|patch| patch.address);
        self.write_jumps(&patches, || stopped.move_out_of(&patches))?;
        out.iter().for_each(|(function, _)| self.functions.found(*function, true));
        Ok(())
    }

    /// Finds out which of the hooks that were ever out are there.
    pub(super) fn find_hooks(&self) {
        for (function, patch) in &self.left_alone {
            self.functions.found(*function, There::of(patch, &self.memory) == There::Jump);
        }
    }

    /// Where the hooks were ever taken out.
    pub(super) fn ever_left_alone(&self) -> BTreeSet<u64> {
        self.left_alone.values().map(|patch| patch.address).collect()
    }

    /// Forgets the functions of a module that is gone.
    pub(super) fn forget_left_alone(&mut self, gone: &Installed) {
        if !self.left_alone.is_empty() {
            let gone: BTreeSet<u64> = gone.patches.iter().map(|patch| patch.address).collect();
            self.left_alone.retain(|_, patch| !gone.contains(&patch.address));
        }
    }

    /// The jump to the stub of a function.
    fn patch_of(&self, function: u32) -> Option<Patch> {
        // ORDERING: where its stub is does not change.
        let (.., header) = read_slot(self.arena.slot(function)?.load(Ordering::Relaxed))?;
        let mut patches = self.modules.iter().flat_map(|module| module.patches.iter());
        patches.find(|patch| patch.stub.contains(&header)).cloned()
    }
}
