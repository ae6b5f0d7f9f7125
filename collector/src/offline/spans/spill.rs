//! Sorting more lines than fit into memory.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    env,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read, Write},
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};

/// Lines on their way into an order. With a limit only so many are kept; without one, what has no room in memory goes to
/// temporary files, sorted.
pub(super) struct Sorter {
    limit: Option<usize>,
    /// With a limit, the one that comes last is on top.
    kept: BinaryHeap<Line>,
    lines: Vec<Line>,
    bytes: usize,
    most_bytes: usize,
    runs: Vec<Run>,
}

/// A line and what it is sorted by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    key: Box<[u8]>,
    text: Box<[u8]>,
}

/// What the lines in memory may take.
const MEMORY_BYTES: usize = 256 << 20;
/// What a line is taken to need beside its bytes.
const LINE_BYTES: usize = 64;
/// How many files there may be before they are merged into one.
const MOST_RUNS: usize = 64;

impl Sorter {
    pub(super) fn new(limit: Option<usize>) -> Self {
        Self::with_memory(limit, MEMORY_BYTES)
    }

    fn with_memory(limit: Option<usize>, most_bytes: usize) -> Self {
        Self { limit, kept: BinaryHeap::new(), lines: Vec::new(), bytes: 0, most_bytes, runs: Vec::new() }
    }

    /// Whether a line with this key would be kept.
    pub(super) fn wants(&self, key: &[u8]) -> bool {
        match self.limit {
            Some(limit) => self.kept.len() < limit || self.kept.peek().is_some_and(|last| key < &*last.key),
            None => true,
        }
    }

    pub(super) fn add(&mut self, key: &[u8], text: &[u8]) -> Result<()> {
        let line = Line { key: key.into(), text: text.into() };
        match self.limit {
            Some(limit) => {
                self.kept.push(line);
                if self.kept.len() > limit {
                    self.kept.pop();
                }
                // Many are wanted: then the others go to files, and the limit counts at last.
                self.bytes = self.bytes.saturating_add(key.len() + text.len() + LINE_BYTES);
                if self.bytes > self.most_bytes {
                    self.bytes = self.kept.iter().map(Line::bytes).sum();
                }
                if self.bytes > self.most_bytes {
                    self.lines = std::mem::take(&mut self.kept).into_vec();
                    self.spill()?;
                }
            }
            None => {
                self.bytes = self.bytes.saturating_add(line.bytes());
                self.lines.push(line);
                if self.bytes > self.most_bytes {
                    self.spill()?;
                }
            }
        }
        Ok(())
    }

    /// Writes all lines in order.
    pub(super) fn write(mut self, out: &mut impl Write) -> Result<()> {
        self.lines.extend(std::mem::take(&mut self.kept));
        let limit = self.limit.unwrap_or(usize::MAX);
        if self.runs.is_empty() {
            self.lines.sort_unstable();
            for line in self.lines.iter().take(limit) {
                out.write_all(&line.text)?;
            }
            return Ok(());
        }
        self.spill()?;
        let mut left = limit;
        merge(&self.runs, |line| {
            if left > 0 {
                left -= 1;
                out.write_all(&line.text)?;
            }
            Ok(left > 0)
        })
    }

    fn spill(&mut self) -> Result<()> {
        self.lines.sort_unstable();
        let run = Run::write(|to| self.lines.iter().try_for_each(|line| line.write(to)))?;
        (self.lines, self.bytes) = (Vec::new(), 0);
        self.runs.push(run);
        if self.runs.len() >= MOST_RUNS {
            let runs = std::mem::take(&mut self.runs);
            let together = Run::write(|to| merge(&runs, |line| line.write(to).map(|()| true)))?;
            self.runs.push(together);
        }
        Ok(())
    }
}

impl Line {
    fn bytes(&self) -> usize {
        self.key.len() + self.text.len() + LINE_BYTES
    }

    fn write(&self, to: &mut dyn Write) -> Result<()> {
        for bytes in [&self.key, &self.text] {
            to.write_all(&u32::try_from(bytes.len())?.to_le_bytes())?;
            to.write_all(bytes)?;
        }
        Ok(())
    }

    fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut length = [0; 4];
        match from.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        let mut key = vec![0; u32::from_le_bytes(length) as usize];
        from.read_exact(&mut key)?;
        from.read_exact(&mut length)?;
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        from.read_exact(&mut text)?;
        Ok(Some(Self { key: key.into(), text: text.into() }))
    }
}

/// A temporary file of sorted lines. It is removed when this is dropped.
struct Run(PathBuf);

impl Run {
    fn write(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (dir, number) = (env::temp_dir(), NEXT.fetch_add(1, Ordering::Relaxed));
        let run = Self(dir.join(format!("spoor-spans-{}-{number}", std::process::id())));
        let what = || format!("cannot sort in {} (TMPDIR says where)", dir.display());
        // Whatever lies there is not ours: nothing is followed and nothing is overwritten.
        let file = OpenOptions::new().write(true).create_new(true).open(&run.0).with_context(what)?;
        let mut file = BufWriter::with_capacity(256 << 10, file);
        write(&mut file).and_then(|()| Ok(file.flush()?)).with_context(what)?;
        Ok(run)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Hands over the lines of all files in order, until that is enough.
fn merge(runs: &[Run], mut take: impl FnMut(&Line) -> Result<bool>) -> Result<()> {
    let open = |run: &Run| File::open(&run.0).map(|file| BufReader::with_capacity(64 << 10, file));
    let what = || "cannot read what was sorted";
    let mut files = runs.iter().map(open).collect::<io::Result<Vec<_>>>().with_context(what)?;
    let mut heap = BinaryHeap::new();
    for (index, file) in files.iter_mut().enumerate() {
        heap.extend(Line::read(file).with_context(what)?.map(|line| Reverse((line, index))));
    }
    while let Some(Reverse((line, index))) = heap.pop() {
        if !take(&line)? {
            break;
        }
        if let Some(file) = files.get_mut(index) {
            heap.extend(Line::read(file).with_context(what)?.map(|line| Reverse((line, index))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(limit: Option<usize>, memory: usize, numbers: u32) -> (String, usize) {
        let mut sorter = Sorter::with_memory(limit, memory);
        for number in 0..numbers {
            // Each once, in no order.
            let number = number.wrapping_mul(7919) % numbers;
            if sorter.wants(&number.to_be_bytes()) {
                sorter.add(&number.to_be_bytes(), format!("{number}\n").as_bytes()).expect("there is room");
            }
        }
        let runs = sorter.runs.iter().map(|run| run.0.clone()).collect::<Vec<_>>();
        let mut out = Vec::new();
        sorter.write(&mut out).expect("written");
        assert!(!runs.iter().any(|run| run.exists()), "nothing is left behind");
        (String::from_utf8(out).expect("text"), runs.len())
    }

    #[test]
    fn what_has_no_room_in_memory_is_sorted_all_the_same() {
        let expected = |count: u32| (0..count).map(|number| format!("{number}\n")).collect::<String>();
        let (in_memory, runs) = sorted(None, 1 << 20, 10_000);
        assert_eq!((in_memory == expected(10_000), runs), (true, 0));
        // So little that files are merged on the way, too.
        let (spilled, runs) = sorted(None, 4_000, 10_000);
        assert!(spilled == expected(10_000) && (2..MOST_RUNS).contains(&runs), "{runs}");
        assert_eq!(sorted(Some(5), 1 << 20, 10_000), (expected(5), 0));
        let (most, runs) = sorted(Some(3_000), 4_000, 10_000);
        assert!(most == expected(3_000) && runs > 1, "{runs}");
    }
}
