//! What a session comes to: its program, how it ended, how much of it there is and what is missing.

use std::{collections::HashMap, path::Path, time::SystemTime};

use codec::{
    atf::{EDGE_BYTES, IndexEvent, ProcessEntry},
    text::Glob,
};

use crate::{scan::Scan, trace::Trace};

/// How many causes of missing events are told.
const MOST_CAUSES: usize = 16;

/// States that are no ends.
const STARTING: &str = "starting";
const RUNNING: &str = "running";
const UNREADABLE: &str = "unreadable";

/// When a manifest was written, and its size.
pub type Written = Option<(SystemTime, u64)>;

/// The files of a session, as far as they tell whether something was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files {
    /// The manifest.
    pub manifest: Written,
    /// The bytes of all, but for what is made of them later.
    pub bytes: u64,
    /// When the last of them was written.
    changed: Option<SystemTime>,
}

/// What a session comes to.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// What was traced, where it has said so.
    pub process: Option<ProcessEntry>,
    /// How it ended, or that it is still written, or was not finished.
    pub state: String,
    /// Whether nothing more is to come.
    pub is_finished: bool,
    /// How many threads it has.
    pub threads: usize,
    /// How many events are in its files.
    pub events: u64,
    /// How many are not.
    pub missing: u64,
    /// Why, the most frequent first.
    pub causes: Vec<(String, u64)>,
    /// From its first event to its last.
    pub lasted_ns: u64,
    /// When it began, by the collector's clock.
    pub start_unix_ns: Option<u64>,
    /// What cannot be read of it, and why.
    pub wrong: Option<String>,
}

/// Which sessions are asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Those of this program: its path, or its file name.
    pub program: Option<Glob>,
    /// Those from this machine.
    pub host: Option<Glob>,
    /// Those that went on at this time or later, since 1970.
    pub since_ns: Option<u64>,
    /// Those that began before this time.
    pub until_ns: Option<u64>,
    /// Those of which something is missing, or cannot be read.
    pub is_lossy: bool,
}

impl Files {
    /// The files in the directory of a session.
    pub fn of(dir: &Path) -> Self {
        let mut files = Self { manifest: manifest_of(dir), bytes: 0, changed: None };
        files.add(dir, 0);
        files
    }

    fn add(&mut self, dir: &Path, level: u32) {
        for entry in storage::entries(dir).into_iter().flatten() {
            let is_made_later = ["overview.", ".overview-"].iter().any(|of| entry.name.starts_with(of));
            match entry.metadata {
                Some(data) if data.is_dir && level < 2 => self.add(&entry.path, level + 1),
                Some(data) if !data.is_dir && !is_made_later => {
                    self.bytes = self.bytes.saturating_add(data.len);
                    self.changed = self.changed.max(data.modified);
                }
                _ => {}
            }
        }
    }
}

/// When the manifest of a session was written, and its size.
pub fn manifest_of(dir: &Path) -> Written {
    let data = storage::metadata(&dir.join("manifest.json")).ok()?;
    Some((data.modified?, data.len))
}

impl Summary {
    /// Reads what a session comes to. What cannot be read is told in it.
    pub fn read(dir: &Path, files: &Files) -> Self {
        let trace = match Trace::outline(dir) {
            Ok(trace) => trace,
            Err(_) if files.manifest.is_none() && !sinks::disk::is_bare(dir) => {
                return Self { state: STARTING.into(), ..Self::default() };
            }
            Err(error) => {
                let (state, wrong) = (UNREADABLE.into(), Some(format!("{error:#}")));
                return Self { state, wrong, is_finished: true, ..Self::default() };
            }
        };
        Self::of(&trace)
    }

    /// What a session comes to that was opened.
    pub fn of(trace: &Trace) -> Self {
        let (manifest, dir) = (&trace.manifest, trace.dir.as_path());
        let threads = trace.threads();
        let written = |thread| Scan::events_of(trace, thread);
        let events = threads.iter().map(|thread| thread.written.or_else(|| written(thread)).unwrap_or(0));
        let events = events.fold(0, u64::saturating_add);
        let mut causes: HashMap<&str, u64> = HashMap::new();
        for gap in &manifest.gaps {
            let count = causes.entry(&gap.cause).or_default();
            *count = count.saturating_add(gap.count);
        }
        let missing = causes.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let mut causes: Vec<_> = causes.into_iter().map(|(cause, count)| (cause.to_owned(), count)).collect();
        causes.sort_by(|(a, first), (b, second)| second.cmp(first).then_with(|| a.cmp(b)));
        causes.truncate(MOST_CAUSES);
        let state = match &manifest.end {
            Some(end) if !trace.is_unfinished => {
                end.code.map_or_else(|| end.how.clone(), |code| format!("{} ({code})", end.how))
            }
            _ if sinks::disk::is_held(dir) => RUNNING.into(),
            _ => "unfinished".into(),
        };
        // The zero is that of the first process of a family, and those that came from it began later.
        let since = manifest.time_start_ns.saturating_sub(trace.zero_ns());
        let zero = manifest.offset.map(|offset| offset.zero_unix_ns).or(manifest.epoch_unix_ns);
        let start_unix_ns = zero.map(|zero| zero.saturating_add(since));
        Self {
            process: manifest.process.clone(),
            state,
            is_finished: !trace.is_unfinished,
            threads: threads.len(),
            events,
            missing,
            causes,
            lasted_ns: manifest.time_end_ns.saturating_sub(manifest.time_start_ns),
            start_unix_ns: start_unix_ns.or(manifest.seen_unix_ns),
            wrong: if trace.is_unfinished { trace.wrong.as_ref().map(ToString::to_string) } else { wrong_with(trace) },
        }
    }

    /// Whether it is being written.
    fn is_running(&self) -> bool {
        self.state == RUNNING
    }

    /// Whether its files tell how much there is and what is missing.
    pub fn is_known(&self) -> bool {
        self.state != UNREADABLE && self.state != STARTING
    }

    /// When it ended, or was last heard of.
    pub fn end_unix_ns(&self) -> Option<u64> {
        self.start_unix_ns.map(|start| start.saturating_add(self.lasted_ns))
    }
}

/// What is wrong with a session that is finished, so far as its manifest and the ends of its files tell.
fn wrong_with(trace: &Trace) -> Option<String> {
    // There, a look at each end takes as long as all the rest.
    if storage::is_remote(&trace.dir) {
        return trace.wrong.as_ref().map(ToString::to_string).or_else(|| wrong_length(trace));
    }
    match Scan::open(trace, &trace.threads()) {
        Ok(scan) => scan.wrong(),
        Err(error) => Some(format!("{error:#}")),
    }
}

/// Which index has another length than its events take, if one has.
fn wrong_length(trace: &Trace) -> Option<String> {
    trace.manifest.threads.iter().find_map(|thread| {
        let events = thread.written?;
        let bytes = events.checked_mul(IndexEvent::BYTES as u64)?.checked_add(2 * EDGE_BYTES as u64)?;
        let found = storage::metadata(&trace.thread_dir(thread.id).join("index.atf")).map(|data| data.len);
        let wrong = |found: String| format!("thread_{}: index.atf {found}, by manifest.json it has {bytes}", thread.id);
        match found {
            Ok(found) if found == bytes => None,
            Ok(found) => Some(wrong(format!("has {found} bytes"))),
            Err(error) => Some(wrong(format!("cannot be read: {error}"))),
        }
    })
}

impl Wanted {
    /// Whether a session is one of them. One that cannot be read may be, and of what is not known of others, they are not.
    pub fn takes(&self, session: &Summary) -> bool {
        if session.state == UNREADABLE {
            return true;
        }
        let process = session.process.as_ref();
        let is_program = |glob: &Glob| {
            process.is_some_and(|process| {
                let name = process.executable.rsplit('/').next().unwrap_or_default();
                glob.matches(&process.executable) || glob.matches(name)
            })
        };
        self.program.as_ref().is_none_or(is_program)
            && self.host.as_ref().is_none_or(|glob| process.is_some_and(|process| glob.matches(&process.host)))
            && self
                .since_ns
                .is_none_or(|since| session.is_running() || session.end_unix_ns().is_some_and(|end| end >= since))
            && self.until_ns.is_none_or(|until| session.start_unix_ns.is_some_and(|start| start < until))
            && (!self.is_lossy || session.missing > 0 || session.wrong.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use codec::EventKind;
    use sinks::Sink;

    use super::*;
    use crate::{overview::tests::event, scene::Scene};

    fn state(dir: &Path) -> (String, Option<String>) {
        let summary = Summary::read(dir, &Files::of(dir));
        (summary.state, summary.wrong)
    }

    #[test]
    fn one_runs_for_as_long_as_its_collector_has_it_and_what_is_damaged_is_told() {
        let mut scene = Scene::new();
        for start in 0..100 {
            scene.send(0, event(EventKind::Call, 1, 0, (start, start)));
        }
        scene.sink.flush().expect("written");
        let dir = scene.folder();
        // Nothing is written to one, and nobody has the other.
        let journal = fs::File::options().append(true).open(dir.join("journal.heph")).expect("it is there");
        journal.set_modified(SystemTime::UNIX_EPOCH).expect("it has a time");
        let left = dir.with_file_name("left");
        fs::create_dir_all(left.join("thread_0")).expect("made");
        for name in ["manifest.json", "journal.heph", "thread_0/index.atf"] {
            _ = fs::copy(dir.join(name), left.join(name));
        }
        assert_eq!((state(&dir).0, state(&left).0), (RUNNING.into(), "unfinished".into()));
        scene.end();
        assert_eq!(state(&dir), ("exited (0)".into(), None));
        let index = dir.join("thread_0/index.atf");
        let bytes = fs::read(&index).expect("it is there");
        fs::write(&index, &bytes[..bytes.len() - 40]).expect("there is room");
        let wrong = state(&dir).1.expect("it is noticed");
        assert!(wrong.contains("thread_0"), "{wrong}");
        fs::remove_file(dir.join("manifest.json")).expect("it was there");
        let made = std::process::Command::new("mkfifo").arg(dir.join("manifest.json")).status();
        assert!(made.is_ok_and(|made| made.success()));
        let (state, wrong) = state(&dir);
        assert!(state == UNREADABLE && wrong.is_some_and(|wrong| wrong.contains("no regular file")), "{state}");
    }

    fn session(executable: &str, host: &str, start_unix_ns: u64) -> Summary {
        let process = serde_json::json!({
            "pid": 7, "host": host, "arch": "x86_64", "os": "linux", "executable": executable,
            "arguments": [], "argument_count": 0, "agent_version": "",
        });
        let process = Some(serde_json::from_value(process).expect("an entry"));
        Summary { process, start_unix_ns: Some(start_unix_ns), lasted_ns: 10, ..Summary::default() }
    }

    #[test]
    fn sessions_are_chosen_by_program_host_time_and_loss() {
        let ls = session("/usr/bin/ls", "edge-1", 100);
        let glob = |text| Some(Glob::new(text));
        let takes = |wanted: Wanted| wanted.takes(&ls);
        assert!(takes(Wanted::default()));
        for (program, is_taken) in [("ls", true), ("/usr/bin/*", true), ("l?", true), ("cat", false), ("bin/ls", false)]
        {
            assert_eq!(takes(Wanted { program: glob(program), ..Wanted::default() }), is_taken, "{program}");
        }
        for (host, is_taken) in [("edge-*", true), ("edge", false)] {
            assert_eq!(takes(Wanted { host: glob(host), ..Wanted::default() }), is_taken, "{host}");
        }
        // It went on from 100 to 110.
        for (since, until, is_taken) in
            [(Some(110), None, true), (Some(111), None, false), (None, Some(101), true), (None, Some(100), false)]
        {
            assert_eq!(takes(Wanted { since_ns: since, until_ns: until, ..Wanted::default() }), is_taken);
        }
        let lossy = Wanted { is_lossy: true, ..Wanted::default() };
        assert!(!lossy.takes(&ls) && lossy.takes(&Summary { missing: 1, ..ls.clone() }));
        assert!(lossy.takes(&Summary { wrong: Some("a file is gone".into()), ..ls.clone() }));
        // Nothing is known of it.
        let unknown = Summary::default();
        assert!(
            Wanted::default().takes(&unknown) && !Wanted { since_ns: Some(0), ..Wanted::default() }.takes(&unknown)
        );
    }
}
