//! The function tables of all modules.

use std::{collections::BTreeMap, sync::OnceLock};

use codec::{FunctionId, ModuleId, profile::Functions};

use super::{CatalogLimits, Refused, entry::short};
use crate::budget::Budget;

/// Functions by id, in blocks of consecutive ids.
///
/// A table mostly comes whole, so a block is mostly full; and one function at a hostile index takes one block.
#[derive(Debug, Default)]
pub(super) struct FunctionTable {
    blocks: BTreeMap<u64, Box<Block>>,
    len: usize,
    /// The functions of each module by offset, those of the same offset by id. Made when somebody asks.
    by_offset: BTreeMap<ModuleId, OnceLock<Vec<(u64, FunctionId)>>>,
}

const BLOCK: usize = 64;

type Block = [Option<Function>; BLOCK];

#[derive(Debug)]
struct Function {
    offset: u64,
    name: Box<str>,
}

/// What a block and a name are taken to need of memory beside their contents.
const BLOCK_BYTES: u64 = size_of::<Block>() as u64 + 32;
const NAME_BYTES: u64 = 32;

fn cost(function: &Function) -> u64 {
    NAME_BYTES.saturating_add(function.name.len() as u64)
}

impl FunctionTable {
    /// Enters a part of a table. What has no room is counted in `refused`.
    pub(super) fn enter(
        &mut self,
        part: &Functions<'_>,
        bounds: &CatalogLimits,
        budget: &mut Budget,
        refused: &mut Refused,
    ) {
        // Indices that would run past the last one belong to no function, and module 0 is ours.
        let indices = (part.module != ModuleId(0)).then_some(part.first_index..=u32::MAX);
        let mut indices = indices.into_iter().flatten();
        for function in part.functions.iter() {
            let Some(index) = indices.next() else {
                refused.functions += 1;
                continue;
            };
            let id = FunctionId::new(part.module, index);
            let name = short(function.name, bounds.name_bytes, &mut refused.names_cut);
            if !self.set(id, Function { offset: function.offset, name }, bounds.functions, budget) {
                refused.functions += 1;
            }
        }
    }

    fn set(&mut self, id: FunctionId, function: Function, most: usize, budget: &mut Budget) -> bool {
        let (block, at) = place(id);
        let before = self.get(id).map(cost);
        if before.is_none() && self.len >= most {
            return false;
        }
        let new_block = if self.blocks.contains_key(&block) { 0 } else { BLOCK_BYTES };
        if !budget.exchange(before.unwrap_or(0), cost(&function).saturating_add(new_block)) {
            return false;
        }
        let block = self.blocks.entry(block).or_insert_with(|| Box::new([const { None }; BLOCK]));
        if let Some(slot) = block.get_mut(at) {
            *slot = Some(function);
            self.len += usize::from(before.is_none());
            self.by_offset.insert(id.module(), OnceLock::new());
        }
        true
    }

    /// Enters a function of a table that was kept before, of module 0 too.
    pub(super) fn add(&mut self, id: FunctionId, offset: u64, name: &str, budget: &mut Budget) {
        self.set(id, Function { offset, name: name.into() }, usize::MAX, budget);
    }

    /// The last function of a module that starts at or before this offset.
    pub(super) fn at(&self, module: ModuleId, offset: u64) -> Option<FunctionId> {
        let functions = self.by_offset.get(&module)?.get_or_init(|| self.of_module(module));
        let behind = functions.partition_point(|(start, _)| *start <= offset);
        let (start, _) = functions.get(behind.checked_sub(1)?)?;
        let first = functions.partition_point(|(other, _)| other < start);
        functions.get(first).map(|(_, id)| *id)
    }

    fn of_module(&self, module: ModuleId) -> Vec<(u64, FunctionId)> {
        let (first, last) = (FunctionId::new(module, 0), FunctionId::new(module, u32::MAX));
        let blocks = self.blocks.range(place(first).0..=place(last).0);
        let mut functions: Vec<_> = blocks
            .flat_map(|(number, block)| {
                let first = number.saturating_mul(BLOCK as u64);
                (first..=u64::MAX)
                    .zip(block.iter())
                    .filter_map(|(id, slot)| Some((slot.as_ref()?.offset, FunctionId(id))))
            })
            .collect();
        functions.sort_unstable();
        functions
    }

    fn get(&self, id: FunctionId) -> Option<&Function> {
        let (block, at) = place(id);
        self.blocks.get(&block)?.get(at)?.as_ref()
    }

    /// The name and the offset of a function.
    pub(super) fn function(&self, id: FunctionId) -> Option<(&str, u64)> {
        self.get(id).map(|function| (&*function.name, function.offset))
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The functions in the order of their ids, each with offset and name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (FunctionId, u64, &str)> {
        self.blocks.iter().flat_map(|(number, block)| {
            let first = number.saturating_mul(BLOCK as u64);
            (first..=u64::MAX).zip(block.iter()).filter_map(|(id, slot)| {
                let function = slot.as_ref()?;
                Some((FunctionId(id), function.offset, &*function.name))
            })
        })
    }
}

/// The block that a function is in, and its place there.
fn place(id: FunctionId) -> (u64, usize) {
    (id.0 / BLOCK as u64, (id.0 % BLOCK as u64) as usize)
}
