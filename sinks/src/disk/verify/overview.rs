//! Whether the overview is the one that was written.

use std::io::{self, Read};

use codec::atf::FileChecksum;
use storage::{File, Reader};

use super::{super::spans::OVERVIEW, Verified, checksum};

/// The last bytes of an overview: where its directory is, how long that is, checksums of that and of what comes before it, and
/// what tells that it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverviewTrailer {
    /// Where the directory begins.
    pub at: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// Its CRC-32.
    pub checksum: u32,
    /// The CRC-32 of all that comes before it.
    pub before: u32,
}

const MAGIC: [u8; 8] = *b"SPOORov1";

impl OverviewTrailer {
    /// How many bytes it has.
    pub const BYTES: usize = 32;

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let checksums = u64::from(self.checksum) | u64::from(self.before) << 32;
        let mut bytes = [0; Self::BYTES];
        let fields = [self.at.to_le_bytes(), self.bytes.to_le_bytes(), checksums.to_le_bytes(), MAGIC];
        bytes.as_chunks_mut().0.iter_mut().zip(fields).for_each(|(to, field)| *to = field);
        bytes
    }

    /// The trailer of a file of this length, if these are its last bytes.
    pub fn read(bytes: &[u8; Self::BYTES], length: u64) -> Option<Self> {
        let mut fields = bytes.as_chunks().0.iter();
        let mut next = || fields.next().copied().unwrap_or_default();
        let (at, bytes, checksums) =
            (u64::from_le_bytes(next()), u64::from_le_bytes(next()), u64::from_le_bytes(next()));
        let is_one = next() == MAGIC && at.checked_add(bytes)?.checked_add(Self::BYTES as u64)? == length;
        is_one.then_some(Self { at, bytes, checksum: checksums as u32, before: (checksums >> 32) as u32 })
    }
}

/// Checks the overview against itself. One that is missing is made again by whoever looks.
pub(super) fn verify_overview(found: &mut Verified) -> io::Result<()> {
    let file = match storage::open(&found.dir.join(OVERVIEW)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    if !is_whole(&file)? {
        found.problems.push(format!("{OVERVIEW}: it was changed: remove it, and the viewer makes it again"));
    }
    Ok(())
}

fn is_whole(file: &File) -> io::Result<bool> {
    let length = file.len()?;
    let Some(end) = length.checked_sub(OverviewTrailer::BYTES as u64) else { return Ok(false) };
    let mut last = [0; OverviewTrailer::BYTES];
    file.read_exact_at(&mut last, end)?;
    let Some(trailer) = OverviewTrailer::read(&last, length) else { return Ok(false) };
    let (_, before) = checksum(file.reader().take(trailer.at))?;
    let (_, directory) = checksum(Reader::new(file, trailer.at).take(trailer.bytes))?;
    let is = |found: &FileChecksum, expected: u32| found.to_string() == format!("{expected:08x}");
    Ok(is(&before, trailer.before) && is(&directory, trailer.checksum))
}
