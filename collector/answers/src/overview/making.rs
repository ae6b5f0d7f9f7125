//! Making the overview of a session, and opening it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use codec::span::{Span, SpanKind};
use collector_core::spans::SpanConfig;
use rustix::fs::FlockOperation;
use sinks::disk::{OVERVIEW as NAME, OverviewTrailer};

use super::{
    Overview, Row, RowKind,
    arrange::{Arranging, Settled, Special},
    directory::Identity,
    gather::{Gathered, Source},
    lane::Lane,
    logical::Telling,
};
use crate::{spanning, trace::Trace};

impl Overview {
    /// Opens that of a session. None where there is none, or it is of other events: then it has to be made.
    pub fn open(trace: &Trace) -> Result<Option<Self>> {
        let path = trace.dir.join(NAME);
        let file = match storage::open(&path) {
            // Nothing is there, or what is no file.
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::InvalidInput].contains(&error.kind()) => {
                return Ok(None);
            }
            file => file.with_context(|| format!("cannot open {}", path.display()))?,
        };
        // What cannot be read is made again.
        let overview = Self::from_file(file).ok();
        Ok(overview.filter(|overview| overview.is_of(trace) && !trace.is_unfinished))
    }

    /// Makes it, telling how many events were read; an error stops that.
    pub fn make(trace: &Trace, config: SpanConfig, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<Self> {
        let mut building = match Building::begin_or_wait(trace)? {
            Begun::Made(overview) => return Ok(*overview),
            Begun::Building(building) => building,
            Begun::Elsewhere => anyhow::bail!("somebody else makes the overview"),
        };
        spanning::batches(trace, spanning::engine(trace, config), false, |batch| {
            progress(batch.events)?;
            building.add(&batch.spans)
        })?;
        building.finish()
    }

    fn from_file(file: storage::File) -> Result<Self> {
        let length = file.len()?;
        let mut last = [0; OverviewTrailer::BYTES];
        file.read_exact_at(&mut last, length.saturating_sub(OverviewTrailer::BYTES as u64))?;
        let trailer = OverviewTrailer::read(&last, length).context("it is cut short, or of another version")?;
        let mut directory = vec![0; usize::try_from(trailer.bytes)?];
        file.read_exact_at(&mut directory, trailer.at)?;
        anyhow::ensure!(crc32fast::hash(&directory) == trailer.checksum, "its directory was changed");
        Self::from_directory(file, &directory)
    }
}

/// An overview that is being made.
///
/// It is written beside the session if that is finished and can be written to, and into a file without a name otherwise.
#[derive(Debug)]
pub struct Building<'a> {
    trace: &'a Trace,
    gathered: Gathered,
    telling: Telling,
    /// When the trace ends.
    end: u64,
    file: File,
    /// The name that it has until it is made.
    partial: Option<PathBuf>,
}

/// What comes of wanting to make an overview.
#[derive(Debug)]
pub enum Begun<'a> {
    /// Somebody has made it meanwhile.
    Made(Box<Overview>),
    /// Somebody else is making it.
    Elsewhere,
    /// It is to be made here.
    Building(Box<Building<'a>>),
}

impl<'a> Building<'a> {
    /// Begins that of a session, unless somebody else makes it.
    pub fn begin(trace: &'a Trace) -> Result<Begun<'a>> {
        Self::locked(trace, FlockOperation::NonBlockingLockExclusive)
    }

    /// The same, but waits for somebody else.
    fn begin_or_wait(trace: &'a Trace) -> Result<Begun<'a>> {
        Self::locked(trace, FlockOperation::LockExclusive)
    }

    fn locked(trace: &'a Trace, lock: FlockOperation) -> Result<Begun<'a>> {
        let gathered = Gathered::new(unnamed(&trace.dir)?);
        let telling = Telling::new(unnamed(&trace.dir)?, &trace.name());
        let end = trace.manifest.time_end_ns.saturating_sub(trace.zero_ns());
        let partial = trace.dir.join(format!("{NAME}.partial"));
        let mode = fs::metadata(&trace.dir).map_or(0o600, |dir| dir.permissions().mode() & 0o666);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(mode);
        let file = if trace.is_unfinished { None } else { options.open(&partial).ok() };
        let Some(file) = file else {
            let file = unnamed(&trace.dir)?;
            return Ok(Begun::Building(Box::new(Self { trace, gathered, telling, end, file, partial: None })));
        };
        // A killed one leaves its part, but not its lock.
        match rustix::fs::flock(&file, lock) {
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => return Ok(Begun::Elsewhere),
            locked => locked?,
        }
        if let Some(made) = Overview::open(trace)? {
            drop(fs::remove_file(&partial));
            return Ok(Begun::Made(Box::new(made)));
        }
        file.set_len(0)?;
        Ok(Begun::Building(Box::new(Self { trace, gathered, telling, end, file, partial: Some(partial) })))
    }

    /// Takes spans, as they end.
    pub fn add(&mut self, spans: &[Span]) -> Result<()> {
        for span in spans {
            let what = self.gathered.add(span, self.end)?;
            if let Some(what) = what.filter(|_| !matches!(span.kind, SpanKind::Frame | SpanKind::Event)) {
                self.telling.add(self.trace, span, what)?;
            }
        }
        Ok(())
    }

    /// Makes it of all spans that there are.
    pub fn finish(mut self) -> Result<Overview> {
        let overview = self.arrange()?;
        if let Some(partial) = self.partial.take() {
            let path = self.trace.dir.join(NAME);
            let named = fs::rename(&partial, &path);
            rustix::fs::flock(&self.file, FlockOperation::Unlock)?;
            named.with_context(|| format!("cannot name {}", path.display()))?;
        }
        Ok(overview)
    }

    fn arrange(&mut self) -> Result<Overview> {
        let gathered = &mut self.gathered;
        let out = BufWriter::with_capacity(1 << 20, self.file.try_clone()?);
        let mut arranging = Arranging::new(Hashing { out, hasher: crc32fast::Hasher::new() });
        let mut rows = Rows::default();
        for source in gathered.rows.keys().copied() {
            let mut settled = Settled::default();
            arranging.rows(gathered, source, &mut settled, &[], None)?;
            rows.add(source, &settled, Vec::new());
        }
        let (rows, special) = rows.finish();
        let cut = gathered.cut.saturating_add(arranging.cut);
        let Arranging { mut out, at, contexts, .. } = arranging;
        let at = self.telling.finish(&mut out, at)?;
        let overview = Overview {
            file: self.file.try_clone()?.into(),
            lines: self.file.try_clone()?.into(),
            memory: Vec::new(),
            identity: Identity::of(self.trace),
            range: gathered.range(),
            cut: cut.saturating_add(contexts.cut),
            rows,
            contexts: contexts.nodes,
            whats: std::mem::take(&mut gathered.whats),
            gaps: gathered.take_gaps(),
            special,
            told: std::mem::take(&mut self.telling.told),
        };
        let directory = overview.directory();
        let Hashing { mut out, hasher } = out;
        let (bytes, checksum, before) = (directory.len() as u64, crc32fast::hash(&directory), hasher.finalize());
        out.write_all(&directory)?;
        out.write_all(&OverviewTrailer { at, bytes, checksum, before }.to_bytes())?;
        out.flush()?;
        Ok(overview)
    }
}

/// Adds what is written to a checksum.
struct Hashing<W> {
    out: W,
    hasher: crc32fast::Hasher,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = fs::remove_file(partial);
        }
    }
}

/// The rows of all sources.
#[derive(Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    special: Vec<Special>,
}

impl Rows {
    /// Adds those of a source: what is settled, and special ones that are not.
    pub(super) fn add(&mut self, source: Source, settled: &Settled, later: Vec<Special>) {
        let first = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        let special = settled.special.iter().copied().chain(later);
        self.special.extend(special.map(|one| Special { row: one.row.saturating_add(first), ..one }));
        self.rows.extend((0..).zip(&settled.lanes).map(|(number, lane)| row(source, number, lane)));
    }

    /// All of them, and the special slices in order.
    pub(super) fn finish(mut self) -> (Vec<Row>, Vec<Special>) {
        self.special.sort_unstable_by_key(|one| (one.row, one.depth, one.start));
        (self.rows, self.special)
    }
}

fn row(source: Source, number: u32, lane: &Lane) -> Row {
    let kind = match (source, number) {
        (Source::Thread(stream), 0) => RowKind::Thread(stream),
        (Source::Thread(stream), lane) => RowKind::Lane(stream, lane),
        (Source::Logical(runtime), _) => RowKind::Logical(runtime),
    };
    let depths: Vec<Vec<_>> =
        lane.depths.iter().map(|depth| depth.settled.iter().chain(&depth.later).copied().collect()).collect();
    let chunks = || depths.iter().flatten().map(|chunk| &chunk.fold);
    let first = chunks().map(|fold| fold.start).min().unwrap_or(0);
    let last = chunks().map(|fold| fold.end).max().unwrap_or(0);
    let slices = chunks().map(|fold| u64::from(fold.count)).sum();
    Row { kind, first, last, slices, depths }
}

/// A file that nobody else sees, beside the session if possible.
pub(super) fn unnamed(dir: &Path) -> Result<File> {
    let create = |folder: PathBuf| -> io::Result<File> {
        for number in 0_u64.. {
            let path = folder.join(format!(".overview-{}-{number}", std::process::id()));
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => {
                    let file = file?;
                    fs::remove_file(&path)?;
                    return Ok(file);
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    };
    create(dir.into()).or_else(|_| create(std::env::temp_dir())).context("cannot write a temporary file")
}
