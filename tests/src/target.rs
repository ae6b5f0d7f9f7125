//! The target programs in `fixtures/targets`, compiled when a test needs them.

mod catalog;

use std::{
    collections::hash_map::DefaultHasher,
    env, fs,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

pub use catalog::TARGETS;

/// Flags that all C and C++ programs have.
const FLAGS: [&str; 5] = ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread"];

/// A program and the way to compile it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// What tests call it, and the name of the executable.
    pub name: &'static str,
    /// Its file in `fixtures/targets`.
    pub source: &'static str,
    /// What the compiler is told besides.
    pub flags: &'static [&'static str],
    /// Libraries that lie beside it.
    pub libraries: &'static [Library],
}

/// A library of a target program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Library {
    /// Its name, between `lib` and `.so`.
    pub name: &'static str,
    /// Its file in `fixtures/targets`.
    pub source: &'static str,
    /// Whether the program is linked to it, or loads it while it runs.
    pub linked: bool,
}

impl Target {
    /// The target of this name.
    #[track_caller]
    pub fn named(name: &str) -> Self {
        let target = TARGETS.iter().find(|target| target.name == name);
        *target.unwrap_or_else(|| panic!("there is no target program {name}"))
    }

    /// Its executable, compiled unless that has been done before. Two tests may ask for it at once.
    #[track_caller]
    pub fn program(&self) -> PathBuf {
        let folder = target_folder().join("targets").join(format!("{}-{:016x}", self.name, self.fingerprint()));
        if !folder.join(self.name).exists() {
            self.compile_into(&folder);
        }
        folder.join(self.name)
    }

    /// Compiles in a folder that nobody else knows, and then moves that to its place as a whole.
    #[track_caller]
    fn compile_into(&self, folder: &Path) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ORDERING: the numbers only have to differ.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let draft = folder.with_extension(format!("{}-{number}", process::id()));
        fs::create_dir_all(&draft).unwrap_or_else(|error| panic!("cannot make {}: {error}", draft.display()));
        for Library { name, source, .. } in self.libraries {
            let output = draft.join(format!("lib{name}.so"));
            run(compiler(source).args(["-O1", "-shared", "-fPIC", "-o"]).arg(output).arg(sources().join(source)));
        }
        let mut command = compiler(self.source);
        command.args(self.flags).arg("-o").arg(draft.join(self.name)).arg(sources().join(self.source));
        if ![".rs", ".go"].iter().any(|extension| self.source.ends_with(extension)) {
            command.arg("-lm");
        }
        if !self.libraries.is_empty() {
            command.arg("-L").arg(&draft).arg("-Wl,-rpath,$ORIGIN");
        }
        let linked = self.libraries.iter().filter(|library| library.linked);
        run(command.args(linked.map(|library| format!("-l{}", library.name))));
        if fs::rename(&draft, folder).is_err() {
            // Another test was first.
            let _ = fs::remove_dir_all(&draft);
        }
    }

    /// Changes with everything that the executable is made of.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self, FLAGS, env::var_os("CC"), env::var_os("CXX"), env::var_os("RUSTC")).hash(&mut hasher);
        let mut files: Vec<_> = self.libraries.iter().map(|library| sources().join(library.source)).collect();
        files.push(sources().join(self.source));
        files.extend(headers());
        files.sort();
        for file in files {
            let text = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            (file.file_name(), text).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Cargo's target folder: the tests that run are in it.
pub fn target_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let tests = env::current_exe().expect("the tests have a file");
        // They are in `deps` of the profile's folder in it, and the examples in `examples`.
        let deps = tests.ancestors().find(|folder| folder.ends_with("deps") || folder.ends_with("examples"));
        let folder = deps.and_then(Path::parent).and_then(Path::parent);
        folder.unwrap_or_else(|| panic!("{} is in no target folder", tests.display())).to_path_buf()
    })
}

/// Where the sources are.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/targets")
}

fn headers() -> Vec<PathBuf> {
    let entries = fs::read_dir(sources()).expect("fixtures/targets is there").flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "h")).collect()
}

/// The compiler of a file, with the flags that all files of its language have.
fn compiler(source: &str) -> Command {
    let named = |variable, otherwise: &str| env::var_os(variable).unwrap_or_else(|| otherwise.into());
    let extension = source.rsplit('.').next();
    let mut command = match extension {
        Some("rs") => Command::new(named("RUSTC", "rustc")),
        Some("go") => Command::new("go"),
        Some("cpp") => Command::new(named("CXX", "g++")),
        _ => Command::new(named("CC", "gcc")),
    };
    match extension {
        Some("rs") => command.args(["--edition", "2024"]),
        // Nothing from the network, nothing of the user's, and no C.
        Some("go") => command
            .envs([("GO111MODULE", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", ""), ("CGO_ENABLED", "0")])
            .env("GOCACHE", target_folder().join("targets/go"))
            .arg("build"),
        _ => command.args(FLAGS),
    };
    command
}

#[track_caller]
fn run(command: &mut Command) {
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("cannot run {command:?}: {error} (apt-get install gcc g++ libc6-dev)"),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, thread};

    use super::*;

    #[test]
    fn names_differ_and_sources_are_there() {
        let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name).collect();
        assert_eq!(names.len(), TARGETS.len());
        let used = TARGETS.iter().flat_map(|target| {
            target.libraries.iter().map(|library| library.source).chain([target.source]).map(String::from)
        });
        let entries = fs::read_dir(sources()).expect("fixtures/targets is there").flatten();
        let there = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let there: BTreeSet<_> = there.filter(|name| !name.ends_with(".h") && name != "README.md").collect();
        assert_eq!(there, used.collect(), "every source is a target's, and every target has a source");
    }

    #[test]
    fn tests_that_compile_at_once_get_the_same() {
        let at_once = Target { name: "at_once", ..Target::named("plain") };
        let _ = fs::remove_dir_all(at_once.program().parent().expect("a folder"));
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(move || at_once.program())).collect();
        let programs: BTreeSet<_> = threads.into_iter().map(|thread| thread.join().expect("it compiles")).collect();
        assert_eq!(programs.len(), 1);
        let program = programs.first().expect("one");
        assert!(Command::new(program).output().is_ok_and(|output| output.status.code() == Some(3)));
    }

    #[test]
    fn other_flags_make_another_program() {
        assert_ne!(Target::named("plain").fingerprint(), Target::named("plain_no_pie").fingerprint());
    }
}
