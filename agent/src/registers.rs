//! The registers of a stopped thread that have no place among the general ones: x87, SSE, AVX and whatever else the
//! processor has.

use std::io;

/// What ptrace is asked for, as C libraries have it.
#[cfg(not(target_env = "musl"))]
pub(crate) type Request = libc::c_uint;
#[cfg(target_env = "musl")]
pub(crate) type Request = libc::c_int;

/// The set of all of them, to the system.
const NT_X86_XSTATE: usize = 0x202;

/// More than any processor has.
const MOST_BYTES: usize = 64 << 10;

/// The extended registers of a thread, as the system hands them out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedRegisters(Vec<u8>);

impl ExtendedRegisters {
    /// Those of a thread that the caller has stopped with ptrace.
    pub fn read(thread: i32) -> io::Result<Self> {
        let mut bytes = vec![0; MOST_BYTES];
        let length = exchange(libc::PTRACE_GETREGSET, thread, &mut bytes)?;
        bytes.truncate(length);
        Ok(Self(bytes))
    }

    /// Which there are, as bits, and what they are, as the processor itself has them.
    pub fn saved(&self) -> (u64, &[u8]) {
        const TOLD_AT: usize = 464;
        let told = self.0.get(TOLD_AT..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
        (u64::from_le_bytes(told), &self.0)
    }

    /// Gives them back to such a thread.
    pub fn write(&mut self, thread: i32) -> io::Result<()> {
        exchange(libc::PTRACE_SETREGSET, thread, &mut self.0).map(drop)
    }
}

/// The signals that a thread blocks, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalMask(pub u64);

impl SignalMask {
    /// Those of a thread that the caller has stopped with ptrace.
    pub fn read(thread: i32) -> io::Result<Self> {
        const GET_MASK: Request = 0x420A;
        let mut mask = 0_u64;
        // SAFETY: the system writes eight bytes.
        let result = unsafe { libc::ptrace(GET_MASK, thread, size_of::<u64>(), &raw mut mask) };
        if result == 0 { Ok(Self(mask)) } else { Err(io::Error::last_os_error()) }
    }

    /// Sets those of such a thread.
    pub fn write(self, thread: i32) -> io::Result<()> {
        const SET_MASK: Request = 0x420B;
        // SAFETY: the system reads eight bytes.
        let result = unsafe { libc::ptrace(SET_MASK, thread, size_of::<u64>(), &raw const self.0) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Moves the registers from or to these bytes, and tells how many those are.
fn exchange(request: Request, thread: i32, bytes: &mut [u8]) -> io::Result<usize> {
    let mut place = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the system reads or writes no more than the bytes, and says in `place` how many.
    let result = unsafe { libc::ptrace(request, thread, NT_X86_XSTATE, &raw mut place) };
    if result == 0 { Ok(place.iov_len) } else { Err(io::Error::last_os_error()) }
}
