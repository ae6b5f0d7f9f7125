//! The guide `docs/finding-a-slow-function.md`: its commands do what it says, and print what it shows.
//!
//! Commands are in blocks of `sh`, and what the last of them prints in a block of `text` behind it. Times and numbers
//! differ from run to run, so only names are compared, line by line and in the same order: `…` stands for what was left
//! out, alone for lines, and at the end of a line for the rest of it.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use tests::{
    Folder, Process, agent_command,
    process::{Stdout, build},
};

const GUIDE: &str = include_str!("../../../../docs/finding-a-slow-function.md");
const PATIENCE: Duration = Duration::from_secs(60);
const LEFT_OUT: &str = "…";
const UNITS: [&str; 4] = ["ns", "µs", "ms", "s"];

/// The sections that have commands.
const QUADRATIC: &str = "A quadratic loop";
const CONVOY: &str = "A lock convoy";
const STARVED: &str = "A starved queue";

/// Commands of the guide, and what it shows that the last of them prints.
#[derive(Debug)]
struct Step {
    section: String,
    commands: String,
    shown: Vec<String>,
}

fn steps() -> Vec<Step> {
    let (mut steps, mut section, mut block): (Vec<Step>, _, _) = (Vec::new(), String::new(), None);
    for line in GUIDE.lines() {
        match (block, line) {
            (None, "```sh") => {
                block = Some("sh");
                steps.push(Step { section: section.clone(), commands: String::new(), shown: Vec::new() });
            }
            (None, "```text") => block = Some("text"),
            (None, line) => section = line.strip_prefix("## ").map_or(section, String::from),
            (Some(_), "```") => block = None,
            (Some("sh"), line) => steps.last_mut().expect("a step").commands += &format!("{line}\n"),
            (Some(_), line) => steps.last_mut().expect("output follows commands").shown.push(line.into()),
        }
    }
    steps
}

/// Where the commands of a section run, and what they have printed.
struct Reader {
    folder: Folder,
    path: OsString,
    printed: String,
}

impl Reader {
    /// In a folder that has what they need of a clone.
    fn new(name: &str, runtimes: Option<&Path>) -> Self {
        let folder = Folder::new(name);
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
        symlink(fs::canonicalize(fixtures).expect("it is there"), folder.join("fixtures")).expect("linked");
        if let Some(runtimes) = runtimes {
            fs::create_dir(folder.join("target")).expect("a folder");
            symlink(runtimes, folder.join("target/runtimes")).expect("linked");
        }
        let binaries = [agent_command::binary().to_path_buf(), build("collector")];
        let places = binaries.iter().filter_map(|binary| binary.parent()).map(PathBuf::from);
        let before = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(places.chain(env::split_paths(&before))).expect("a path");
        Self { folder, path, printed: String::new() }
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        agent_command::private(&mut command);
        command.args(["-euc", script]).env("PATH", &self.path).current_dir(&self.folder);
        command
    }

    /// Runs what a section says, and compares.
    #[track_caller]
    fn follow(&mut self, section: &str) {
        for step in steps().into_iter().filter(|step| step.section == section) {
            if let Some(rest) = step.commands.strip_prefix("collector view ") {
                self.look(rest);
                continue;
            }
            let exit = Process::start(self.shell(&step.commands), Stdout::Collect).exit(PATIENCE);
            assert_eq!(exit.code, Some(0), "{}{}", step.commands, exit.stderr);
            let mut lines = exit.text().lines();
            for shown in step.shown.iter().filter(|shown| shown.trim() != LEFT_OUT) {
                let is_there = lines.any(|line| is_like(line, shown));
                assert!(is_there, "{}does not print, in this order:\n{shown}\nbut:\n{}", step.commands, exit.text());
            }
            self.printed += exit.text();
        }
    }

    /// Starts the viewer, which goes on until it is ended.
    #[track_caller]
    fn look(&self, arguments: &str) {
        let mut command = self.shell(&format!("exec collector view --no-open {arguments}"));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("sh starts");
        let mut line = String::new();
        let read = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
        child.kill().expect("it goes on");
        child.wait().expect("it ends");
        assert!(read.is_ok() && line.starts_with("http://127.0.0.1:"), "it says where to look: {line}");
    }
}

/// Whether a line has the same names as the one that is shown.
fn is_like(line: &str, shown: &str) -> bool {
    match shown.trim_end().strip_suffix(LEFT_OUT) {
        Some(start) => names(line).starts_with(&names(start)),
        None => names(line) == names(shown),
    }
}

/// The words of a line that are neither numbers nor units.
fn names(line: &str) -> Vec<&str> {
    let is_name = |word: &str| word.starts_with(|first: char| first.is_alphabetic() || "_[(\"".contains(first));
    line.split_whitespace().filter(|word| is_name(word) && !UNITS.contains(&word.trim_end_matches(','))).collect()
}

/// Where the programs are that `fixtures/runtimes/build.sh` has made. Where they are not, the test that asked is over, and
/// says so. Where `SPOOR_RUNTIMES` is set it fails.
fn runtimes() -> Option<PathBuf> {
    const HOW: &str =
        "fixtures/runtimes/build.sh FOLDER && SPOOR_RUNTIMES=FOLDER cargo test --workspace --test end_to_end guide";
    let Some(folder) = env::var_os("SPOOR_RUNTIMES").map(PathBuf::from) else {
        let _ = writeln!(io::stderr(), "SKIPPED the guide's part about Dispatch: the runtimes are not here ({HOW})");
        return None;
    };
    assert!(folder.join("starved-O0").is_file(), "there is no starved-O0 where SPOOR_RUNTIMES says: {HOW}");
    Some(fs::canonicalize(folder).expect("it is there"))
}

#[test]
fn all_commands_are_tried() {
    let tried = [QUADRATIC, CONVOY, STARVED];
    for step in steps() {
        assert!(tried.contains(&step.section.as_str()), "nobody tries what {} says: {}", step.section, step.commands);
    }
    for section in tried {
        let shown = steps().iter().filter(|step| step.section == section && !step.shown.is_empty()).count();
        assert!(shown >= 3, "{section} shows what its commands print");
    }
}

#[test]
fn names_are_compared_and_times_are_not() {
    let line = "  33.2 %   466.805 ms self   102.988 µs         180×        pthread_mutex_lock  [libc.so.6]";
    assert!(is_like(line, "  1.0 % 1 s self 1 ns 1× pthread_mutex_lock  [libc.so.6]"));
    assert!(is_like(line, "  1.0 % 1 s self 1 ns 1× pthread_mutex_lock  …"));
    assert!(!is_like(line, "  33.2 %   466.805 ms self   102.988 µs         180×        read_cache …"));
    assert!(!is_like(line, "  33.2 %   466.805 ms self   102.988 µs         180×        pthread_mutex_lock"));
}

#[test]
fn a_quadratic_loop_is_found() {
    let mut reader = Reader::new("guide-quadratic", None);
    reader.follow(QUADRATIC);
    for calls in ["19,900", "79,800", "+59,900"] {
        assert!(reader.printed.contains(calls), "{calls} calls: {}", reader.printed);
    }
}

#[test]
fn a_lock_convoy_is_found() {
    let mut reader = Reader::new("guide-convoy", None);
    reader.follow(CONVOY);
    // Who holds it has only one lock, and it is one that those have who wait.
    let takes: Vec<_> =
        reader.printed.lines().filter_map(|line| line.split_once(" thread ")?.1.split_once(" lock ")).collect();
    let threads_of = |wanted: &str| takes.iter().filter(|(_, lock)| *lock == wanted).count();
    let most = takes.iter().map(|(_, lock)| threads_of(lock)).max();
    assert_eq!(most, Some(4), "{takes:?}");
}

#[test]
fn a_starved_queue_is_found() {
    let Some(runtimes) = runtimes() else { return };
    let mut reader = Reader::new("guide-starved", Some(&runtimes));
    reader.follow(STARVED);
    assert!(reader.printed.contains("waited"), "{}", reader.printed);
}
