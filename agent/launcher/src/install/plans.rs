//! Planning modules, or taking plans that were made before, for processes that run the same files.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use agent::plan::Image;
use anyhow::{Result, bail};

use super::{Installer, Maps, Unreadable, maps::Mapped, module::Planned};
use crate::symbols::FoundLines;

/// How many are kept.
const MOST: usize = 512;

/// Plans of files that were loaded as they are: nobody has changed the code before it was planned.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<HashMap<FileState, Planned>>);

/// A file as it was at a time, under one of its names: what is known of it and wanted of it goes by that, too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FileState {
    name: String,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(path: &Path, name: &str) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            name: name.into(),
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Plans {
    /// The plan for a file, for where it is mapped.
    fn get(&self, file: &FileState, mapped: &Mapped) -> Option<Planned> {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.get(file).map(|planned| planned.moved_to(mapped))
    }

    /// Keeps a plan.
    fn keep(&self, file: FileState, planned: &Planned) {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() < MOST {
            plans.insert(file, planned.clone());
        }
    }
}

impl Installer {
    /// Plans modules, on all processors.
    pub(super) fn plan(
        &self,
        maps: &Maps,
        modules: &[Mapped],
        deadline: Instant,
    ) -> Result<Vec<Result<Planned, Unreadable>>> {
        // What is loaded later is waited for by the program.
        let symbols = |image: &mut Image, mapped: &Mapped| {
            let path = Path::new(&mapped.path);
            self.symbols.complete(image, &maps.root(), path, self.modules.is_empty())
        };
        let workers = thread::available_parallelism().map_or(1, usize::from).min(modules.len());
        let (next, plans) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    // ORDERING: it gives each number out once, and nothing else depends on it.
                    while let Some(mapped) = modules.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if Instant::now() > deadline {
                            return;
                        }
                        let planned = self.plan_one(maps, mapped, &symbols);
                        plans.lock().unwrap_or_else(PoisonError::into_inner).push((mapped.base, planned));
                    }
                });
            }
        });
        let mut plans = plans.into_inner().unwrap_or_else(PoisonError::into_inner);
        if plans.len() < modules.len() {
            let functions: usize =
                plans.iter().filter_map(|(_, plan)| Some(plan.as_ref().ok()?.function_count())).sum();
            bail!(
                "not ready in time: {} of {} modules were planned, with {functions} functions (--startup-timeout gives it longer)",
                plans.len(),
                modules.len()
            );
        }
        plans.sort_by_key(|(base, _)| *base);
        Ok(plans.into_iter().map(|(_, plan)| plan).collect())
    }

    /// Plans a module, or takes the plan for the same file.
    fn plan_one(
        &self,
        maps: &Maps,
        mapped: &Mapped,
        symbols: &dyn Fn(&mut Image, &Mapped) -> FoundLines,
    ) -> Result<Planned, Unreadable> {
        let known =
            self.plans.as_ref().and_then(|plans| Some((plans, FileState::of(&maps.open_path(mapped), &mapped.path)?)));
        if let Some(planned) = known.as_ref().and_then(|(plans, file)| plans.get(file, mapped)) {
            return Ok(planned);
        }
        let planned = Planned::plan(&self.memory, maps, mapped, &self.rules, symbols)?;
        if let Some((plans, file)) = known {
            plans.keep(file, &planned);
        }
        Ok(planned)
    }

    /// Takes plans that were made for other processes, and keeps those that are made: the target is as its files are.
    pub(crate) fn share(&mut self, plans: &Arc<Plans>) {
        self.plans = Some(Arc::clone(plans));
    }
}
