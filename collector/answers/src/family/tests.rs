//! Families whose manifests say anything.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

use codec::atf::{Manifest, ProcessEntry};

use super::*;

/// A session: its id, its parent with the time of its birth, and from when on it has events.
type Session = (u8, Option<(u8, u64)>, u64);

/// A directory with sessions.
struct Scene(PathBuf);

impl Scene {
    fn new(sessions: &[Session]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("spoor-family-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for (place, (id, parent, start)) in sessions.iter().enumerate() {
            let session = dir.join(format!("20260101-000000-{place}"));
            fs::create_dir_all(&session).expect("made");
            let birth = parent.map(|(parent, at_ns)| BirthEntry {
                parent: SessionId([parent; 16]).to_string(),
                how: "forked".into(),
                tid: Some(7),
                at_ns,
                ..BirthEntry::default()
            });
            let process = ProcessEntry { pid: (*id).into(), executable: "/bin/sh".into(), ..ProcessEntry::default() };
            let manifest = Manifest {
                session: Some(SessionId([*id; 16]).to_string()),
                process: Some(process),
                birth,
                time_start_ns: *start,
                ..Manifest::default()
            };
            fs::write(session.join("manifest.json"), manifest.to_json().expect("valid")).expect("written");
        }
        Self(dir)
    }

    fn family(&self) -> Family {
        Family::of(sinks::disk::sessions_in(&self.0).expect("they are there"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parents(family: &Family) -> Vec<Parent> {
    family.members.iter().map(|member| member.parent).collect()
}

#[test]
fn children_are_below_their_parents_in_the_order_of_their_births() {
    let scene = Scene::new(&[(3, Some((1, 9)), 0), (1, None, 0), (2, Some((1, 5)), 0), (4, Some((3, 1)), 0)]);
    let family = scene.family();
    assert_eq!(parents(&family), [Parent::Known(1), Parent::None, Parent::Known(1), Parent::Known(0)]);
    assert_eq!(family.below(family.roots().collect::<Vec<_>>()), [(1, 0), (2, 1), (0, 1), (3, 2)]);
    assert_eq!((family.root_of(3), family.root_of(1)), (1, 1));
    let chosen = Chosen::open(&scene.0);
    assert_eq!(chosen.all(), [(1, 0), (2, 1), (0, 1), (3, 2)], "the family of the latest, from its root");
    let chosen = Chosen::open(&scene.0.join("20260101-000000-0"));
    assert_eq!(chosen.all(), [(0, 0), (3, 1)], "a session, and what came from it");
}

#[test]
fn who_would_be_their_own_ancestors_are_taken_apart_once() {
    // One is its own parent, three are in a circle, and one hangs below the circle.
    let scene = Scene::new(&[
        (1, Some((1, 0)), 0),
        (2, Some((3, 0)), 0),
        (3, Some((4, 0)), 0),
        (4, Some((2, 0)), 0),
        (5, Some((3, 0)), 0),
    ]);
    let family = scene.family();
    let expected = [Parent::Circular, Parent::Circular, Parent::Known(3), Parent::Known(1), Parent::Known(2)];
    assert_eq!(parents(&family), expected);
    let shown = family.below(family.roots().collect::<Vec<_>>());
    assert_eq!(shown, [(0, 0), (1, 0), (3, 1), (2, 2), (4, 3)], "each is shown once");
}

#[test]
fn a_parent_may_be_missing_or_split() {
    let scene = Scene::new(&[
        (1, None, 0),
        (1, None, 100),
        (2, Some((1, 50)), 0),
        (3, Some((1, 150)), 0),
        (4, Some((9, 0)), 0),
    ]);
    let family = scene.family();
    let expected = [Parent::None, Parent::None, Parent::Known(0), Parent::Known(1), Parent::Missing];
    assert_eq!(parents(&family), expected);
    fs::write(scene.0.join("20260101-000000-0/manifest.json"), b"not a manifest").expect("written");
    assert_eq!(parents(&scene.family())[2], Parent::Known(1), "what cannot be read is nobody's parent");
}

#[test]
fn the_process_that_is_meant_is_taken() {
    // 2 and 3 came from 1; 4 stands alone, and has the number of 2.
    let scene = Scene::new(&[(1, None, 0), (2, Some((1, 5)), 5), (3, Some((2, 9)), 9), (2, None, 0)]);
    let meant = |dir: &Path, wanted: &str| {
        Chosen::process(dir, wanted).map(|chosen| (chosen.first.clone(), chosen.note.is_some()))
    };
    let first = scene.0.join("20260101-000000-0");
    assert_eq!(meant(&scene.0, "3").expect("a process id"), (vec![2], false));
    assert_eq!(meant(&scene.0, "2").expect("two of them"), (vec![3], true), "of several, the latest");
    assert_eq!(meant(&scene.0, "20260101-000000-1").expect("a name"), (vec![1], false));
    assert_eq!(meant(&scene.0, "sh (1)").expect("a label"), (vec![0], false));
    assert_eq!(meant(&scene.0, "sh").expect("a program"), (vec![3], true));
    assert_eq!(meant(&first, "2").expect("one of its children").0, [1], "what is beside a family is not of it");
    let error = meant(&scene.0, "4711").expect_err("none").to_string();
    assert!(error.contains("no process is \"4711\"; there are: sh (1), 20260101-000000-0; sh (2)"), "{error}");
}
