//! Holding a program until it is hooked.
//!
//! The command starts the program with this library preloaded, and with two pipes. The constructor below says through
//! one that it is there, and waits at the other. Meanwhile Frida enters and hooks are put in place. Then the program
//! starts, with the environment that it would have had.

use core::ffi::c_char;

use super::sys;

/// The variable that says which pipes: the one to say that we are there, and the one to wait at.
const GATE: &[u8] = b"SPOOR_GATE=";

/// The variable that holds what `LD_PRELOAD` was, if it was set.
const PRELOAD_BEFORE: &[u8] = b"SPOOR_PRELOAD=";

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Called by the loader with what `main` will be called with.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(i32, *mut *mut c_char, *mut *mut c_char) = construct;

unsafe extern "C" fn construct(_count: i32, _arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    // SAFETY: the loader passes the environment: pointers to strings, the last one null, which may be changed.
    let Some(gate) = (unsafe { find(environment, GATE) }) else { return };
    // SAFETY: as above.
    let pipes = unsafe { pipes(*environment.add(gate)) };
    // SAFETY: as above.
    unsafe { restore(environment) };
    if let Some((ready, open)) = pipes {
        wait(ready, open);
    }
}

/// Says that we are there, and waits until the other pipe says something or has no writer any more.
fn wait(ready: usize, open: usize) {
    const WRITE: usize = 1;
    const EINTR: isize = -4;
    const SET_PTRACER: usize = 0x5961_6D61;
    // Frida's threads are made from this one, and must not take the program's signals.
    let signals = sys::block_signals();
    // Frida's descriptors are to be high, so that the program's own get the numbers they would have had.
    let occupied = Occupied::up_to(most_occupied(), open);
    let mut byte = [1_u8; 1];
    // SAFETY: they touch the byte and nothing else. Where a policy says that only ancestors may enter a process, the
    // first one lets Frida in; it is no ancestor. The last one lets nobody in again.
    unsafe {
        sys::call(sys::PRCTL, [SET_PTRACER, usize::MAX, 0, 0, 0, 0]);
        sys::call(WRITE, [ready, byte.as_ptr() as usize, 1, 0, 0, 0]);
        while sys::call(sys::READ, [open, byte.as_mut_ptr() as usize, 1, 0, 0, 0]) == EINTR {}
        sys::call(sys::PRCTL, [SET_PTRACER, 0, 0, 0, 0, 0]);
    }
    occupied.close();
    sys::close(ready);
    sys::close(open);
    sys::set_signals(signals);
}

/// Descriptors that were free, and are not for the time being.
struct Occupied([u64; Self::MOST / 64]);

impl Occupied {
    const MOST: usize = 256;

    /// Makes all descriptors below a number copies of this one, where they are free.
    fn up_to(below: usize, descriptor: usize) -> Self {
        const FCNTL: usize = 72;
        const DUPLICATE: usize = 0;
        let mut occupied = Self([0; Self::MOST / 64]);
        loop {
            // SAFETY: it touches no memory.
            let copy = unsafe { sys::call(FCNTL, [descriptor, DUPLICATE, 0, 0, 0, 0]) };
            let Ok(copy) = usize::try_from(copy) else { return occupied };
            if copy >= below {
                sys::close(copy);
                return occupied;
            }
            occupied.0[copy / 64] |= 1 << (copy % 64);
        }
    }

    fn close(&self) {
        let is_occupied = |descriptor: &usize| self.0[descriptor / 64] >> (descriptor % 64) & 1 == 1;
        (0..Self::MOST).filter(is_occupied).for_each(sys::close);
    }
}

/// Up to where descriptors are occupied: so that Frida still gets some where few are allowed.
fn most_occupied() -> usize {
    const GET_LIMITS: usize = 302;
    const DESCRIPTORS: usize = 7;
    let mut limits = [0_usize; 2];
    // SAFETY: it writes two words.
    unsafe { sys::call(GET_LIMITS, [0, DESCRIPTORS, 0, limits.as_mut_ptr() as usize, 0, 0]) };
    (limits[0] / 2).min(Occupied::MOST)
}

/// Makes the environment what it was before the command added to it.
///
/// # Safety
///
/// It is an environment whose strings may be changed.
unsafe fn restore(environment: *mut *mut c_char) {
    // SAFETY: promised by the caller, here and below; places are those that were just found.
    unsafe {
        if let Some(gate) = find(environment, GATE) {
            remove(environment, gate);
        }
        let Some(preload) = find(environment, PRELOAD) else { return };
        match find(environment, PRELOAD_BEFORE) {
            None => remove(environment, preload),
            Some(before) => {
                // `SPOOR_PRELOAD=x` has the room for `LD_PRELOAD=x` at its end.
                let string = (*environment.add(before)).add(PRELOAD_BEFORE.len() - PRELOAD.len());
                string.cast::<[u8; 2]>().write(*b"LD");
                *environment.add(preload) = string;
                remove(environment, before);
            }
        }
    }
}

/// The place of the variable that starts with this.
///
/// # Safety
///
/// It is an environment.
unsafe fn find(environment: *mut *mut c_char, start: &[u8]) -> Option<usize> {
    // SAFETY: pointers up to a null pointer, each to a string up to a zero byte; comparing stops at a difference.
    unsafe {
        let mut at = 0;
        while !(*environment.add(at)).is_null() {
            let string = (*environment.add(at)).cast::<u8>();
            let mut length = 0;
            while length < start.len() && *string.add(length) == start[length] {
                length += 1;
            }
            if length == start.len() {
                return Some(at);
            }
            at += 1;
        }
        None
    }
}

/// # Safety
///
/// It is an environment, and has a variable in this place.
unsafe fn remove(environment: *mut *mut c_char, mut at: usize) {
    // SAFETY: promised by the caller: there is a null pointer at the end, at which this stops.
    unsafe {
        while !(*environment.add(at)).is_null() {
            *environment.add(at) = *environment.add(at + 1);
            at += 1;
        }
    }
}

/// The two numbers in `SPOOR_GATE=3:4`.
///
/// # Safety
///
/// It is that variable.
unsafe fn pipes(variable: *mut c_char) -> Option<(usize, usize)> {
    let (mut numbers, mut place, mut at) = ([0_usize; 2], 0, GATE.len());
    loop {
        // SAFETY: up to the zero byte at its end.
        match unsafe { *variable.cast::<u8>().add(at) } {
            0 if place == 1 => return Some((numbers[0], numbers[1])),
            b':' if place == 0 => place = 1,
            digit @ b'0'..=b'9' => {
                numbers[place] = numbers[place].checked_mul(10)?.checked_add((digit - b'0') as usize)?;
            }
            _ => return None,
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString};

    use super::*;

    /// The environment that is left of one with these variables.
    fn restored(variables: &[&str]) -> Vec<String> {
        let strings: Vec<_> = variables.iter().map(|text| CString::new(*text).expect("no zeros").into_raw()).collect();
        let mut environment = strings.clone();
        environment.push(core::ptr::null_mut());
        // SAFETY: it is laid out as an environment.
        unsafe { restore(environment.as_mut_ptr()) };
        let left = environment.iter().take_while(|pointer| !pointer.is_null());
        // SAFETY: they point into the strings above.
        let left = left.map(|pointer| unsafe { CStr::from_ptr(*pointer) }.to_str().expect("UTF-8").to_string());
        let left = left.collect();
        // SAFETY: they came from the same type, and are as long as they were.
        strings.into_iter().for_each(|string| drop(unsafe { CString::from_raw(string) }));
        left
    }

    #[test]
    fn the_program_gets_the_environment_it_would_have_had() {
        let variables = ["A=1", "LD_PRELOAD=/lib/agent.so", "SPOOR_GATE=3:4", "B=2"];
        assert_eq!(restored(&variables), ["A=1", "B=2"]);
        let variables = ["SPOOR_GATE=3:4", "LD_PRELOAD=/lib/agent.so:own.so", "SPOOR_PRELOAD=own.so"];
        assert_eq!(restored(&variables), ["LD_PRELOAD=own.so"]);
        assert_eq!(restored(&[]), [""; 0]);
    }

    #[test]
    fn pipes_are_two_numbers() {
        let read = |text: &str| {
            let text = CString::new(text).expect("no zeros");
            // SAFETY: only read, up to its end.
            unsafe { pipes(text.as_ptr().cast_mut()) }
        };
        assert_eq!(read("SPOOR_GATE=13:4"), Some((13, 4)));
        for wrong in ["SPOOR_GATE=", "SPOOR_GATE=3", "SPOOR_GATE=3:4:5", "SPOOR_GATE=99999999999999999999:1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
