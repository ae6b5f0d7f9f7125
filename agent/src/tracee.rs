//! Starting a program so that it can be stopped at its first instruction, and what a stopped thread is given when it goes on.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
};

use crate::registers::Request;

/// A process that waits to become the program.
#[derive(Debug)]
pub struct Waiting {
    /// Its id.
    pub pid: i32,
    go: File,
    failure: File,
}

impl Waiting {
    /// Makes a process that waits. It has the descriptors, the signal mask and the folder of this one.
    pub fn start(path: &CStr, arguments: &[CString], environment: &[CString]) -> io::Result<Self> {
        let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
        };
        let (arguments, environment) = (pointers(arguments), pointers(environment));
        let (wait, go) = pipe()?;
        let (failure, tell_failure) = pipe()?;
        // SAFETY: the child makes system calls, and nothing else, until it is another program.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: as above. The descriptors are its own, and the strings end with zeros, the lists with null.
                unsafe {
                    libc::close(go.as_raw_fd());
                    let mut byte = 0_u8;
                    if libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) == 1 {
                        // Rust's programs ignore it, and what is ignored is inherited.
                        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                        libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                        let error = *libc::__errno_location();
                        libc::write(tell_failure.as_raw_fd(), (&raw const error).cast(), 4);
                    }
                    libc::_exit(127)
                }
            }
            pid => Ok(Self { pid, go: go.into(), failure: failure.into() }),
        }
    }

    /// Has it become the program.
    pub fn go(&mut self) -> io::Result<()> {
        self.go.write_all(b"g")
    }

    /// Why it could not become the program. To be asked when it has ended without.
    pub fn failure(mut self) -> io::Error {
        let mut error = [0; 4];
        match self.failure.read_exact(&mut error) {
            Ok(()) => io::Error::from_raw_os_error(i32::from_ne_bytes(error)),
            Err(_) => io::Error::other("it ended before it began"),
        }
    }
}

/// Has a thread go on that the caller has stopped, and gives it a signal; 0 is none.
pub fn go_on(thread: i32, signal: i32) -> io::Result<()> {
    resume(libc::PTRACE_CONT, thread, signal)
}

/// Lets go of such a thread, which goes on, and gives it a signal; 0 is none.
pub fn let_go(thread: i32, signal: i32) -> io::Result<()> {
    resume(libc::PTRACE_DETACH, thread, signal)
}

fn resume(request: Request, thread: i32, signal: i32) -> io::Result<()> {
    // SAFETY: no memory of this process is read or written.
    match unsafe { libc::ptrace(request, thread, 0_usize, signal as usize) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: it writes two descriptors, which are ours then.
    unsafe {
        match libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) {
            0 => Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
