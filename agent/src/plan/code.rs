//! The executable sections of an image, and sets of addresses in them.

use std::ops::Range;

/// An executable section with bytes in the file.
#[derive(Debug, Clone)]
pub(super) struct Section {
    /// Its link-time address.
    pub(super) address: u64,
    /// Where in the file its bytes are.
    pub(super) file: Range<usize>,
    /// Whether it holds linkage stubs only.
    pub(super) is_plt: bool,
    /// How many bytes of code the sections before it hold.
    first: usize,
}

impl Section {
    pub(super) fn new(address: u64, file: Range<usize>, is_plt: bool) -> Self {
        Self { address, file, is_plt, first: 0 }
    }

    /// The address behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.address + self.file.len() as u64
    }
}

/// All executable sections, by address.
#[derive(Debug, Clone, Default)]
pub(super) struct Code {
    sections: Vec<Section>,
}

impl Code {
    /// Keeps the sections that can be true: those that do not overlap, and no more bytes of them than the file has. So
    /// what is derived from them is bounded by the size of the file, whatever its headers claim.
    pub(super) fn new(mut sections: Vec<Section>, file_size: usize) -> Self {
        sections.retain(|section| section.address.checked_add(section.file.len() as u64).is_some());
        sections.sort_by_key(|section| section.address);
        let mut kept: Vec<Section> = Vec::new();
        let mut total = 0;
        for mut section in sections {
            let overlaps = kept.last().is_some_and(|last| section.address < last.end());
            if section.file.is_empty() || overlaps || section.file.len() > file_size - total {
                continue;
            }
            section.first = total;
            total += section.file.len();
            kept.push(section);
        }
        Self { sections: kept }
    }

    /// The sections.
    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The section that holds an address.
    pub(super) fn section(&self, address: u64) -> Option<&Section> {
        let behind = self.sections.partition_point(|section| section.address <= address);
        self.sections.get(behind.checked_sub(1)?).filter(|section| address < section.end())
    }

    /// How many bytes there are.
    fn len(&self) -> usize {
        self.sections.last().map_or(0, |last| last.first + last.file.len())
    }
}

/// A set of addresses in code: one bit each, because a big program has millions of branches.
#[derive(Debug)]
pub(super) struct Marks<'a> {
    code: &'a Code,
    bits: Vec<u64>,
}

impl<'a> Marks<'a> {
    /// None yet.
    pub(super) fn new(code: &'a Code) -> Self {
        Self { code, bits: vec![0; code.len().div_ceil(64)] }
    }

    /// Marks an address, if it is in code.
    pub(super) fn set(&mut self, address: u64) {
        if let Some(section) = self.code.section(address) {
            self.set_near(section, address);
        }
    }

    /// Marks what others have marked, of the same code.
    pub(super) fn add(&mut self, others: &Self) {
        self.bits.iter_mut().zip(&others.bits).for_each(|(own, other)| *own |= other);
    }

    /// Marks an address, if it is in code. `near` is the section to try first.
    #[inline]
    pub(super) fn set_near(&mut self, near: &Section, address: u64) {
        let section = if near.address <= address && address < near.end() {
            near
        } else if let Some(section) = self.code.section(address) {
            section
        } else {
            return;
        };
        let bit = section.first + (address - section.address) as usize;
        self.bits[bit / 64] |= 1 << (bit % 64);
    }

    /// The first marked address of a range in a section.
    #[inline]
    pub(super) fn first(&self, section: &Section, range: Range<u64>) -> Option<u64> {
        let end = range.end.min(section.end());
        (range.start.max(section.address)..end).find(|&address| {
            let bit = section.first + (address - section.address) as usize;
            self.bits[bit / 64] >> (bit % 64) & 1 != 0
        })
    }

    /// Whether any address of a range in a section is marked.
    #[inline]
    pub(super) fn any(&self, section: &Section, range: Range<u64>) -> bool {
        self.first(section, range).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_that_cannot_be_true_are_dropped() {
        let code = Code::new(
            vec![
                Section::new(0x3000, 0..0x100, false),
                Section::new(0x1000, 0..0x100, false),
                Section::new(0x10ff, 0..0x100, false),
                Section::new(u64::MAX, 0..0x100, false),
                Section::new(0x4000, 0..0x101, false),
            ],
            0x300,
        );
        let kept: Vec<_> = code.sections().iter().map(|section| section.address).collect();
        assert_eq!(kept, [0x1000, 0x3000]);
        assert!(code.section(0xfff).is_none());
        assert_eq!(code.section(0x10ff).map(|section| section.address), Some(0x1000));
        assert!(code.section(0x1100).is_none());
    }

    #[test]
    fn marks_are_kept_apart_by_section() {
        let code = Code::new(vec![Section::new(0x1000, 0..3, false), Section::new(0x2000, 0..100, false)], 200);
        let [a, b] = code.sections() else { panic!("two sections") };
        let mut marks = Marks::new(&code);
        for address in [0xfff, 0x1002, 0x1003, 0x2000, 0x2063, 0x2064] {
            marks.set_near(a, address);
        }
        assert_eq!(marks.first(a, 0..u64::MAX), Some(0x1002));
        assert_eq!(marks.first(b, 0x2001..0x3000), Some(0x2063));
        assert!(!marks.any(b, 0x2001..0x2063));
    }
}
