//! Whether the thread that empties the rings lives, for those who wait for it: one that is stopped gives no sign of life
//! either.

use std::sync::{Arc, atomic::Ordering};

use super::Arena;

/// Ties [`Control::reader`](super::Control::reader) to the life of the calling thread: it is a robust futex, whose word the
/// kernel changes when its owner ends, also by `SIGKILL`, and also where owner and reader are in different namespaces.
#[derive(Debug)]
pub struct Lifeline {
    list: Box<List>,
    arena: Arc<Arena>,
}

/// What the kernel walks when the thread ends: a ring of entries, each with its word at the same distance.
#[derive(Debug)]
#[repr(C)]
struct List {
    first: *const Entry,
    distance: libc::c_long,
    pending: *const Entry,
    only: Entry,
}

#[derive(Debug)]
#[repr(C)]
struct Entry {
    next: *const Entry,
}

/// What the kernel takes for the head: all before `only`.
const HEAD_BYTES: usize = std::mem::offset_of!(List, only);

impl Lifeline {
    /// For the calling thread, until this is dropped or the thread ends. Where the kernel refuses, threads that wait have
    /// only the signs of life.
    pub fn tie(arena: Arc<Arena>) -> Self {
        let mut list = Box::new(List {
            first: std::ptr::null(),
            distance: 0,
            pending: std::ptr::null(),
            only: Entry { next: std::ptr::null() },
        });
        let word = &arena.control().reader;
        let head: *const List = &raw const *list;
        list.first = &raw const list.only;
        list.only.next = head.cast();
        list.distance = word.as_ptr() as libc::c_long - &raw const list.only as libc::c_long;
        // SAFETY: the list stays where it is until `drop` takes it back. The C library's own list, which this replaces, is
        // for robust mutexes, and this thread has none.
        let set = unsafe { libc::syscall(libc::SYS_set_robust_list, head, HEAD_BYTES) };
        if set == 0 {
            // SAFETY: it touches no memory.
            let thread = unsafe { libc::syscall(libc::SYS_gettid) };
            word.store(thread as u32, Ordering::Relaxed);
        }
        Self { list, arena }
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        // Nothing is in the list any more: it ends where it begins.
        self.list.first = (&raw const *self.list).cast();
        // SAFETY: without a list the kernel walks none.
        unsafe { libc::syscall(libc::SYS_set_robust_list, std::ptr::null::<List>(), HEAD_BYTES) };
        // Whoever leaves like this has left nothing behind.
        self.arena.control().reader.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::{drain::fake::FakeTarget, shared::ReaderState};

    #[test]
    fn a_thread_is_alive_until_it_ends_whatever_becomes_of_its_lifeline() {
        let target = FakeTarget::new(1 << 16, 1);
        let state = || ReaderState::of(&target.arena.control().reader);
        assert_eq!(state(), ReaderState::None);
        for leaks in [true, false] {
            let arena = Arc::clone(&target.arena);
            let ((tied, is_tied), (end, is_to_end)) = (mpsc::channel(), mpsc::channel::<()>());
            let thread = thread::spawn(move || {
                let lifeline = Lifeline::tie(arena);
                tied.send(()).expect("the test waits");
                let _ = is_to_end.recv();
                // A killed thread drops nothing.
                if leaks {
                    std::mem::forget(lifeline);
                }
            });
            is_tied.recv().expect("it is tied");
            assert_eq!(state(), ReaderState::Alive);
            drop(end);
            thread.join().expect("it ends");
            // The kernel may tell of the end before it has walked the list.
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while state() == ReaderState::Alive && std::time::Instant::now() < deadline {
                thread::yield_now();
            }
            assert_eq!(state(), if leaks { ReaderState::Dead } else { ReaderState::None });
        }
    }
}
