//! What may come between a session and its archive.

use std::{fs, path::PathBuf};

use tests::{
    Folder,
    collector::{disk, run_on},
    trace::folders,
    wait::eventually,
};

use crate::archive::{Scene, record};

/// An upload is cut in the middle, and the collector killed while it tries again. The next one completes it.
#[test]
fn an_upload_that_was_cut_is_completed() {
    let scene = Scene::new();
    scene.line.allow(1 << 20);
    let collector = scene.collector(&[]);
    record(&collector, 11, 100);
    eventually("the upload is cut", || scene.line.is_cut());
    collector.kill();
    assert!(!scene.objects().keys().any(|path| path.ends_with("manifest.json")), "half of a session is none");
    scene.line.allow(u64::MAX);
    let asked = scene.ask("sessions", &scene.bucket.place("a/b"), &[]);
    assert!(asked.code == Some(1), "{}", asked.stderr);
    let collector = scene.collector(&[]);
    scene.wait_for(1);
    collector.stop().success();
    scene.is_archived();
}

/// The server is away for a while: sessions are recorded all the same, and archived when it is back.
#[test]
fn sessions_wait_for_a_server_that_is_away() {
    let scene = Scene::new();
    scene.line.allow(0);
    let collector = scene.collector(&[]);
    record(&collector, 12, 2);
    // Once for the server, and not for each session.
    collector.wait_for("cannot archive");
    scene.line.allow(u64::MAX);
    scene.wait_for(1);
    collector.wait_for("the archive works again");
    collector.stop().success();
    scene.is_archived();
}

#[test]
fn wrong_keys_and_a_bucket_that_is_not_there_are_said_and_cost_nothing() {
    let scene = Scene::new();
    let mut wrong = scene.environment();
    wrong.iter_mut().filter(|(name, _)| *name == "AWS_SECRET_ACCESS_KEY").for_each(|(_, secret)| *secret = "x".into());
    let collector = scene.collector_in(&wrong, &[]);
    record(&collector, 13, 2);
    let line = collector.wait_for("cannot archive");
    assert!(line.contains("s3://traces"), "{line}");
    let exit = collector.stop();
    assert!(exit.code == Some(1) && exit.stderr.contains("1 session not archived"), "{}", exit.stderr);
    run_on("verify", scene.folder.path(), &[]).success();
    fs::rename(scene.bucket.objects(), scene.bucket.objects().with_extension("away")).expect("there");
    let exit = scene.collector(&[]).stop();
    assert!(exit.stderr.contains("NoSuchBucket"), "{}", exit.stderr);
    assert_eq!(exit.code, Some(1));
    fs::rename(scene.bucket.objects().with_extension("away"), scene.bucket.objects()).expect("there");
    scene.collector(&[]).stop().success();
    scene.is_archived();
}

/// What was damaged in the archive is told by whoever reads it, sent again, and nothing is removed here for it.
#[test]
fn what_is_damaged_there_is_sent_again_before_anything_is_removed_here() {
    let scene = Scene::new();
    let collector = scene.collector(&[]);
    record(&collector, 14, 10);
    scene.wait_for(1);
    collector.stop().success();
    let object = |name: &str| {
        let objects = Folder::tree(&scene.bucket.objects());
        let found = objects.into_iter().find(|path| path.ends_with(name)).expect("it is there");
        scene.bucket.objects().join(found)
    };
    let (index, table) = (object("index.atf"), object("spans.parquet"));
    let (whole, mut bytes) = (fs::read(&index).expect("there"), fs::read(&table).expect("there"));
    fs::write(&index, &whole[..whole.len() - 100]).expect("written");
    let place = scene.bucket.place("a/b");
    for command in ["verify", "sessions"] {
        let asked = scene.ask(command, &place, &[]);
        assert!(asked.code == Some(1) && asked.stderr.contains("index.atf"), "{}", asked.stderr);
    }
    // The next one looks at lengths.
    scene.collector(&[]).stop().success();
    scene.is_archived();
    // And before anything is removed, at all bytes.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, &bytes).expect("written");
    let here = Folder::contents(scene.folder.path());
    let collector = scene.collector(&["--archive-remove"]);
    eventually("it is gone from here", || folders(scene.folder.path()).is_empty());
    let exit = collector.stop().success();
    assert!(exit.stderr.contains("what is there is not what was sent"), "{}", exit.stderr);
    assert_eq!(here.into_values().map(|bytes| bytes.len()).sum::<usize>(), lengths(&scene));
    scene.ask("verify", &place, &[]).success();
    // What has no manifest is no session, and nobody passes over it without a word.
    let collector = scene.collector(&[]);
    record(&collector, 15, 2);
    scene.wait_for(2);
    collector.stop().success();
    fs::remove_file(object("manifest.json")).expect("there");
    let asked = scene.ask("verify", &place, &[]).success();
    let lines = |what: &str| asked.text().lines().filter(|line| line.contains(what)).count();
    assert_eq!((lines("intact"), lines("not checked: without a manifest.json")), (1, 1), "{}", asked.text());
    let asked = scene.ask("sessions", &place, &[]);
    assert!(asked.code == Some(1) && asked.text().contains("unreadable"), "{} {}", asked.text(), asked.stderr);
}

fn lengths(scene: &Scene) -> usize {
    scene.objects().into_values().map(|bytes| bytes.len()).sum()
}

/// What is removed to make room while the server is away is in no archive, and that is said of each.
#[test]
fn what_is_gone_before_it_is_archived_is_told() {
    let scene = Scene::new();
    scene.line.allow(0);
    let collector = scene.collector(&["--max-bytes", "4MiB"]);
    (21..24).for_each(|seed| record(&collector, seed, 200));
    collector.wait_for("is gone before it was archived");
    let exit = collector.stop();
    assert_eq!(exit.code, Some(1), "{}", exit.stderr);
    let gone: Vec<_> = exit.stderr.lines().filter(|line| line.contains("is gone before it was archived")).collect();
    // Sessions that are large go on in further directories, and the first to come is the first to go.
    let first = exit.stderr.lines().find_map(|line| line.split_once("; in ")).expect("a session has ended").1;
    assert!(gone.iter().any(|line| line.starts_with(&format!("{first} "))), "{first}: {}", exit.stderr);
    for here in folders(scene.folder.path()) {
        let name = here.display().to_string();
        assert!(!gone.iter().any(|line| line.starts_with(&format!("{name} "))), "{name}: {}", exit.stderr);
    }
}

/// One that cannot be archived does not keep others from it.
#[test]
fn a_damaged_session_is_told_and_the_others_are_archived() {
    let scene = Scene::new();
    let damaged = scene.folder.path().join("20200101-000000-1");
    fs::create_dir(&damaged).expect("made");
    fs::write(damaged.join("manifest.json"), "{").expect("written");
    let collector = scene.collector(&[]);
    record(&collector, 31, 2);
    scene.wait_for(1);
    let exit = collector.stop();
    assert!(exit.code == Some(1) && exit.stderr.contains("1 session not archived"), "{}", exit.stderr);
    let told = format!("cannot archive {}", damaged.display());
    assert_eq!(exit.stderr.matches(&told).count(), 1, "{}", exit.stderr);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let folder = Folder::new("refused");
    let inside = folder.path().join("archive").display().to_string();
    let sink = disk(folder.path());
    for (arguments, word) in [
        (&["--archive", "s3://"][..], "s3://BUCKET/PREFIX"),
        (&["--archive", "gs://bucket/x"], "s3://BUCKET/PREFIX"),
        (&["--archive-remove"], "--archive"),
        (&["--archive", &inside], "where they are"),
        (&["--archive", "s3://b/x", "--sink", "stdout:events"], "disk: sinks"),
    ] {
        let alone = arguments.contains(&"--sink");
        let sinks: &[&str] = if alone { &[] } else { &["--sink", &sink] };
        let all: Vec<PathBuf> =
            [&["--listen", "127.0.0.1:0"], sinks, arguments].concat().iter().map(Into::into).collect();
        let exit = tests::collector::run(&all);
        assert!(exit.code == Some(2) && exit.stderr.contains(word), "{arguments:?}: {}", exit.stderr);
    }
    let exit = run_on("repair", std::path::Path::new("s3://b/x"), &[]);
    assert!(exit.code == Some(1) && exit.stderr.contains("copy it"), "{}", exit.stderr);
}
