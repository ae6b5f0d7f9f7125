//! Checking what was written: every checksum, every link, every count, the order of time, and that nothing is there
//! twice.

mod overview;
mod positions;
mod table;
mod thread;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    path::{Path, PathBuf},
};

use codec::atf::{FileChecksum, Manifest};

pub use self::overview::OverviewTrailer;
use self::{
    overview::verify_overview,
    positions::{Extent, verify_gaps, verify_parts},
    table::verify_table,
    thread::{PlainEvents, verify_thread},
};
use super::{
    directory::{read_if_there, sessions_in, threads_in},
    earlier::MAY_GO_ON,
    journal::JOURNAL,
    removed::REMOVED,
    room::MANIFEST,
    spans::{OVERVIEW, SPANS},
};

/// What was found in one session, or part of one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Its directory.
    pub dir: PathBuf,
    /// Threads in its manifest.
    pub threads: u64,
    /// Events in their indexes.
    pub events: u64,
    /// How many of them have details: registers, a stack or keys.
    pub details: u64,
    /// How many of them have their start or their task in the detail file, since the events before do not tell: those may be in
    /// a gap.
    pub contexts: u64,
    /// Spans in its table of spans, if it has one.
    pub spans: u64,
    /// Events that its gaps say are missing.
    pub missing: u64,
    /// How it ended, where that is not the program's own end.
    pub cut_short: Option<String>,
    /// What is wrong. Nothing, if it is whole.
    pub problems: Vec<String>,
    /// What could not be checked.
    pub unchecked: Vec<String>,
    /// What the parts of its session have in common.
    session: String,
    /// What it has of its threads.
    extents: Vec<Extent>,
}

impl Verified {
    /// The name of its directory.
    fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Checks a session's directory, or all sessions in a directory. Reads every byte of them.
///
/// An error means that the directory could not be looked at; what is wrong with a session is in its
/// [`problems`](Verified::problems). A session that is still being written is unfinished, and that is a problem too.
pub fn verify(dir: &Path) -> io::Result<Vec<Verified>> {
    let verified = |dir| {
        let mut found = Verified { dir, ..Verified::default() };
        // What one cannot be looked at for, the others are.
        if let Err(error) = verify_session(&mut found) {
            found.problems.push(error.to_string());
        }
        found
    };
    let mut sessions: Vec<_> = sessions_in(dir)?.into_iter().map(verified).collect();
    verify_parts(&mut sessions);
    Ok(sessions)
}

fn verify_session(found: &mut Verified) -> io::Result<()> {
    if read_if_there(&found.dir.join(JOURNAL))?.is_some() {
        let problem = "unfinished: its collector is running or was killed; if none is running, repair it";
        found.problems.push(problem.into());
    }
    let Some(json) = read_if_there(&found.dir.join(MANIFEST))? else {
        let unfinished = !found.problems.is_empty();
        let more = if unfinished { "" } else { ", nor is a journal: if it is empty, a repair removes it" };
        found.problems.push(format!("{MANIFEST} is not there{more}"));
        return Ok(());
    };
    let manifest = match Manifest::parse(&json) {
        Ok(manifest) => manifest,
        Err(error) => {
            found.problems.push(error.to_string());
            return Ok(());
        }
    };
    if let Err(error) = manifest.check() {
        found.problems.push(error.to_string());
    }
    match Manifest::check_bytes(&json) {
        Ok(true) => {}
        Ok(false) if manifest.spans.is_some() => found.problems.push(format!("{MANIFEST} has lost its checksum")),
        Ok(false) => found.unchecked.push(format!("names, and the ends of files: {MANIFEST} has no checksum")),
        Err(error) => found.problems.push(error.to_string()),
    }
    found.cut_short = manifest.end.as_ref().map(|end| end.how.clone()).filter(|how| MAY_GO_ON.contains(&how.as_str()));
    found.session = manifest.session.clone().unwrap_or_else(|| session_name(&found.name()));
    found.extents = manifest.threads.iter().filter_map(Extent::of).collect();
    let listed: BTreeSet<u32> = manifest.threads.iter().map(|thread| thread.id).collect();
    for (stream, _) in threads_in(&found.dir)? {
        if !listed.contains(&stream) {
            found.problems.push(format!("thread_{stream} is not in {MANIFEST}"));
        }
    }
    let (mut written, plain) = (BTreeMap::new(), PlainEvents::of(&manifest));
    for thread in &manifest.threads {
        found.threads += 1;
        let problem = match verify_thread(found, thread, &manifest, &plain) {
            Ok(events) => {
                written.insert(thread.id, events);
                continue;
            }
            Err(problem) => problem,
        };
        found.problems.push(format!("thread_{}: {problem}", thread.id));
    }
    verify_gaps(found, &manifest, &written);
    verify_table(found, &manifest)?;
    verify_overview(found)?;
    list_others(found)
}

/// The name that the parts of a session share.
fn session_name(part: &str) -> String {
    part.split_once('.').map_or(part, |(session, _)| session).into()
}

/// How many bytes come to their end, and their checksum.
fn checksum(mut from: impl Read) -> io::Result<(u64, FileChecksum)> {
    let (mut bytes, mut checksum, mut buffer) = (0_u64, FileChecksum::default(), vec![0; 1 << 16]);
    loop {
        match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => match read? {
                0 => return Ok((bytes, checksum)),
                read => {
                    checksum.update(buffer.get(..read).unwrap_or_default());
                    bytes += read as u64;
                }
            },
        }
    }
}

/// What lies in a session's directory beside those of its threads.
const FILES: [&str; 4] = [MANIFEST, JOURNAL, SPANS, OVERVIEW];

/// Whether a file of this machine is there and belongs to a session.
pub fn is_of_session(path: &Path) -> bool {
    let of_thread = || path.extension().is_some_and(|extension| extension == "atf");
    let of_session = || FILES.iter().any(|name| path.ends_with(name)) && path.with_file_name(MANIFEST).exists();
    path.exists() && (of_thread() || of_session())
}

/// Names what is in the directory and was not looked at.
fn list_others(found: &mut Verified) -> io::Result<()> {
    for storage::Entry { name, .. } in storage::entries(&found.dir)? {
        let known = FILES.contains(&&*name) || name.starts_with("thread_");
        match &*name {
            _ if known => {}
            REMOVED => found.unchecked.push(format!("what a repair has put in {REMOVED}/")),
            _ => found.unchecked.push(format!("{name}: it is not part of a trace")),
        }
    }
    Ok(())
}
