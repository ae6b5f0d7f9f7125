//! The repository is what its documents say.

mod dependencies;
mod fixtures;
mod readme;
mod tree;

use std::path::PathBuf;

/// The top of the repository.
fn root() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the tests are in the repository").to_path_buf()
}

/// The text of a file of the repository.
fn text(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
