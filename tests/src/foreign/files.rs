//! What lies in the folders that programs run in.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};

use super::installed;

/// Lines of words that are always the same, in no order.
pub fn words(lines: u32) -> String {
    let mut seed = 12_345_u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        seed >> 16
    };
    (0..lines).map(|line| format!("{} word{} line {line} {}\n", next() % 1000, next() % 50, next())).collect()
}

/// Writes a file. It is as old every time: archives tell.
fn put(path: &Path, text: &str) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let written = fs::write(path, text).and_then(|()| File::options().write(true).open(path)?.set_modified(then));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// A file of words.
pub(super) fn text(folder: &Path) {
    put(&folder.join("text"), &words(2000));
}

/// Several folders with a file of words each.
pub(super) fn texts(folder: &Path) {
    for number in 0..5 {
        let inner = folder.join(format!("folder{number}"));
        fs::create_dir(&inner).expect("a folder");
        put(&inner.join("text"), &words(200));
    }
}

/// Two files of words that are not the same.
pub(super) fn two_texts(folder: &Path) {
    text(folder);
    let others = words(2500).lines().filter(|line| !line.contains("word7 ")).collect::<Vec<_>>().join("\n");
    put(&folder.join("other"), &others);
}

/// What keeps git to itself, and has its history be the same every time.
pub(super) const GIT: &[(&str, &str)] = &[
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "Somebody"),
    ("GIT_AUTHOR_EMAIL", "somebody@example.org"),
    ("GIT_AUTHOR_DATE", "2024-01-01T12:00:00Z"),
    ("GIT_COMMITTER_NAME", "Somebody"),
    ("GIT_COMMITTER_EMAIL", "somebody@example.org"),
    ("GIT_COMMITTER_DATE", "2024-01-01T12:00:00Z"),
];

/// A repository with a history.
pub(super) fn repository(folder: &Path) {
    let git = |arguments: &[&str]| {
        let mut command = Command::new(installed("git").expect("whoever asks for this has looked for git"));
        command.envs(GIT.iter().copied()).args(arguments).current_dir(folder);
        run(&mut command);
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    for number in 1..=10 {
        fs::write(folder.join("text"), words(number * 20)).expect("room on disk");
        fs::write(folder.join(format!("file{number}")), words(number)).expect("room on disk");
        git(&["add", "."]);
        git(&["commit", "--quiet", "-m", &format!("change {number}")]);
    }
    fs::write(folder.join("text"), words(7)).expect("room on disk");
    fs::write(folder.join("new"), "new").expect("room on disk");
}

/// The same command by a user who is not the superuser: `nobody`, as far as it can tell. To all others it is who it was,
/// so that it may do what we may with our files.
pub(super) fn as_nobody(command: &Command) -> Command {
    let mut other = Command::new("unshare");
    other.args(["--user", "--map-user=65534", "--map-group=65534", "--"]);
    other.arg(command.get_program()).args(command.get_args());
    other
}

/// Runs a command that prepares something. Fails the test where it fails.
#[track_caller]
pub(super) fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A program in C, as its compilers get it.
pub(super) const C: &str = r#"
extern int printf(const char *, ...);
struct node { int key; struct node *left, *right; };
static struct node nodes[64];
static int used;
static struct node *insert(struct node *at, int key) {
    if (!at) { at = &nodes[used++]; at->key = key; return at; }
    if (key < at->key) at->left = insert(at->left, key); else at->right = insert(at->right, key);
    return at;
}
static int depth(struct node *at) {
    if (!at) return 0;
    int left = depth(at->left), right = depth(at->right);
    return 1 + (left > right ? left : right);
}
double mean(const double *values, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum += values[i];
    return count ? sum / count : 0;
}
int main(void) {
    struct node *root = 0;
    unsigned seed = 1;
    for (int i = 0; i < 50; i++) { seed = seed * 1103515245u + 12345u; root = insert(root, seed >> 16 & 1023); }
    double values[] = {1, 2.5, 4};
    printf("%d %d %f\n", depth(root), used, mean(values, 3));
    return 0;
}
"#;
