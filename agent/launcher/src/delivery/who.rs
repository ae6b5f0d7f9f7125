//! Who is traced, as the collector is told.

use std::{
    fs::{self, File},
    io::Read,
};

use agent::{drain::Clock, ship::Who};
use anyhow::{Context, Result};
use codec::{Arch, Os, SessionId};

/// What is known of a process.
pub(super) fn who(pid: i32, clock: &Clock) -> Result<Who> {
    let mut session = [0; 16];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut session));
    random.context("cannot read /dev/urandom")?;
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments = arguments.strip_suffix(b"\0").unwrap_or(&arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Who {
        session: SessionId(session),
        arch: if cfg!(target_arch = "aarch64") { Arch::Arm64 } else { Arch::X86_64 },
        os: Os::Linux,
        pid: pid.unsigned_abs(),
        agent_version: env!("CARGO_PKG_VERSION").into(),
        host: fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim_end().into(),
        executable: executable.to_string_lossy().into_owned(),
        arguments: arguments.split(|byte| *byte == 0).map(text).collect(),
        epoch_unix_ns: clock.epoch_unix_ns(),
        clock_zero_ns: clock.zero_ns(),
    })
}
