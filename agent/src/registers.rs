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

/// Where the system tells which there are.
const TOLD_AT: usize = 464;

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

    /// Which there are, as bits, and what they are, as the processor itself has them. Without those that a program has to ask for.
    pub fn saved(&self) -> (u64, &[u8]) {
        /// Tiles.
        const ON_DEMAND: u64 = 0x6_0000;
        let told = self.0.get(TOLD_AT..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
        (u64::from_le_bytes(told) & !ON_DEMAND, &self.0)
    }

    /// The same as it is in the frame of a signal handler, with whose end the system gives them to a thread.
    pub fn in_signal_frame(&self) -> Vec<u8> {
        const MAGIC: u32 = 0x4650_5853;
        const MAGIC_BEHIND: u32 = 0x4650_5845;
        let (features, saved) = self.saved();
        let mut frame = saved[..extent(features).min(saved.len())].to_vec();
        let bytes = frame.len() as u32;
        let told = [MAGIC, bytes + 4, features as u32, (features >> 32) as u32, bytes];
        let told = told.iter().flat_map(|word| word.to_le_bytes());
        frame.iter_mut().skip(TOLD_AT).zip(told).for_each(|(place, byte)| *place = byte);
        frame.extend(MAGIC_BEHIND.to_le_bytes());
        frame
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

/// How many bytes the processor needs for these.
fn extent(features: u64) -> usize {
    /// Of those that every processor has, with what says which of the others are there.
    const ALWAYS: usize = 576;
    #[cfg(target_arch = "x86_64")]
    #[allow(unused_unsafe, reason = "newer compilers know that it is safe")]
    let end = |feature: u32| {
        // SAFETY: a processor with extended registers tells where they are.
        let told = unsafe { std::arch::x86_64::__cpuid_count(0xD, feature) };
        (told.ebx + told.eax) as usize
    };
    #[cfg(not(target_arch = "x86_64"))]
    let end = |_| ALWAYS;
    (2..63).filter(|feature| features & (1 << feature) != 0).map(end).fold(ALWAYS, usize::max)
}

/// Moves the registers from or to these bytes, and tells how many those are.
fn exchange(request: Request, thread: i32, bytes: &mut [u8]) -> io::Result<usize> {
    let mut place = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the system reads or writes no more than the bytes, and says in `place` how many.
    let result = unsafe { libc::ptrace(request, thread, NT_X86_XSTATE, &raw mut place) };
    if result == 0 { Ok(place.iov_len) } else { Err(io::Error::last_os_error()) }
}
