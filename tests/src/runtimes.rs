//! Programs that use the real Dispatch and the real Swift.

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
};

/// A program that `build.sh` has made.
///
/// Where there is none, the test that asked is over, and says so. Where `SPOOR_RUNTIMES` is set it fails.
pub fn program(name: &str) -> Option<PathBuf> {
    const HOW: &str =
        "fixtures/runtimes/build.sh FOLDER && SPOOR_RUNTIMES=FOLDER cargo test --workspace --test end_to_end runtimes";
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
