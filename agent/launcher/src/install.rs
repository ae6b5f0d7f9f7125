//! Putting hooks into the target, and taking them out.
//!
//! All of it is done from outside: what to hook is read from files, stubs and jumps are written into the target's
//! memory. The target only maps the memory for the stubs. Jumps are written while all threads stand still; for a module
//! that is just being loaded it is enough that the thread that loads it does.

mod entry_only;
mod gates;
mod inherited;
mod inside;
mod jumps;
mod left_alone;
mod maps;
mod module;
mod plans;
mod recognized;
mod stop;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use agent::{
    drain::Functions,
    plan::Reason,
    shared::{Arena, Command},
    stub::{Block, Patch, Routines, Stub},
};
use anyhow::{Context, Result, bail};
use codec::{FunctionId, ModuleId};

pub(crate) use inside::LibraryPlace;
pub(crate) use maps::{Maps, TargetMemory};
pub(crate) use module::{Hooked, Unreadable, file_name};
pub(crate) use plans::Plans;
pub(crate) use recognized::is_needed;

use crate::{frida::GumHook, rules::Rules, symbols::SymbolFinder};
use jumps::write_jumps;
use left_alone::There;
use maps::Mapped;
use module::Planned;
use stop::Stopped;
pub(crate) use stop::{begun_anew, restart_call, restart_interrupted};

/// Hooks in a target.
#[derive(Debug)]
pub(crate) struct Installer {
    pid: i32,
    /// The library in the target, which is not hooked.
    library: LibraryPlace,
    memory: TargetMemory,
    arena: Arc<Arena>,
    routines: Routines,
    rules: Arc<Rules>,
    symbols: Arc<SymbolFinder>,
    functions: Arc<Functions>,
    /// The modules that are hooked.
    modules: Vec<Installed>,
    /// Where the modules are that cannot be.
    unreadable: Vec<u64>,
    /// The number of the module that comes next. 0 stands for what is no module's.
    next_module: u32,
    /// Plans for files that other processes run, too.
    plans: Option<Arc<Plans>>,
    /// Whether something is loaded that needs return addresses to be what they are, everywhere.
    needs_returns: bool,
    /// The functions whose hooks were ever taken out, by their numbers.
    left_alone: BTreeMap<u32, Patch>,
    /// Whether there may be hooks in the target.
    has_begun: bool,
}

/// A module that is hooked.
#[derive(Debug)]
struct Installed {
    hooked: Arc<Hooked>,
    patches: Arc<[Patch]>,
}

/// What came of installing hooks.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) modules: Vec<Arc<Hooked>>,
    /// Modules whose files could not be read, or for which there was no memory.
    pub(crate) unreadable: Vec<Unreadable>,
    /// Functions that Frida has patched for itself: only its own hooks can go there.
    pub(crate) for_gum: Vec<GumHook>,
    /// How long it took to plan, and to install what was planned.
    pub(crate) planning: Duration,
    pub(crate) installing: Duration,
}

impl Installer {
    /// For a target in which the library is loaded and has made the shared memory.
    pub(crate) fn new(
        pid: i32,
        library: LibraryPlace,
        arena: Arc<Arena>,
        routines: Routines,
        rules: Arc<Rules>,
        symbols: Arc<SymbolFinder>,
        functions: Arc<Functions>,
    ) -> Result<Self> {
        let memory = TargetMemory::open(pid).context("cannot open the memory of the program")?;
        Ok(Self {
            pid,
            library,
            memory,
            arena,
            routines,
            rules,
            symbols,
            functions,
            modules: Vec::new(),
            unreadable: Vec::new(),
            next_module: 1,
            plans: None,
            needs_returns: false,
            left_alone: BTreeMap::new(),
            has_begun: false,
        })
    }

    /// From here on there may be hooks, which record.
    fn begin(&mut self) {
        self.has_begun = true;
        // ORDERING: a hook is written after that, and read by whoever looks whether one was left.
        self.arena.control().recording.store(1, Ordering::Release);
    }

    /// How long planning and hooking all that is loaded may take: as the amount of code calls for.
    pub(crate) fn time_needed(&self) -> Result<Duration> {
        /// What a function takes, with a large margin, and how large it is at least on average.
        const PER_FUNCTION: Duration = Duration::from_micros(500);
        const FUNCTION_BYTES: u64 = 64;
        let modules = self.unhooked()?.1;
        let bytes: u64 = modules.iter().map(|module| module.end - module.base).sum();
        let functions = u32::try_from(bytes / FUNCTION_BYTES).unwrap_or(u32::MAX);
        Ok(PER_FUNCTION.saturating_mul(functions).saturating_add(self.symbols.time_needed(modules.len())))
    }

    /// Never traces these threads. A thread of the target must be waiting in the mailbox.
    pub(crate) fn ignore(&self, threads: &[i32], deadline: Instant) -> Result<()> {
        for tid in threads {
            self.ask(None, Command::Ignore, &[u64::from(tid.unsigned_abs())], deadline)?;
        }
        Ok(())
    }

    /// Hooks everything that is loaded and not hooked. A thread of the target must be waiting in the mailbox. `tell` is
    /// told of what is about to be hooked before it is.
    pub(crate) fn install(&mut self, deadline: Instant, tell: &mut dyn FnMut(&Report)) -> Result<Report> {
        let started = Instant::now();
        let (maps, unhooked) = self.unhooked()?;
        let first_new = self.modules.len();
        let mut report = self.prepare(&maps, &unhooked, deadline, tell)?;
        let stopped = Stopped::stop(self.pid, &[], deadline)?;
        self.begin();
        stopped.point_gs_to(self.routines.gs, &self.memory)?;
        // Some may have been unloaded meanwhile, and others be in their places.
        let there = Maps::read(self.pid).context("the program is gone")?.modules();
        let is_there = |new: &&Installed| {
            let Hooked { base, path, .. } = &*new.hooked;
            there.iter().any(|mapped| mapped.base == *base && mapped.path == *path)
        };
        let new = self.modules[first_new..].iter().filter(is_there);
        let new: Vec<_> = new.flat_map(|module| module.patches.iter()).collect();
        self.write_jumps(&new, || stopped.move_out_of(&new))?;
        drop(stopped);
        report.installing = started.elapsed() - report.planning;
        Ok(report)
    }

    /// Hooks a module that a thread is just loading, or all that it is, and which waits in the mailbox. No other thread can be
    /// in it. Returns the ids of modules that have others from here on, since they had to be hooked in another way. Of the threads in
    /// `foreign` none is traced.
    pub(crate) fn loaded(
        &mut self,
        base: Option<u64>,
        foreign: &[i32],
        deadline: Instant,
        tell: &mut dyn FnMut(&Report),
    ) -> Result<Vec<u32>> {
        let (first_new, needed_returns) = (self.modules.len(), self.needs_returns);
        let (maps, mut unhooked) = self.unhooked()?;
        unhooked.retain(|mapped| base.is_none_or(|base| mapped.base == base));
        self.prepare(&maps, &unhooked, deadline, tell)?;
        self.begin();
        let patches: Vec<_> = self.modules[first_new..].iter().flat_map(|module| module.patches.iter()).collect();
        self.write_jumps(&patches, || Ok(()))?;
        if needed_returns || !self.needs_returns {
            return Ok(Vec::new());
        }
        // ORDERING: it waits in the mailbox.
        let loading = self.arena.control().mailbox.owner.load(Ordering::Relaxed) as i32;
        let new = self.modules.split_off(first_new);
        let before = self.modules.iter().map(|module| module.hooked.id).collect();
        self.remove(&[foreign, &[loading]].concat(), deadline)?;
        self.modules = new;
        self.install(deadline, tell)?;
        Ok(before)
    }

    fn write_jumps(&self, patches: &[&Patch], then: impl FnOnce() -> Result<()>) -> Result<()> {
        let (read, write) = (
            |address, bytes: &mut [u8]| self.memory.read(address, bytes),
            |address, bytes: &[u8]| self.memory.write(address, bytes),
        );
        write_jumps(patches, read, write, then)
    }

    /// Plans modules, writes their stubs and tells what came of that. The jumps are still to be written.
    fn prepare(
        &mut self,
        maps: &Maps,
        modules: &[Mapped],
        deadline: Instant,
        tell: &mut dyn FnMut(&Report),
    ) -> Result<Report> {
        let started = Instant::now();
        let mut plans = self.plan(maps, modules, deadline)?;
        // Nothing of a program can be read that has just ended, and none of its files is to blame.
        if plans.iter().any(Result::is_err) && Maps::read(self.pid).is_err() {
            bail!("the program is gone");
        }
        if let Some(needing) = plans.iter().flatten().find(|planned| planned.needs_returns() && !self.needs_returns) {
            say!("{} copies or reads stacks: from here on calls are recorded, and no returns", needing.mapped().path);
            self.needs_returns = true;
        }
        if self.needs_returns {
            plans.iter_mut().flatten().for_each(Planned::record_entries_only);
        }
        let mut report = Report { planning: started.elapsed(), ..Report::default() };
        for planned in plans {
            match planned {
                Ok(planned) => self.lay_out(planned, deadline, &mut report)?,
                Err(unreadable) => self.leave(unreadable, &mut report),
            }
        }
        tell(&report);
        Ok(report)
    }

    /// Forgets a module that is about to be unloaded, and returns its id. Its stubs stay: somebody may still return
    /// through one.
    pub(crate) fn unloaded(&mut self, base: u64) -> Option<u32> {
        self.unreadable.retain(|left| *left != base);
        let place = self.modules.iter().position(|module| module.hooked.base == base)?;
        let gone = self.modules.swap_remove(place);
        self.forget_left_alone(&gone);
        Some(gone.hooked.id)
    }

    /// Makes every function what it was, and puts the return addresses of those back that are being executed. A thread of
    /// the target, one of `but`, must be waiting in the mailbox. Where that fails, it can be tried again.
    pub(crate) fn remove(&mut self, but: &[i32], deadline: Instant) -> Result<()> {
        if !self.has_begun {
            // Nobody has to be stopped for that.
            self.modules.clear();
            return Ok(());
        }
        let patches: Vec<_> = self.modules.iter().flat_map(|module| module.patches.to_vec()).collect();
        let (last, first): (Vec<_>, Vec<_>) = patches.into_iter().partition(|patch| patch.unwinds);
        self.unpatch(&first, deadline)?;
        {
            let stopped = self.stop_outside(&first, but, deadline)?;
            self.ask(Some(&stopped), Command::Restore, &[], deadline)?;
        }
        self.unpatch(&last, deadline)?;
        self.modules.clear();
        Ok(())
    }

    /// Stops all threads but these when none is in a stub or in one of the library's routines, from where it would change a
    /// return address. None enters one any more, so that is a matter of moments, unless one waits there.
    fn stop_outside(&self, patches: &[Patch], but: &[i32], deadline: Instant) -> Result<Stopped> {
        const TRIES: u32 = 50;
        let library = match &self.library {
            LibraryPlace::Native(library) => library.range(),
            LibraryPlace::File(path) => {
                let modules = Maps::read(self.pid).context("the program is gone")?.modules();
                let library = modules.iter().find(|module| Path::new(&module.path) == path);
                library.map_or(0..0, |library| library.base..library.end)
            }
        };
        let mut stubs: Vec<_> = patches.iter().map(|patch| patch.stub.clone()).collect();
        stubs.sort_unstable_by_key(|stub| stub.start);
        let is_ours = |address: u64| {
            let before = stubs.partition_point(|stub| stub.start <= address).checked_sub(1);
            library.contains(&address) || before.is_some_and(|stub| stubs[stub].contains(&address))
        };
        for _ in 0..TRIES {
            let stopped = Stopped::stop(self.pid, but, deadline)?;
            if !stopped.is_any_in(is_ours) {
                return Ok(stopped);
            }
            drop(stopped);
            thread::sleep(Duration::from_millis(2));
        }
        Stopped::stop(self.pid, but, deadline)
    }

    fn unpatch(&self, patches: &[Patch], deadline: Instant) -> Result<()> {
        let _stopped = Stopped::stop(self.pid, &[], deadline)?;
        for patch in patches {
            // Where somebody has put a hook over ours, ours has to stay.
            if There::of(patch, &self.memory) == There::Jump {
                self.memory.write(patch.address, &patch.original)?;
            }
        }
        Ok(())
    }

    /// Whether the target's memory is not what it was: the process runs another program.
    pub(crate) fn is_replaced(&self) -> bool {
        self.memory.is_replaced(self.pid)
    }

    /// Forgets modules that are not there any more. Returns their ids.
    pub(crate) fn unloaded_meanwhile(&mut self) -> Result<Vec<u32>> {
        let there = Maps::read(self.pid).context("the program is gone")?.modules();
        let gone = |base: u64| !there.iter().any(|mapped| mapped.base == base);
        self.unreadable.retain(|base| !gone(*base));
        let (gone, left) = self.modules.drain(..).partition::<Vec<_>, _>(|module| gone(module.hooked.base));
        self.modules = left;
        gone.iter().for_each(|gone| self.forget_left_alone(gone));
        Ok(gone.iter().map(|module| module.hooked.id).collect())
    }

    /// Whether it is told when modules come and go.
    pub(crate) fn hears_of_modules(&self) -> bool {
        self.modules.iter().any(|module| module.hooked.tells_of_modules)
    }

    /// Whether everything that is loaded is hooked.
    pub(crate) fn has_all(&self) -> Result<bool> {
        Ok(self.unhooked()?.1.is_empty())
    }

    /// Leaves a module alone that cannot be hooked.
    fn leave(&mut self, unreadable: Unreadable, report: &mut Report) {
        self.unreadable.push(unreadable.base);
        report.unreadable.push(unreadable);
    }

    /// What is loaded and neither hooked nor left.
    fn unhooked(&self) -> Result<(Maps, Vec<Mapped>)> {
        let maps = Maps::read(self.pid).context("the program is gone")?;
        let is_library = |mapped: &Mapped| match &self.library {
            LibraryPlace::File(path) => Path::new(&mapped.path) == path,
            // Frida may have loaded it before.
            LibraryPlace::Native(library) => library.range().start == mapped.base,
        };
        let ours = |mapped: &Mapped| {
            is_library(mapped)
                || is_frida(mapped)
                || self.modules.iter().any(|module| module.hooked.base == mapped.base)
                || self.unreadable.contains(&mapped.base)
        };
        let unhooked = maps.modules().into_iter().filter(|mapped| !ours(mapped)).collect();
        Ok((maps, unhooked))
    }

    /// Writes the stubs of a module, to which nothing jumps yet.
    fn lay_out(&mut self, mut planned: Planned, deadline: Instant, report: &mut Report) -> Result<()> {
        let stubs = planned.stub_count();
        let bytes = Block::bytes_for(stubs);
        let place = match stubs {
            0 => Some(0),
            _ => match self.find_block(&planned, bytes, deadline)? {
                Some(at) => Some(at),
                None => self.map_near(planned.mapped(), bytes as u64, deadline)?,
            },
        };
        let Some(at) = place else {
            self.leave(planned.without_memory(), report);
            return Ok(());
        };
        for (landmark, start, end) in planned.landmarks() {
            self.ask(None, Command::Landmark, &[landmark as u64, start, end], deadline)?;
        }
        let id = self.next_module;
        self.next_module += 1;
        let count = planned.function_count() as u32;
        let functions = (0..count).map(|index| FunctionId::new(ModuleId(id), index));
        let first = self.functions.add_limited(functions, planned.depths());
        let (block, for_gum, refused) = self.block_of(&planned, at, first);
        report.for_gum.extend(for_gum);
        planned.refuse(&refused);
        if stubs > 0 {
            self.memory.write(at, block.bytes()).context("cannot write to the memory of the program")?;
        }
        self.open_gates(&block, first + count);
        self.keep_full(planned.full().map(|index| first + index));
        let hooked = Arc::new(planned.hooked(id));
        report.modules.push(Arc::clone(&hooked));
        self.modules.push(Installed { hooked, patches: block.patches().into() });
        Ok(())
    }

    /// The stubs of a module, for this place, with numbers from `first` on; functions for Gum's own hooks, and those that have
    /// no stub.
    fn block_of(&self, planned: &Planned, at: u64, first: u32) -> (Block, Vec<GumHook>, Vec<(u32, Reason)>) {
        // ORDERING: written before anything was hooked.
        let slots = self.arena.control().slots.load(Ordering::Relaxed);
        let mut block = Block::new(at, planned.bias(), self.routines, slots);
        let (mut for_gum, mut refused) = (Vec::new(), Vec::new());
        for (index, target) in planned.targets() {
            let number = first + index;
            let stub = Stub { number, address: target.address, watched: target.watched, hook: target.hook.as_ref() };
            match block.add(&stub) {
                Ok(header) if target.hook.is_none() => for_gum.push(GumHook { address: target.address, header }),
                Ok(_) => {}
                Err(reason) => refused.push((index, reason)),
            }
        }
        (block, for_gum, refused)
    }
}

fn is_frida(mapped: &Mapped) -> bool {
    mapped.path.contains("frida-agent")
}
