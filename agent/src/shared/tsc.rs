//! The counter that events are stamped with.

/// What the counter shows.
#[inline(always)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86_64 processor has the instruction, and Linux lets programs use it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let counter: u64;
        // SAFETY: it reads a register that Linux lets programs read, and touches nothing else.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) counter, options(nomem, nostack)) };
        counter
    }
}
