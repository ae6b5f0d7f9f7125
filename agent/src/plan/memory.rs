//! The bytes of a module as they are loaded.

/// The bytes of one module in the memory of a process.
pub trait Memory {
    /// Fills `buffer` with the bytes at a link-time address; the caller of the planner adds where the module was
    /// loaded. False if they cannot be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool;
}
