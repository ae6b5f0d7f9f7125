//! A module of the target: what is planned for it, and what is told of it once it is hooked.

use std::{collections::BTreeMap, fs::File, path::Path, sync::Arc};

use agent::{
    plan::{Action, Candidate, Hook, Image, Kind, ModulePlan, Reason, plan},
    shared::{Landmark, Watched},
};

use super::{
    entry_only::EntryOnly,
    maps::{Mapped, Maps, TargetMemory},
    recognized::Recognized,
};
use crate::{
    process,
    rules::Rules,
    symbols::{FoundLines, SourceFiles},
};

/// A module and the plan for it.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    mapped: Mapped,
    size: u64,
    bias: u64,
    build_id: Vec<u8>,
    link_base: u64,
    lines: Option<Arc<File>>,
    unread_lines: Option<String>,
    /// Whether return addresses have to be left alone.
    entries_only: bool,
    needs_returns: bool,
    plan: Arc<ModulePlan>,
    recognized: Arc<Recognized>,
    /// Functions below which only so many levels of calls are told, by their index.
    depths: Arc<[(u32, u32)]>,
    /// Other functions that something depends on, by their index.
    full: Arc<[u32]>,
    /// Functions that could not be hooked after all.
    refused: BTreeMap<u32, Reason>,
}

/// A function that gets a stub.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    /// Its address in the target.
    pub(super) address: u64,
    pub(super) watched: Option<Watched>,
    /// None where Gum is to hook it.
    pub(super) hook: Option<Hook>,
}

/// A module that is hooked, to be told of.
#[derive(Debug, Clone)]
pub(crate) struct Hooked {
    pub(crate) id: u32,
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) build_id: Vec<u8>,
    pub(crate) path: String,
    /// The offset of each function from the base, and its name.
    pub(crate) functions: Arc<[(u64, String)]>,
    /// What was linked to be at the base.
    pub(crate) link_base: u64,
    /// The file that has the source lines of the functions.
    pub(crate) lines: Option<Arc<File>>,
    /// Why the source lines that there are are not read.
    pub(crate) unread_lines: Option<String>,
    /// How many functions are hooked at both ends.
    pub(crate) hooked: usize,
    /// Which are hooked only at their entry.
    pub(crate) probed: EntryOnly,
    /// How many are not, by reason.
    pub(crate) left: BTreeMap<&'static str, Left>,
    /// Functions of a runtime that were looked for and are not there.
    pub(crate) missing: Vec<&'static str>,
    /// Runtimes that are linked into it: what they run is not told.
    pub(crate) linked: Vec<&'static str>,
    /// Whether it is a loader that tells when modules come and go.
    pub(super) tells_of_modules: bool,
}

/// Functions that are left for one reason.
#[derive(Debug, Clone, Default)]
pub(crate) struct Left {
    pub(crate) count: usize,
    pub(crate) why: &'static str,
}

/// A module that could not be hooked at all.
#[derive(Debug, Clone)]
pub(crate) struct Unreadable {
    pub(crate) base: u64,
    pub(crate) path: String,
    pub(crate) why: String,
}

impl Planned {
    pub(super) fn plan(
        memory: &TargetMemory,
        maps: &Maps,
        mapped: &Mapped,
        rules: &Rules,
        symbols: &dyn Fn(&mut Image, &Mapped) -> FoundLines,
    ) -> Result<Self, Unreadable> {
        let file = maps.open_path(mapped);
        let mut image = Image::open(&file).map_err(|error| Unreadable {
            base: mapped.base,
            path: mapped.path.clone(),
            why: error.to_string(),
        })?;
        let FoundLines { file, unread } = symbols(&mut image, mapped);
        let bias = mapped.base.wrapping_sub(image.link_base());
        let loaded = |address: u64, buffer: &mut [u8]| memory.read(address.wrapping_add(bias), buffer).is_ok();
        let (of_module, sources) = (rules.of_module(&mapped.path), SourceFiles::of(file.as_ref()));
        let leave = |function: &Candidate<'_>| of_module.leave(function, &|address| sources.file(address));
        let mut plan = plan(&image, Some(&loaded), &leave);
        if !process::may_use_bases() {
            plan.leave(Kind::Go, Reason::NoThreadPointer);
        }
        Ok(Self {
            mapped: mapped.clone(),
            size: image.size(),
            bias,
            build_id: image.build_id().to_vec(),
            link_base: image.link_base(),
            lines: file.map(Arc::new),
            unread_lines: unread,
            entries_only: walks_stacks(&plan),
            needs_returns: needs_returns(&plan),
            recognized: Arc::new(Recognized::of(&plan, image.link_base(), file_name(&mapped.path))),
            depths: hooked(&plan).filter_map(|(index, names)| Some((index, rules.depth_below(names)?))).collect(),
            full: hooked(&plan).filter(|(_, names)| rules.is_full(names.clone())).map(|(index, _)| index).collect(),
            plan: Arc::new(plan),
            refused: BTreeMap::new(),
        })
    }

    /// The same for the same file, where it is mapped elsewhere.
    pub(super) fn moved_to(&self, mapped: &Mapped) -> Self {
        Self { mapped: mapped.clone(), bias: mapped.base.wrapping_sub(self.link_base), ..self.clone() }
    }

    /// Whether it needs all return addresses of the program to be what they are.
    pub(super) fn needs_returns(&self) -> bool {
        self.needs_returns
    }

    /// Has its return addresses left alone.
    pub(super) fn record_entries_only(&mut self) {
        self.entries_only = true;
    }

    pub(super) fn mapped(&self) -> &Mapped {
        &self.mapped
    }

    pub(super) fn bias(&self) -> u64 {
        self.bias
    }

    pub(super) fn function_count(&self) -> usize {
        self.plan.functions.len()
    }

    /// Functions that stay full, by their index.
    pub(super) fn full(&self) -> impl Iterator<Item = u32> {
        self.depths.iter().map(|(index, _)| *index).chain(self.full.iter().copied())
    }

    /// Functions below which only so many levels of calls are told, by their index.
    pub(super) fn depths(&self) -> &[(u32, u32)] {
        &self.depths
    }

    /// How many functions get a stub.
    pub(super) fn stub_count(&self) -> usize {
        self.targets().count()
    }

    /// The functions that get a stub, by their index in the module.
    pub(super) fn targets(&self) -> impl Iterator<Item = (u32, Target)> {
        (0_u32..).zip(&self.plan.functions).filter_map(move |(index, function)| {
            let hook = match &function.action {
                Action::Hook(hook) => Some(hook),
                Action::Leave(Reason::AlreadyPatched) => None,
                Action::Leave(_) => return None,
            };
            // A garbage collector that walks over it must find real return addresses, for one.
            let hook = hook.map(|hook| match self.entries_only && hook.kind == Kind::Frame {
                true => Hook { kind: Kind::Probe, ..*hook },
                false => *hook,
            });
            let (address, watched) = (function.address.wrapping_add(self.bias), self.recognized.watched(index));
            Some((index, Target { address, watched, hook }))
        })
    }

    /// The landmarks in it, each from its start to its end. A function has no end.
    pub(super) fn landmarks(&self) -> Vec<(Landmark, u64, u64)> {
        let Some(library) = Landmark::library(file_name(&self.mapped.path)) else { return Vec::new() };
        let functions = self.recognized.landmarks.iter();
        let functions = functions.map(|&(landmark, address)| (landmark, address.wrapping_add(self.bias), 0));
        functions.chain([(library, self.mapped.base, self.mapped.end)]).collect()
    }

    /// Notes that functions could not be hooked after all.
    pub(super) fn refuse(&mut self, refused: &[(u32, Reason)]) {
        self.refused.extend(refused.iter().copied());
    }

    /// That there is no memory near it.
    pub(super) fn without_memory(self) -> Unreadable {
        Unreadable {
            base: self.mapped.base,
            path: self.mapped.path,
            why: "no memory is free within 2 GiB of it".into(),
        }
    }

    pub(super) fn hooked(self, id: u32) -> Hooked {
        let (mut hooked, mut probed, mut left) = (0, EntryOnly::default(), BTreeMap::<_, Left>::new());
        for (index, function) in (0..).zip(&self.plan.functions) {
            match self.refused.get(&index).map_or(function.action, |reason| Action::Leave(*reason)) {
                Action::Hook(hook) if hook.kind == Kind::Frame && !self.entries_only => hooked += 1,
                Action::Hook(_) | Action::Leave(Reason::AlreadyPatched) => probed.add(index),
                Action::Leave(reason) => {
                    let left = left.entry(reason.as_str()).or_default();
                    left.count += 1;
                    left.why = reason.explain();
                }
            }
        }
        probed.are_all(hooked == 0);
        let tells = |(index, target): (u32, Target)| {
            target.watched == Some(Watched::DebugState) && !self.refused.contains_key(&index)
        };
        let tells_of_modules = self.targets().any(tells);
        Hooked {
            id,
            base: self.mapped.base,
            size: self.size,
            build_id: self.build_id,
            path: self.mapped.path,
            functions: Arc::clone(&self.recognized.functions),
            link_base: self.link_base,
            lines: self.lines,
            unread_lines: self.unread_lines,
            hooked,
            probed,
            left,
            missing: self.recognized.missing.clone(),
            linked: self.recognized.linked.clone(),
            tells_of_modules,
        }
    }
}

/// The functions whose calls and returns are seen, by their index, and their names.
fn hooked(plan: &ModulePlan) -> impl Iterator<Item = (u32, impl Iterator<Item = &str> + Clone)> {
    let hooked = (0..).zip(&plan.functions).filter(|(_, function)| function.hook().is_some());
    hooked.map(|(index, function)| (index, [&function.name].into_iter().chain(&function.aliases).map(String::as_str)))
}

/// Whether a module has V8, the Java virtual machine, MoarVM or compiled OCaml in it. They look up return addresses of
/// functions that compiled code has called, and no rule tells which those are.
fn walks_stacks(plan: &ModulePlan) -> bool {
    const MARKS: [&str; 3] = ["JNI_CreateJavaVM", "MVM_jit_code_get_current_position", "caml_call_gc"];
    let is_mark = |name: &str| MARKS.contains(&name) || name.starts_with("_ZN2v88internal") || is_ocaml_unit(name);
    plan.functions.iter().any(|function| is_mark(&function.name))
}

/// Whether this is what the first function of a compiled OCaml module is called, by old compilers and by new ones.
fn is_ocaml_unit(name: &str) -> bool {
    let rest = name.strip_prefix("caml").filter(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()));
    rest.is_some_and(|rest| rest.ends_with("__entry") || rest.ends_with(".entry"))
}

/// Whether a module needs all return addresses of a program to be what they are: it copies stacks about, so that one place
/// on a stack stands for several functions in turn (greenlet, and Ruby's continuations), or looks up those of functions in
/// any library that its compiled code has called (Mono).
fn needs_returns(plan: &ModulePlan) -> bool {
    const MARKS: [&str; 3] = ["PyInit__greenlet", "Init_continuation", "mono_jit_init"];
    plan.functions.iter().any(|function| MARKS.contains(&function.name.as_str()))
}

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}
