//! The threads that the system says there are.

use std::{fs, io::ErrorKind, time::Duration};

/// Tells which threads exist. A trait, so that tests need no process.
pub trait Tasks: Send {
    /// Puts the ids of the threads that exist into `ids`. Whether that could be found out: where it could not, `ids`
    /// means nothing. A process that is gone has no threads.
    ///
    /// Linux may leave out a thread while others end, so that one that is not there has to be [asked
    /// for](Self::is_gone).
    fn list(&mut self, ids: &mut Vec<u32>) -> bool;

    /// Whether a thread is certain not to exist.
    fn is_gone(&mut self, id: u32) -> bool;

    /// Whether the process is about to end, and all these threads that it still has with it.
    fn is_ending(&mut self, ids: &[u32]) -> bool;

    /// How much processor time all of them have taken, those too that have ended, if it can be found out.
    fn processor_time(&mut self) -> Option<Duration> {
        None
    }

    /// The name of a thread, if it can be found out.
    fn name(&mut self, id: u32) -> Option<Vec<u8>>;
}

/// The threads of a process, as `/proc` shows them.
#[derive(Debug, Clone, Copy)]
pub struct ProcTasks {
    pid: i32,
}

impl ProcTasks {
    /// Those of this process.
    pub fn new(pid: i32) -> Self {
        Self { pid }
    }
}

impl Tasks for ProcTasks {
    fn list(&mut self, ids: &mut Vec<u32>) -> bool {
        ids.clear();
        match fs::read_dir(format!("/proc/{}/task", self.pid)) {
            Ok(entries) => {
                ids.extend(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()));
                true
            }
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    fn is_gone(&mut self, id: u32) -> bool {
        // One that dies while it is asked for is told with another error, and with this one the next time.
        fs::metadata(format!("/proc/{}/task/{id}", self.pid)).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    fn is_ending(&mut self, ids: &[u32]) -> bool {
        ids.iter().all(|id| self.is_exiting(*id))
    }

    fn processor_time(&mut self) -> Option<Duration> {
        /// In the number of a clock that is a process's: what it has been scheduled for.
        const SCHEDULED: libc::clockid_t = 2;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it fills in the time.
        let told = unsafe { libc::clock_gettime((!self.pid << 3) | SCHEDULED, &raw mut time) };
        (told == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
    }

    fn name(&mut self, id: u32) -> Option<Vec<u8>> {
        let mut name = fs::read(format!("/proc/{}/task/{id}/comm", self.pid)).ok()?;
        name.pop_if(|last| *last == b'\n');
        Some(name)
    }
}

impl ProcTasks {
    /// Whether a thread is about to end, or was told to.
    fn is_exiting(self, id: u32) -> bool {
        const EXITING: u32 = 4;
        const KILLED: u64 = 1 << 8;
        let read = |file: &str| fs::read_to_string(format!("/proc/{}/task/{id}/{file}", self.pid));
        let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else { return true };
        let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let is_dead = matches!(fields.next(), Some("Z" | "X"));
        let flags = fields.nth(5).and_then(|flags| flags.parse::<u32>().ok()).unwrap_or(0);
        let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
        let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        is_dead || flags & EXITING != 0 || pending & KILLED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_this_process_is_found_by_its_name() {
        let (started, wait) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let thread = std::thread::Builder::new().name("a thread".into()).spawn(move || {
            started.0.send(rustix::thread::gettid()).expect("somebody waits");
            let _ = wait.1.recv();
        });
        let id = started.1.recv().expect("it runs").as_raw_nonzero().get() as u32;
        let mut tasks = ProcTasks::new(std::process::id() as i32);
        let mut ids = Vec::new();
        assert!(tasks.list(&mut ids) && ids.contains(&id) && ids.contains(&std::process::id()));
        assert!(!tasks.is_gone(id) && !tasks.is_ending(&ids));
        assert_eq!(tasks.name(id).as_deref(), Some(&b"a thread"[..]));
        drop(wait.0);
        thread.expect("a thread").join().expect("it ends");
        // The system may take a moment to forget it.
        while !tasks.is_gone(id) {
            std::thread::yield_now();
        }
        assert!(tasks.list(&mut ids) && !ids.contains(&id));
        assert_eq!(tasks.name(id), None);
    }

    #[test]
    fn a_process_that_is_gone_has_no_threads() {
        let mut ids = vec![1];
        assert!(ProcTasks::new(i32::MAX).list(&mut ids));
        assert!(ids.is_empty() && ProcTasks::new(i32::MAX).is_gone(1));
    }
}
