//! Programs that nobody here wrote, as data: what each is to do, the same every time, so that it can be run as it is and
//! traced, and both compared.

mod beside;
mod compilers;
mod files;
mod interpreters;
mod load;
mod runtimes;
mod servers;
mod tools;

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
};

pub use beside::{Beside, sweep};
pub use files::words;
pub use load::{Served, serve};

use crate::Run;

/// A program, and what it is to do.
#[derive(Debug, Clone, Copy)]
pub struct Foreign {
    /// What it is called in the table; no two have the same.
    pub name: &'static str,
    /// What kind of program it is.
    pub group: Group,
    /// The Debian package that has it, and those that it needs besides, with spaces between.
    packages: &'static str,
    /// Its command, or its path, in which one part may have a `*`.
    program: &'static str,
    /// `{port}`, `{folder}`, `{here}` and `{page}` in these stand for a free port, the folder that it runs in, the folder
    /// that it lies in, and the address of a page on this machine.
    arguments: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    stdin: fn() -> String,
    prepare: fn(&Path),
    /// Files that lie in its folder, in which the same stands for the same.
    files: &'static [(&'static str, &'static str)],
    /// What is left of what it prints, where that is not the same every time.
    alike: Option<fn(&str) -> String>,
    /// Whether the files that it leaves in its folder are the same every time.
    tidy: bool,
    load: Option<Load>,
    /// The exit code that it ends with, as shells tell it: 128 and the signal where one ends it.
    exits: i32,
    /// Whether it must not be run by the superuser, and is run by `nobody` instead.
    unprivileged: bool,
}

/// What kind of program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Does one thing and ends.
    Tool,
    /// Reads a program and does what it says.
    Interpreter,
    /// Makes one program of another.
    Compiler,
    /// Keeps tables.
    Database,
    /// Answers others, under load.
    Server,
    /// Compiles what it runs, or has threads of its own.
    Runtime,
    /// Has several stacks in a thread.
    Coroutines,
}

/// What is asked of a server.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Asks, and tells what was answered.
    ask: fn(&Served) -> String,
    /// The signal that ends it in order, without `SIG`.
    end: &'static str,
}

impl Foreign {
    const fn new(group: Group, name: &'static str, packages: &'static str) -> Self {
        Self {
            name,
            group,
            packages,
            program: name,
            arguments: &[],
            variables: &[],
            stdin: String::new,
            prepare: files::text,
            files: &[],
            alike: None,
            tidy: true,
            load: None,
            exits: 0,
            unprivileged: false,
        }
    }

    const fn program(mut self, program: &'static str) -> Self {
        self.program = program;
        self
    }

    const fn arguments(mut self, arguments: &'static [&'static str]) -> Self {
        self.arguments = arguments;
        self
    }

    const fn variables(mut self, variables: &'static [(&'static str, &'static str)]) -> Self {
        self.variables = variables;
        self
    }

    const fn stdin(mut self, stdin: fn() -> String) -> Self {
        self.stdin = stdin;
        self
    }

    const fn prepared_by(mut self, prepare: fn(&Path)) -> Self {
        self.prepare = prepare;
        self
    }

    const fn files(mut self, files: &'static [(&'static str, &'static str)]) -> Self {
        self.files = files;
        self
    }

    const fn alike(mut self, alike: fn(&str) -> String) -> Self {
        self.alike = Some(alike);
        self
    }

    /// The files that it leaves in its folder are not the same every time.
    const fn untidy(mut self) -> Self {
        self.tidy = false;
        self
    }

    /// A server that is asked this, and ended by `SIGTERM`.
    const fn asked(mut self, ask: fn(&Served) -> String) -> Self {
        self.load = Some(Load { ask, end: "TERM" });
        self
    }

    /// Ended by this signal instead.
    const fn ended_by(mut self, end: &'static str) -> Self {
        if let Some(load) = &mut self.load {
            load.end = end;
        }
        self
    }

    const fn exits(mut self, code: i32) -> Self {
        self.exits = code;
        self
    }

    const fn unprivileged(mut self) -> Self {
        self.unprivileged = true;
        self
    }

    /// All of them, group by group.
    pub fn all() -> Vec<Self> {
        let parts =
            [tools::TOOLS, interpreters::INTERPRETERS, compilers::COMPILERS, runtimes::RUNTIMES, servers::SERVERS];
        let mut all = parts.concat();
        all.sort_by_key(|foreign| foreign.group);
        all
    }

    /// The one of this name.
    #[track_caller]
    pub fn named(name: &str) -> Self {
        let found = Self::all().into_iter().find(|foreign| foreign.name == name);
        found.unwrap_or_else(|| panic!("no program in the catalogue is called {name}"))
    }

    /// Where it is, if it is here.
    pub fn path(&self) -> Option<PathBuf> {
        match self.program.split_once('*') {
            None => installed(self.program),
            Some((before, after)) => matching(before, after),
        }
    }

    /// The packages to install before it can be run.
    pub fn missing(&self) -> Vec<&'static str> {
        let known = |package: &str| {
            let list = |name: String| Path::new("/var/lib/dpkg/info").join(name + ".list").exists();
            list(package.into()) || list(format!("{package}:amd64"))
        };
        let packages = self.packages.split(' ');
        // The program may be here without its package.
        let skipped = usize::from(self.path().is_some());
        packages.skip(skipped).filter(|package| skipped == 0 || !known(package)).collect()
    }

    /// The same as a run that loses nothing, for tests that look closely. `None` where the program is not here. Not for
    /// servers, and not for what has `{…}` in its arguments.
    pub fn run(&self) -> Option<Run> {
        let run = Run::of(self.path()?).arguments(self.arguments).stdin((self.stdin)()).prepared_by(self.prepare);
        let run = self.variables.iter().fold(run, |run, (name, value)| run.variable(name, value));
        Some(run)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tool => "tool",
            Self::Interpreter => "interpreter",
            Self::Compiler => "compiler",
            Self::Database => "database",
            Self::Server => "server",
            Self::Runtime => "runtime",
            Self::Coroutines => "coroutines",
        })
    }
}

/// Where a command is. Debian's own goes before others: some machines have scripts of the same name in front.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = ["/usr/bin", "/bin", "/usr/sbin"].into_iter().map(PathBuf::from).chain(env::split_paths(&path));
    places.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()))
}

/// The last file whose path starts and ends like this, with a part of one name between.
pub fn matching(before: &str, after: &str) -> Option<PathBuf> {
    let (folder, start) = before.rsplit_once('/')?;
    let names = fs::read_dir(folder).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let paths =
        names.filter(|name| name.starts_with(start)).map(|name| PathBuf::from(format!("{folder}/{name}{after}")));
    paths.filter(|path| path.is_file()).max()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_are_sixty_of_all_kinds() {
        let all = Foreign::all();
        let names: BTreeSet<_> = all.iter().map(|foreign| foreign.name).collect();
        assert_eq!(names.len(), all.len(), "no name is there twice");
        assert!(names.iter().all(|name| !name.contains('/')), "folders are named by them");
        assert!(all.len() >= 60, "{} programs", all.len());
        let groups: BTreeSet<_> = all.iter().map(|foreign| foreign.group).collect();
        assert_eq!(groups.len(), 7, "{groups:?}");
    }

    #[test]
    fn a_part_of_a_path_may_be_a_star() {
        assert_eq!(matching("/proc/sel", "/stat"), Some("/proc/self/stat".into()));
        assert_eq!(matching("/proc/sel", "/nothing"), None);
    }
}
