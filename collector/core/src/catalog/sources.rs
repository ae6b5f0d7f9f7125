//! Where functions are in their sources.

use std::{collections::HashMap, sync::Arc};

use codec::{FunctionId, ModuleId, profile::Sources};

use super::CatalogLimits;
use crate::budget::Budget;

/// The source lines of functions.
#[derive(Debug, Default)]
pub(super) struct SourceTable {
    lines: HashMap<FunctionId, (Arc<str>, u32)>,
    /// The file that was told of last. Manifests tell it again for each function, and mostly the same.
    last: Option<Arc<str>>,
}

/// What a line and a file are taken to need of memory beside their contents.
const LINE_BYTES: u64 = 64;
const FILE_BYTES: u64 = 32;

impl SourceTable {
    /// Enters the functions of a source file, and tells how many were refused.
    pub(super) fn enter(&mut self, part: &Sources<'_>, bounds: &CatalogLimits, budget: &mut Budget) -> u64 {
        let mut refused = 0;
        for line in part.lines.iter() {
            let id = FunctionId::new(part.module, line.index);
            if self.get(id) == Some((part.file, line.line)) {
                continue;
            }
            let is_new_file = self.last.as_deref() != Some(part.file);
            let file_bytes = if is_new_file { FILE_BYTES.saturating_add(part.file.len() as u64) } else { 0 };
            let line_bytes = if self.lines.contains_key(&id) { 0 } else { LINE_BYTES };
            let has_room = part.module != ModuleId(0)
                && part.file.len() <= bounds.name_bytes
                && (line_bytes == 0 || self.lines.len() < bounds.functions)
                && budget.take(file_bytes.saturating_add(line_bytes));
            match has_room {
                true => self.add(id, part.file, line.line),
                false => refused += 1,
            }
        }
        refused
    }

    pub(super) fn add(&mut self, id: FunctionId, file: &str, line: u32) {
        let file = match &self.last {
            Some(last) if **last == *file => Arc::clone(last),
            _ => file.into(),
        };
        self.last = Some(Arc::clone(&file));
        self.lines.insert(id, (file, line));
    }

    pub(super) fn get(&self, id: FunctionId) -> Option<(&str, u32)> {
        self.lines.get(&id).map(|(file, line)| (&**file, *line))
    }
}
