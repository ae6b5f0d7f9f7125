//! What `verify` finds: whatever was changed in a session, and nothing in one that was not.

use std::{
    fs,
    path::{Path, PathBuf},
};

use codec::atf::{FileChecksum, Manifest};
use sinks::disk::verify;
use tests::{Folder, collector::run_on, random::Random};

use crate::spans::{after::ingest_packets, offline::Packets};

const TABLE: &str = "spans.parquet";

fn recorded(name: &str, choice: &str, packets: &[u8]) -> (Folder, PathBuf) {
    let folder = Folder::new(name);
    let session = ingest_packets(&folder, &folder.join("traces"), choice, packets, &[]).remove(0);
    (folder, session)
}

fn problems(session: &Path) -> Vec<String> {
    verify(session).expect("it is there").remove(0).problems
}

fn change_manifest(session: &Path, change: impl FnOnce(&mut Manifest)) {
    let path = session.join("manifest.json");
    let mut manifest = Manifest::parse(&fs::read(&path).expect("it is there")).expect("a manifest");
    change(&mut manifest);
    fs::write(&path, manifest.to_json().expect("JSON")).expect("room on disk");
}

#[test]
fn every_byte_that_is_changed_or_cut_off_is_noticed() {
    for choice in ["", ",spans=live"] {
        let (_folder, session) = recorded("damage", choice, &Packets::program(20_000));
        assert_eq!(problems(&session), [""; 0]);
        let files = Folder::contents(&session);
        assert!(files.len() >= 6, "{:?}", files.keys());
        let mut random = Random::new(12);
        for (name, whole) in &files {
            let path = session.join(name);
            let spoiled = |bytes: &[u8], how: &str| {
                fs::write(&path, bytes).expect("room on disk");
                assert!(!problems(&session).is_empty(), "{}: {how}", name.display());
            };
            // Every byte, or as many as there is time for.
            let step = 1 + whole.len() / 500;
            for at in (random.below(step as u64) as usize..whole.len()).step_by(step) {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << random.below(8);
                spoiled(&bytes, &format!("byte {at} was changed"));
            }
            for _ in 0..50 {
                let length = random.below(whole.len() as u64) as usize;
                spoiled(&whole[..length], &format!("it was cut to {length} bytes"));
            }
            spoiled(&[whole.as_slice(), b"\n"].concat(), "something was added");
            fs::remove_file(&path).expect("it is there");
            // Whoever looks makes an overview again.
            let may_be_gone = name.as_os_str() == sinks::disk::OVERVIEW;
            assert_eq!(problems(&session).is_empty(), may_be_gone, "{} is gone", name.display());
            fs::write(&path, whole).expect("room on disk");
        }
        assert_eq!(problems(&session), [""; 0]);
    }
}

#[test]
fn a_table_of_other_events_is_noticed() {
    let (_folder, session) = recorded("damage-other", "", &Packets::program(20_000));
    let (_other_folder, other) = recorded("damage-others", "", &Packets::program(20_001));
    let table = fs::read(other.join(TABLE)).expect("it was made");
    fs::write(session.join(TABLE), &table).expect("room on disk");
    let rows = verify(&other).expect("it is there")[0].spans;
    // Whoever put it there has told the manifest too.
    change_manifest(&session, |manifest| {
        let entry = manifest.table.as_mut().expect("it was made");
        (entry.bytes, entry.checksum, entry.rows) = (table.len() as u64, FileChecksum::of(&table).to_string(), rows);
    });
    assert_eq!(problems(&session), [""; 0]);
    let exit = run_on("verify", &session, &[]);
    assert_eq!(exit.code, Some(1));
    assert!(exit.stderr.contains("spans.parquet: it has "), "{}", exit.stderr);
}

#[test]
fn what_was_not_checked_is_listed() {
    let (_folder, session) = recorded("damage-unchecked", "", &Packets::program(20_000));
    assert!(!run_on("verify", &session, &[]).success().text().contains("not checked"));
    fs::write(session.join("notes.txt"), "mine").expect("room on disk");
    fs::remove_file(session.join(TABLE)).expect("it was made");
    change_manifest(&session, |manifest| manifest.table = None);
    let said = run_on("verify", &session, &[]).success().text().to_string();
    assert!(said.contains("not checked: notes.txt"), "{said}");
    assert!(said.contains("not checked: spans.parquet: it is not made yet"), "{said}");
    let (_folder, live) = recorded("damage-live", ",spans=live", &Packets::program(20_000));
    let said = run_on("verify", &live, &[]).success().text().to_string();
    assert!(said.contains("not checked: spans.parquet against the events"), "{said}");
}

#[test]
fn time_that_runs_backward_and_events_that_are_there_twice_are_noticed() {
    let mut packets = Packets::default();
    packets.describe();
    packets.frame((0, 3, 0), 5_000, 6_000, |_| {});
    packets.frame((0, 3, 0), 4_000, 7_000, |_| {});
    let (folder, session) = recorded("damage-order", "", &packets.bytes);
    assert_eq!(problems(&session), ["thread_0: time runs backward 1 times, first at event 2"]);
    drop(folder);

    let (folder, session) = recorded("damage-twice", "", &Packets::program(20_000));
    let again = ingest_packets(&folder, &folder.join("traces"), "", &Packets::program(20_000), &[]).remove(1);
    assert_eq!((problems(&session), problems(&again)), (Vec::new(), Vec::new()), "each alone is whole");
    let both = verify(&folder.join("traces")).expect("they are there");
    assert!(both[0].problems.is_empty() && both[1].problems.len() == 2, "{both:?}");
    assert!(both[1].problems[0].starts_with("thread_0: its events 0 to "), "{both:?}");
}
