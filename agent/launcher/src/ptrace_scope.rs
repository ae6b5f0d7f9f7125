//! Whether the system lets one process look into another.

use std::fs;

/// Yama's setting: 0 own processes, 1 own children, 2 administrators only, 3 nobody.
pub(crate) fn scope() -> u32 {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// What can be done about a process that may not be attached to.
pub(crate) fn remedy() -> &'static str {
    match scope() {
        0 => "run this as root, or as the user whose process it is; in a container, allow SYS_PTRACE",
        1 => "only its own children may be traced: run this as root, or `sysctl kernel.yama.ptrace_scope=0`",
        2 => "only root may trace: run this as root, or `sysctl kernel.yama.ptrace_scope=0`",
        _ => "tracing is off until the machine is restarted with kernel.yama.ptrace_scope below 3, even for root",
    }
}
