//! A writer on a thread of its own: the system copies what was made, while this program makes what comes next.

use std::{
    io::{self, Write},
    mem,
    sync::mpsc::{self, Receiver, SyncSender},
    thread::{self, JoinHandle},
};

/// How many writes may wait.
const WAITING: usize = 4;

/// Takes bytes and has them written. Where that fails, a later write says so, or the end does.
#[derive(Debug)]
pub(super) struct Writer {
    state: State,
    /// Room that was used before.
    used: Receiver<Vec<u8>>,
}

#[derive(Debug)]
enum State {
    Writing(SyncSender<Vec<u8>>, JoinHandle<io::Result<()>>),
    /// Nothing more is written, for this reason.
    Failed(io::ErrorKind, Option<i32>),
}

impl Writer {
    /// One that writes to `out`.
    pub(super) fn start(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let (to, taken) = mpsc::sync_channel::<Vec<u8>>(WAITING);
        let (done, used) = mpsc::channel();
        let write = move || {
            for bytes in taken {
                out.write_all(&bytes)?;
                // At the end nobody needs the room again.
                let _ = done.send(bytes);
            }
            out.flush()
        };
        let thread = thread::Builder::new().name("writing".into()).spawn(write)?;
        Ok(Self { state: State::Writing(to, thread), used })
    }

    /// Waits until all is written.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> io::Result<()> {
        let state = mem::replace(&mut self.state, State::Failed(io::ErrorKind::BrokenPipe, None));
        let result = match state {
            State::Writing(to, thread) => {
                drop(to);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            State::Failed(_, Some(code)) => Err(io::Error::from_raw_os_error(code)),
            State::Failed(kind, None) => Err(kind.into()),
        };
        if let Err(error) = &result {
            self.state = State::Failed(error.kind(), error.raw_os_error());
        }
        result
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let State::Writing(to, _) = &self.state {
            let mut room = self.used.try_recv().unwrap_or_default();
            room.clear();
            room.extend_from_slice(bytes);
            if to.send(room).is_ok() {
                return Ok(bytes.len());
            }
        }
        self.stop().and(Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Only the end waits for what was not written yet.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    /// Takes so many bytes.
    struct Disk(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut there = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if there.len() + bytes.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            there.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_is_written_in_order() {
        let there = Arc::default();
        let mut writer = Writer::start(Disk(Arc::clone(&there), usize::MAX)).expect("a thread");
        let all: Vec<u8> = (0..100_000).map(|number| (number % 251) as u8).collect();
        all.chunks(777).for_each(|part| writer.write_all(part).expect("room"));
        writer.finish().expect("room");
        assert!(*there.lock().expect("nobody panicked") == all);
    }

    #[test]
    fn a_failure_is_told_by_every_later_write_and_at_the_end() {
        let mut writer = Writer::start(Disk(Arc::default(), 1000)).expect("a thread");
        let failed = (0..1000).filter(|_| writer.write_all(&[0; 100]).is_err()).count();
        assert!((1000 - 10 - 2 * WAITING..=990).contains(&failed), "{failed}");
        let error = writer.finish().expect_err("there was no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_failure_of_the_last_write_is_told_at_the_end() {
        let mut writer = Writer::start(Disk(Arc::default(), 10)).expect("a thread");
        writer.write_all(&[0; 100]).expect("it waits");
        assert!(writer.finish().is_err());
    }
}
