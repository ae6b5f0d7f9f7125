//! Where the real stacks are: found in the process's own map, with nothing but system calls.

use core::ops::Range;

use super::sys;

/// How large a guard is at most: a larger gap is something else that is not used yet.
const MOST_GUARD_BYTES: usize = 64 << 10;

/// What stays free below a main thread's stack when it has grown as far as it can.
const GAP_BYTES: usize = 1 << 20;

/// A mapping. Of the main thread's stack, which grows: up to where it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) low: usize,
    pub(super) high: usize,
    /// Whether it is the main thread's stack.
    pub(super) is_main: bool,
    /// Whether what lies right below it can not be read: it is a stack by itself.
    pub(super) is_guarded: bool,
}

/// The mapping that holds an address. `None` where it cannot be found.
pub(super) fn around(address: usize, scratch: &mut [u8]) -> Option<Mapped> {
    let mut found = None;
    // Of a process whose main thread has ended, `self` has none.
    let file = sys::open(b"/proc/thread-self/maps\0")?;
    let (mut line, mut below) = (Line::default(), Line::default());
    'file: loop {
        let count = sys::read(file, scratch);
        if count == 0 {
            break;
        }
        let mut at = 0;
        while at < count.min(scratch.len()) {
            if let Some(whole) = line.take(scratch[at]) {
                if whole.low <= address && address < whole.high {
                    found = Some(whole.bounds(&below));
                    break 'file;
                }
                below = whole;
            }
            at += 1;
        }
    }
    sys::close(file);
    found
}

/// What is passed through with an address where the process's map cannot be read.
pub(super) fn near(address: usize) -> Range<usize> {
    const BYTES: usize = 64 << 10;
    address.saturating_sub(BYTES)..address.saturating_add(BYTES)
}

/// A line of the map, byte by byte: `low-high permissions offset device inode name`.
#[derive(Clone, Copy, Default)]
struct Line {
    low: usize,
    high: usize,
    place: Place,
    is_readable: bool,
    is_main_stack: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Place {
    #[default]
    Low,
    High,
    Permissions,
    Rest,
    /// Behind an opening bracket: the kernel's own names are in brackets.
    Bracket,
}

impl Line {
    /// Takes the next byte, and tells the line if it is its last.
    fn take(&mut self, byte: u8) -> Option<Self> {
        if byte == b'\n' {
            return Some(core::mem::take(self));
        }
        match (self.place, byte) {
            (Place::Low, b'-') => self.place = Place::High,
            (Place::High, b' ') => self.place = Place::Permissions,
            (Place::Permissions, byte) => {
                self.is_readable = byte == b'r';
                self.place = Place::Rest;
            }
            (Place::Low, digit) => self.low = self.low << 4 | hex(digit),
            (Place::High, digit) => self.high = self.high << 4 | hex(digit),
            (Place::Rest, b'[') => self.place = Place::Bracket,
            (Place::Bracket, byte) => {
                self.is_main_stack = byte == b's';
                self.place = Place::Rest;
            }
            (Place::Rest, _) => {}
        }
        None
    }

    /// What it says, where `below` is the mapping before it.
    fn bounds(&self, below: &Self) -> Mapped {
        let low = if self.is_main_stack { self.low.min(below.high + GAP_BYTES) } else { self.low };
        let is_guard = !below.is_readable && below.high - below.low <= MOST_GUARD_BYTES;
        let is_guarded = below.high == self.low && is_guard;
        Mapped { low, high: self.high, is_main: self.is_main_stack, is_guarded }
    }
}

fn hex(digit: u8) -> usize {
    match digit {
        b'0'..=b'9' => (digit - b'0') as usize,
        b'a'..=b'f' => (digit - b'a') as usize + 10,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_is_on_the_stack_of_its_thread() {
        let check = || {
            let (local, mut scratch) = (0_u8, [0; 64]);
            let address = &raw const local as usize;
            let Mapped { low, high, .. } = around(address, &mut scratch).expect("it is mapped");
            assert!(low <= address && address < high);
            assert!(high - low >= 0x1_0000, "{low:x} {high:x}");
            low
        };
        let here = check();
        let there = std::thread::spawn(check).join().expect("the thread ends");
        assert_ne!(here, there, "two threads have two stacks");
    }

    #[test]
    fn lines_read_as_the_kernel_writes_them() {
        let mut line = Line::default();
        let text = b"7ffd1000-7ffd3000 rw-p 00000000 00:00 0   [stack]\n";
        let whole = text.iter().filter_map(|byte| line.take(*byte)).next().expect("a line");
        assert_eq!((whole.low, whole.high, whole.is_main_stack), (0x7FFD_1000, 0x7FFD_3000, true));
        let below = Line { high: 0x1000_0000, ..Line::default() };
        let main = Mapped { low: 0x1010_0000, high: 0x7FFD_3000, is_main: true, is_guarded: false };
        assert_eq!(whole.bounds(&below), main);
        let guard = Line { low: 0x7FFD_0000, high: 0x7FFD_1000, ..below };
        assert!(whole.bounds(&guard).is_guarded);
        assert!(!whole.bounds(&Line { is_readable: true, ..guard }).is_guarded);
        assert!(!whole.bounds(&Line { low: 0x7000_0000, ..guard }).is_guarded);
    }
}
