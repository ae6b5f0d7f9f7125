//! What functions are called.

use codec::{FunctionId, ModuleId, SessionNs};

use crate::Catalog;

/// What is known of functions when the engine asks. It may know more later.
pub trait Names {
    /// The name of a function, as the symbol table has it.
    fn function(&self, function: FunctionId) -> Option<&str>;

    /// The path of a module.
    fn module(&self, module: ModuleId) -> Option<&str>;

    /// The function that an address was in at that time.
    fn function_at(&self, address: u64, at: SessionNs) -> Option<FunctionId>;
}

/// Knows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

/// What a session's catalog knows of names.
impl Names for Catalog {
    fn function(&self, function: FunctionId) -> Option<&str> {
        // What stands for something else is not called that.
        self.function_name(function).filter(|_| function.module() != ModuleId(0))
    }

    fn module(&self, module: ModuleId) -> Option<&str> {
        self.module_path(module)
    }

    fn function_at(&self, address: u64, at: SessionNs) -> Option<FunctionId> {
        Self::function_at(self, address, at)
    }
}

impl Names for NoNames {
    fn function(&self, _: FunctionId) -> Option<&str> {
        None
    }

    fn module(&self, _: ModuleId) -> Option<&str> {
        None
    }

    fn function_at(&self, _: u64, _: SessionNs) -> Option<FunctionId> {
        None
    }
}
