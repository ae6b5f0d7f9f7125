//! Hooks that a forked child has inherited.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use agent::{drain::Functions, shared::Arena};
use anyhow::{Context, Result};

use super::{Installed, Installer, LibraryPlace, Report, TargetMemory, left_alone::There};
use crate::native::Library;

impl Installer {
    /// The hooks in a child that the target has forked, and the numbers of its functions. It has memory of its own to share.
    pub(crate) fn inherit(&self, pid: i32, arena: Arc<Arena>) -> Result<(Self, Arc<Functions>)> {
        let library = match &self.library {
            LibraryPlace::Native(library) => library.clone(),
            // Frida is not in the child.
            LibraryPlace::File(_) => Library::of(pid)?,
        };
        let functions = Arc::new(self.functions.inherit());
        let modules = self.modules.iter();
        let mut child = Self {
            pid,
            library: LibraryPlace::Native(library),
            memory: TargetMemory::open(pid).context("cannot open the memory of the program")?,
            arena,
            routines: self.routines,
            rules: Arc::clone(&self.rules),
            symbols: Arc::clone(&self.symbols),
            functions: Arc::clone(&functions),
            modules: modules
                .map(|Installed { hooked, patches }| Installed {
                    hooked: Arc::clone(hooked),
                    patches: Arc::clone(patches),
                })
                .collect(),
            unreadable: self.unreadable.clone(),
            next_module: self.next_module,
            plans: self.plans.clone(),
            needs_returns: self.needs_returns,
            left_alone: self.left_alone.clone(),
            has_begun: false,
        };
        child.begin();
        // Hooks may have come and gone since it was forked.
        child.find_hooks();
        Ok((child, functions))
    }

    /// Tells of what was inherited, and hooks what was not: what the parent was just loading. The child waits in the mailbox.
    pub(crate) fn complete(&mut self, deadline: Instant, tell: &mut dyn FnMut(&Report)) -> Result<()> {
        let (memory, left_alone) = (&self.memory, self.ever_left_alone());
        let is_there = |module: &Installed| {
            // Jumps are written in this order.
            let last = module.patches.iter().rfind(|patch| !left_alone.contains(&patch.address));
            last.is_none_or(|last| There::of(last, memory) == There::Jump)
        };
        let (whole, torn) = self.modules.drain(..).partition::<Vec<_>, _>(is_there);
        for patch in torn.iter().flat_map(|module| module.patches.iter()) {
            if There::of(patch, memory) == There::Jump {
                memory.write(patch.address, &patch.original)?;
            }
        }
        self.modules = whole;
        let modules = self.modules.iter().map(|module| Arc::clone(&module.hooked)).collect();
        tell(&Report { modules, planning: Duration::ZERO, ..Report::default() });
        if !torn.is_empty() || !self.has_all()? {
            self.loaded(None, &[], deadline, tell)?;
        }
        Ok(())
    }
}
