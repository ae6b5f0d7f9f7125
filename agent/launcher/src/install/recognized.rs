//! What is known of a module by the names of its functions, found out once for all processes that run the same file.

use std::sync::Arc;

use agent::{
    plan::{Function, Kind, ModulePlan},
    shared::{Landmark, Watched},
};

/// What the loader calls when modules have come or gone.
const LOADERS: &str = "_dl_debug_state";

/// Boost's, which may be in any module.
const FAST_CONTEXT: &str = "make_fcontext";

/// How the functions of Go's own that are watched begin, in programs of any name.
const GO: &str = "syscall.";

/// Whether a function of the module with this file may be watched: it joins events together, says what a stack is, or when
/// processes and modules come and go. Without it, others cannot be recorded as they should.
pub(crate) fn is_needed(file: &str, name: &str) -> bool {
    let is_in_place = || Watched::may_be_in(file) || name.starts_with(GO);
    let is_by_address = || Watched::is_known_by_address(file, name);
    matches!(name, LOADERS | FAST_CONTEXT) || Watched::by_name(name).is_some() && is_in_place() || is_by_address()
}

/// What functions of a module are known for, by the file's name and by theirs.
#[derive(Debug)]
pub(super) struct Recognized {
    /// The offset of each function from the base, and its name.
    pub(super) functions: Arc<[(u64, String)]>,
    /// Functions of a runtime that were looked for and are not there: without them nothing can be told of that.
    pub(super) missing: Vec<&'static str>,
    /// Runtimes that are linked into it.
    pub(super) linked: Vec<&'static str>,
    /// Where its landmarks are in the file.
    pub(super) landmarks: Vec<(Landmark, u64)>,
    /// The functions that are watched, in the order of their places in the table.
    watched: Vec<(u32, Watched)>,
}

impl Recognized {
    pub(super) fn of(plan: &ModulePlan, link_base: u64, file: &str) -> Self {
        let needed = Watched::needed_of(file).iter().copied();
        let missing: Vec<_> = needed.filter(|name| !has(plan, name)).collect();
        // One that lacks functions is another version than is known here, or something else of that name: what its
        // arguments are is anybody's guess.
        let is_runtime = Watched::may_be_in(file) && missing.is_empty();
        let is_go = |function: &Function| function.hook().is_some_and(|hook| hook.kind == Kind::Go);
        let watch = |name: &str, is_runtime| match is_runtime {
            true => Watched::by_name(name),
            false => match name {
                FAST_CONTEXT => Some(Watched::MakeFastContext),
                LOADERS if file.starts_with("ld") => Some(Watched::DebugState),
                _ => None,
            },
        };
        let functions = (0..).zip(&plan.functions);
        let watched = functions.filter_map(|(index, function)| {
            let is_runtime = is_runtime || is_go(function);
            Some((index, names(function).find_map(|name| watch(name, is_runtime))?))
        });
        let landmark = |function: &Function| Some((names(function).find_map(Landmark::function)?, function.address));
        let is_library = Landmark::library(file).is_some();
        let named = |function: &Function| (function.address.wrapping_sub(link_base), function.name.clone());
        Self {
            functions: plan.functions.iter().map(named).collect(),
            missing,
            linked: if is_library { Vec::new() } else { linked(plan) },
            landmarks: if is_library { plan.functions.iter().filter_map(landmark).collect() } else { Vec::new() },
            watched: watched.collect(),
        }
    }

    /// What the function at this place in the table is watched as.
    pub(super) fn watched(&self, index: u32) -> Option<Watched> {
        let at = self.watched.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        self.watched.get(at).map(|(_, watched)| *watched)
    }
}

fn names(function: &Function) -> impl Iterator<Item = &str> {
    [&function.name].into_iter().chain(&function.aliases).map(String::as_str)
}

fn has(plan: &ModulePlan, name: &str) -> bool {
    plan.functions.iter().any(|function| names(function).any(|known| known == name))
}

/// The runtimes that are linked into a module which is not the library of any. Which of its code is theirs nobody knows, so that
/// what the program gives to them cannot be told from what they do by themselves.
fn linked(plan: &ModulePlan) -> Vec<&'static str> {
    const RUNTIMES: [(&str, &str); 2] =
        [("libdispatch", "Grand Central Dispatch"), ("libswift_Concurrency", "Swift concurrency")];
    let is_linked = |library: &str| Watched::needed_of(library).iter().all(|name| has(plan, name));
    RUNTIMES.iter().filter(|(library, _)| is_linked(library)).map(|(_, runtime)| *runtime).collect()
}
