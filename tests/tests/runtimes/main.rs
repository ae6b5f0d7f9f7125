//! The real runtimes: what is told of Grand Central Dispatch and of Swift's tasks, held against what programs say that
//! they did.
//!
//! The programs are in `fixtures/runtimes`, and `build.sh` there makes them and the runtimes. `SPOOR_RUNTIMES` says where.

mod dispatch;
mod runtime_event;
mod spans;
mod swift;

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Write},
    path::PathBuf,
    process::Command,
};

use tests::{Folder, Run, Traced};

/// A program that `build.sh` has made.
///
/// Where there is none, the test that asked is over, and says so. Where `SPOOR_RUNTIMES` is set it fails.
fn program(name: &str) -> Option<PathBuf> {
    const HOW: &str =
        "fixtures/runtimes/build.sh FOLDER && SPOOR_RUNTIMES=FOLDER cargo test --workspace --test runtimes";
    let found = env::var_os("SPOOR_RUNTIMES").map(|folder| PathBuf::from(folder).join(name));
    let found = found.filter(|path| path.is_file());
    if found.is_none() {
        let required = env::var_os("SPOOR_RUNTIMES").is_some();
        assert!(!required, "there is no {name} where SPOOR_RUNTIMES says: {HOW}");
        // What a test prints with the macros is shown only if it fails; this is to be seen.
        let _ = writeln!(io::stderr(), "SKIPPED a test of {name}: the runtimes are not here ({HOW})");
    }
    found
}

/// The same program without any symbols, and the runtimes without those that they do not export.
fn stripped(program: &str, folder: &Folder) -> Option<PathBuf> {
    let whole = self::program(program)?;
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
