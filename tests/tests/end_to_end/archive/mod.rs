//! Sessions in an archive: a bucket of a real S3 server, and a directory.

mod line;
mod trouble;

use std::{collections::BTreeMap, fs, path::Path, path::PathBuf};

use codec::profile::EndReason;
use tests::{
    Agent, Bucket, Collector, Exit, Folder, Settings, Transport,
    collector::{disk, run_in, run_on},
    process::Stdout,
    trace::folders,
    wait::{LONG, eventually},
};

use crate::archive::line::Line;

/// A bucket with the way there, and a folder whose sessions are archived in it.
struct Scene {
    bucket: Bucket,
    line: Line,
    folder: Folder,
}

impl Scene {
    fn new() -> Self {
        let bucket = Bucket::new();
        Self { line: Line::to(bucket.address()), bucket, folder: Folder::new("archived") }
    }

    /// What clients of the bucket have in their environment.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = self.bucket.environment();
        environment.retain(|(name, _)| *name != "AWS_ENDPOINT_URL");
        environment.push(("AWS_ENDPOINT_URL", format!("http://{}", self.line.address())));
        environment
    }

    fn collector(&self, arguments: &[&str]) -> Collector {
        self.collector_in(&self.environment(), arguments)
    }

    fn collector_in(&self, environment: &[(&str, String)], arguments: &[&str]) -> Collector {
        let (sink, place) = (disk(self.folder.path()), self.bucket.place("a/b"));
        let fixed = ["--listen", "127.0.0.1:0", "--sink", &sink, "--archive", &place];
        let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, &**value)).collect();
        Collector::start_in(&environment, &[&fixed, arguments].concat(), Stdout::Collect)
    }

    /// Runs a command of the collector on a place in the archive.
    #[track_caller]
    fn ask(&self, name: &str, place: &str, arguments: &[&str]) -> Exit {
        let environment = self.environment();
        let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, &**value)).collect();
        run_in(&environment, &[&[name, place], arguments].concat())
    }

    /// The objects below the prefix that sessions are archived to, by their names from there on.
    fn objects(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut objects = Folder::contents(&self.bucket.objects().join("a/b"));
        // What the server itself notes of them.
        objects.retain(|name, _| !name.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
        objects
    }

    /// Waits until so many sessions are in the archive.
    fn wait_for(&self, sessions: usize) {
        let is_manifest = |path: &PathBuf| path.file_name().is_some_and(|name| name == "manifest.json");
        eventually("the sessions are archived", || {
            self.objects().keys().filter(|path| is_manifest(path)).count() == sessions
        });
    }

    /// Fails the test unless all sessions of the folder are in the archive, byte for byte, and nothing else.
    #[track_caller]
    fn is_archived(&self) {
        let here = named_by_session(Folder::contents(self.folder.path()));
        assert_eq!(here.keys().collect::<Vec<_>>(), named_by_session(self.objects()).keys().collect::<Vec<_>>());
        assert!(here == named_by_session(self.objects()), "the same bytes");
    }
}

/// Names of files without the ids that archives add to those of sessions.
fn named_by_session(files: BTreeMap<PathBuf, Vec<u8>>) -> BTreeMap<PathBuf, Vec<u8>> {
    let named = |path: PathBuf| {
        let mut parts = path.iter().map(|part| part.to_string_lossy().into_owned());
        let session = parts.next().unwrap_or_default().split('-').take(3).collect::<Vec<_>>().join("-");
        std::iter::once(session).chain(parts).collect::<PathBuf>()
    };
    files.into_iter().map(|(path, bytes)| (named(path), bytes)).collect()
}

/// A session with so many events of each thread, which ends.
#[track_caller]
fn record(collector: &Collector, seed: u64, rounds: usize) {
    let mut agent = Agent::start(Settings::new(collector, Transport::Tcp, seed)).expect("it is heard");
    (0..rounds).for_each(|_| agent.work(500).expect("it is taken"));
    agent.finish(EndReason::Exited(0), LONG).expect("all of it is kept");
}

#[test]
fn what_is_archived_is_what_was_recorded_and_all_commands_say_the_same_of_it() {
    let scene = Scene::new();
    let collector = scene.collector(&[]);
    record(&collector, 1, 4);
    record(&collector, 2, 4);
    scene.wait_for(2);
    collector.stop().success();
    scene.is_archived();
    let names: Vec<_> = fs::read_dir(scene.bucket.objects().join("a/b")).expect("there").flatten().collect();
    let here = folders(scene.folder.path());
    let first = here.first().expect("two sessions");
    let name = first.file_name().expect("a name").to_string_lossy();
    let there = names.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let there = there.filter(|there| there.starts_with(&format!("{name}-"))).collect::<Vec<_>>();
    let [there] = &there[..] else { panic!("one is called like it: {there:?}") };
    let place = scene.bucket.place(&format!("a/b/{there}"));
    for (command, arguments) in [
        ("info", &[][..]),
        ("events", &["--json"]),
        ("spans", &["--json"]),
        ("spans", &["--sort", "duration", "--limit", "5"]),
        ("top", &["--json"]),
        ("tree", &[]),
        ("stats", &[]),
        ("verify", &[]),
        ("export", &["--format", "folded", "-o", "-"]),
    ] {
        let (local, remote) =
            (run_on(command, first, arguments).success(), scene.ask(command, &place, arguments).success());
        let renamed = remote.text().replace(&place, &first.display().to_string()).replace(&**there, &name);
        assert_eq!(renamed, local.text(), "{command}");
        assert!(!local.stdout.is_empty(), "{command}");
    }
    // A prefix is a directory of sessions.
    let listed = scene.ask("sessions", &scene.bucket.place("a/b/"), &["--json"]).success();
    assert_eq!(listed.text().lines().count(), 2);
    let verified = scene.ask("verify", &scene.bucket.place("a/b"), &[]).success();
    assert_eq!(verified.text().matches(": intact: ").count(), 2, "{}", verified.text());
    let diff = scene.ask("diff", &place, &[&first.display().to_string()]).success();
    assert!(diff.stderr.is_empty() || !diff.stderr.contains("error"), "{}", diff.stderr);
}

#[test]
fn little_is_read_for_little() {
    let scene = Scene::new();
    let collector = scene.collector(&["--stats", "60s"]);
    record(&collector, 3, 200);
    scene.wait_for(1);
    collector.stop().success();
    let all: usize = scene.objects().values().map(Vec::len).sum();
    let costs = |command: &str, arguments: &[&str]| {
        let before = scene.line.back();
        scene.ask(command, &scene.bucket.place("a/b"), arguments).success();
        scene.line.back() - before
    };
    let (whole, info, sessions) = (costs("verify", &[]), costs("info", &[]), costs("sessions", &[]));
    assert!(all > 4 << 20, "{all} bytes");
    assert!(whole as usize > all, "{whole} of {all}");
    assert!(info < 1 << 20 && sessions < 1 << 20, "{info} and {sessions} of {all}");
}

#[test]
fn a_directory_is_an_archive_too() {
    let (folder, archive) = (Folder::new("local"), Folder::new("archive"));
    let place = format!("file://{}", archive.path().display());
    let collector = Collector::to_disk(folder.path(), &["--archive", &place, "--archive-remove"]);
    record(&collector, 4, 2);
    eventually("it is gone from here", || folders(folder.path()).is_empty());
    let exit = collector.stop().success();
    assert!(exit.stderr.contains("it is in the archive"), "{}", exit.stderr);
    assert_eq!(folders(archive.path()).len(), 1);
    run_on("verify", archive.path(), &[]).success();
    run_on("verify", Path::new(&place), &[]).success();
}
