//! Tables that a `switch` jumps through.

use super::{code::Marks, frames::Frame, image::Image};

/// The jump tables of an image, found by how compilers use them: code computes an address of data and jumps to where a
/// register points, or the jump itself names the table.
///
/// Not every address is one of a table. But data that is none soon has an entry that does not lead into code.
#[derive(Debug, Default)]
pub(super) struct Tables {
    all: Vec<Table>,
    /// What the function at hand computes.
    computed: Vec<u64>,
    /// What its jumps name.
    named: Vec<u64>,
    has_jump: bool,
}

/// What may be a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Table {
    address: u64,
    frame: usize,
    /// Its entries are distances from its start, otherwise addresses.
    is_relative: bool,
}

impl Tables {
    /// The code computes this address.
    #[inline]
    pub(super) fn computed(&mut self, address: u64) {
        self.computed.push(address);
    }

    /// The code jumps to where a register points.
    pub(super) fn jumped(&mut self) {
        self.has_jump = true;
    }

    /// The code jumps to an entry of a table at this address.
    pub(super) fn named(&mut self, address: u64) {
        self.named.push(address);
    }

    /// Adds what was found in other code.
    pub(super) fn add(&mut self, other: Self) {
        self.all.extend(other.all);
    }

    /// Everything since the last time was code of this frame, or of none.
    pub(super) fn finish(&mut self, frame: Option<usize>) {
        if let Some(frame) = frame {
            let table = |is_relative| move |&address: &u64| Table { address, frame, is_relative };
            if self.has_jump {
                self.all.extend(self.computed.iter().map(table(true)));
            }
            self.all.extend(self.named.iter().map(table(false)));
        }
        self.computed.clear();
        self.named.clear();
        self.has_jump = false;
    }

    /// Marks where the tables lead: into the functions that use them, and to the starts of parts of those.
    /// `looped` are those in the functions that use them.
    pub(super) fn mark(
        mut self,
        image: &Image,
        frames: &[Frame],
        starts: &Marks<'_>,
        targets: &mut Marks<'_>,
        looped: &mut Marks<'_>,
    ) {
        self.all.sort_unstable();
        self.all.dedup();
        // One table is read for each function that names it, but in all not more than could be different.
        let mut budget = image.data().len() / 4;
        // Nothing says where a table ends, but where another begins it has ended.
        let mut end = u64::MAX;
        for same in self.all.chunk_by(|a, b| a.address == b.address).rev() {
            for table in same {
                let frame = &frames[table.frame];
                for target in table.targets(image, end) {
                    let Some(section) = image.code().section(target) else { break };
                    if budget == 0 {
                        return;
                    }
                    budget -= 1;
                    let is_within = (frame.start..frame.end).contains(&target);
                    if is_within {
                        looped.set_near(section, target);
                    }
                    if is_within || starts.any(section, target..target + 1) {
                        targets.set_near(section, target);
                    }
                }
            }
            end = same[0].address;
        }
    }
}

impl Table {
    /// Where the entries lead if it is a table that ends before `end`.
    fn targets(self, image: &Image, end: u64) -> impl Iterator<Item = u64> {
        let bytes = image.loaded(self.address);
        let len = usize::try_from(end - self.address).unwrap_or(usize::MAX);
        let size = if self.is_relative { 4 } else { 8 };
        bytes[..bytes.len().min(len)].chunks_exact(size).map(move |entry| {
            let mut number = [0; 8];
            number[..size].copy_from_slice(entry);
            let number = u64::from_le_bytes(number);
            if self.is_relative { self.address.wrapping_add_signed(i64::from(number as i32)) } else { number }
        })
    }
}
