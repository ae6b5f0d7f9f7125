//! The target's memory, seen from outside.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
};

/// The target's memory. Writing to it asks for no permission of the page: code stays code.
#[derive(Debug)]
pub(super) struct TargetMemory(File);

impl TargetMemory {
    pub(super) fn open(pid: i32) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).map(Self)
    }

    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, address)
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}

/// The memory of one module, by link-time addresses.
#[derive(Debug)]
pub(super) struct ModuleMemory<'a> {
    pub(super) memory: &'a TargetMemory,
    /// What the loader added to them.
    pub(super) bias: u64,
}

impl agent::plan::Memory for ModuleMemory<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.memory.read(address.wrapping_add(self.bias), buffer).is_ok()
    }
}
