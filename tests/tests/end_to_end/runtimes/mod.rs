//! The real runtimes: what is told of Grand Central Dispatch and of Swift's tasks, held against what programs say that
//! they did.
//!
//! The programs are in `fixtures/runtimes`, and `build.sh` there makes them and the runtimes. `SPOOR_RUNTIMES` says where.

mod dispatch;
mod runtime_event;
mod spans;
mod swift;

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use tests::{Folder, Run, Traced, runtimes::program};

/// The same program without any symbols, and the runtimes without those that they do not export.
fn stripped(program: &str, folder: &Folder) -> Option<PathBuf> {
    let whole = tests::runtimes::program(program)?;
    let libraries = whole.with_file_name("lib");
    fs::create_dir_all(folder.join("lib")).expect("a folder");
    let mut files = vec![(whole, folder.join(program))];
    for library in fs::read_dir(libraries).expect("the runtimes").flatten() {
        files.push((library.path(), folder.join("lib").join(library.file_name())));
    }
    for (from, to) in files {
        let done = Command::new("strip").arg("-s").arg("-o").arg(&to).arg(&from).status();
        assert!(done.is_ok_and(|status| status.success()), "cannot strip {}", from.display());
    }
    Some(folder.join(program))
}

/// Runs a program as it is and traced, and checks what holds for every traced program.
#[track_caller]
fn trace(program: PathBuf, rounds: u32, options: &[&str]) -> Traced {
    let traced = Run::of(program).arguments(&[rounds.to_string()]).with(options).trace();
    traced.sound();
    traced
}

/// What the program says it did.
fn did(traced: &Traced) -> BTreeMap<String, u64> {
    let text = String::from_utf8_lossy(&traced.traced.stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.strip_prefix("did ")?.split_once(' '));
    lines.map(|(name, times)| (name.into(), times.parse().expect("a number"))).collect()
}
