//! The unwind entries of an image: where functions begin and end, and what their stack looks like.

use std::cmp::Reverse;

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    LittleEndian, UnwindSection,
};

use super::image::Image;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// An unwind entry is evaluated after the common entry it refers to. Real ones have some twenty bytes; one that is
/// much longer is there to make many entries slow.
const MAX_COMMON: usize = 512;

/// The unwind entries of an image.
#[derive(Debug)]
pub(super) struct Frames<'a> {
    section: EhFrame<Bytes<'a>>,
    bases: BaseAddresses,
    list: Vec<Frame>,
}

/// The range of one unwind entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// Its first address.
    pub(super) start: u64,
    /// The address behind it.
    pub(super) end: u64,
    offset: usize,
}

impl<'a> Frames<'a> {
    /// Lists them up to the first that cannot be read: by address, within code, none overlapping another.
    pub(super) fn of(image: &'a Image) -> Self {
        let (address, bytes) = image.eh_frame().unwrap_or_default();
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let mut frames = Self { section, bases: BaseAddresses::default().set_eh_frame(address), list: Vec::new() };
        frames.fill(image);
        frames
    }

    fn fill(&mut self, image: &Image) {
        let mut list = Vec::new();
        let mut entries = self.section.entries(&self.bases);
        let mut last: Option<CommonInformationEntry<Bytes<'a>>> = None;
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let mut known = last.take().filter(|common| common.offset() == partial.cie_offset().0);
            let parsed = partial.parse(|section, bases, offset| match known.take() {
                Some(common) => Ok(common),
                None => section.cie_from_offset(bases, offset),
            });
            let Ok(entry) = parsed else { continue };
            let (start, len) = (entry.initial_address(), entry.len());
            if entry.cie().entry_len() <= MAX_COMMON
                && len > 0
                && let Some(code) = image.code().section(start)
                && len <= code.end() - start
            {
                list.push(Frame { start, end: start + len, offset: entry.offset() });
            }
            last = Some(entry.cie().clone());
        }
        list.sort_unstable_by_key(|frame| (frame.start, Reverse(frame.end), frame.offset));
        let mut end = 0;
        list.retain(|frame| {
            let apart = frame.start >= end;
            end = if apart { frame.end } else { end };
            apart
        });
        self.list = list;
    }

    /// The ranges, by address.
    pub(super) fn list(&self) -> &[Frame] {
        &self.list
    }

    /// The unwind entry of a range.
    pub(super) fn entry(&self, frame: &Frame) -> gimli::Result<FrameDescriptionEntry<Bytes<'a>>> {
        self.section.fde_from_offset(&self.bases, EhFrameOffset(frame.offset), EhFrame::cie_from_offset)
    }

    /// The section that they come from.
    pub(super) fn section(&self) -> &EhFrame<Bytes<'a>> {
        &self.section
    }

    /// The addresses that they are relative to.
    pub(super) fn bases(&self) -> &BaseAddresses {
        &self.bases
    }
}
