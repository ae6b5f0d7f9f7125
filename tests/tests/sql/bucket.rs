//! Sessions that are in a bucket.

use tests::{Bucket, Folder, collector::run_in};

use crate::recorded::{ingest, json, rows};

#[test]
fn sessions_in_a_bucket_answer_as_those_here() {
    let (folder, bucket) = (Folder::new("sql-bucket"), Bucket::new());
    ingest(folder.path());
    // A bucket's objects are files of the server.
    let session = tests::trace::folders(folder.path()).pop().expect("one session");
    let name = session.file_name().expect("a name").to_string_lossy().into_owned();
    for (path, bytes) in Folder::contents(&session) {
        let object = bucket.objects().join("deep/er").join(&name).join(path);
        std::fs::create_dir_all(object.parent().expect("a folder")).expect("made");
        std::fs::write(object, bytes).expect("written");
    }
    let environment = bucket.environment();
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, &**value)).collect();
    for query in [
        "select * from spans order by id, kind",
        "select count(*) from spans where session like '2%' and start_ns >= 0",
        "select session, program, events, missing from sessions",
        "select * from gaps order by 1, 2, 3",
        "select * from functions order by 1, 2",
    ] {
        let asked = run_in(&environment, &["sql", query, &bucket.place("deep/er"), "--format", "json"]).success();
        assert_eq!(json(&asked), rows(folder.path(), query), "{query}");
        assert!(!asked.stdout.is_empty(), "{query}");
    }
    let asked = run_in(&environment, &["sql", "select 1", &bucket.place("nowhere")]);
    assert!(asked.code == Some(1) && asked.stderr.contains("s3://traces/nowhere"), "{}", asked.stderr);
}
