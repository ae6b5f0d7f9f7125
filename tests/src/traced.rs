//! A program run twice, once as it is and once traced, and what became of both.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use codec::FunctionId;
use real_agent::shared::Level;

use crate::{
    Collector, Exit, Folder, Process, Shaker, Target, Trace, Transport, agent_command,
    agent_command::PATIENCE,
    collector::verified,
    counts::{self, Count},
    depths::{self, Stacks},
    process::Stdout,
    shaker::{ALL_LEVELS, EXACT_LEVELS},
};

/// What every run is traced with, unless it says otherwise: nothing is lost.
pub const LOSSLESS: &[&str] = &["--complete"];

/// What is to be run.
#[derive(Debug)]
pub struct Run {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
    transport: Transport,
    options: Vec<String>,
    prepare: fn(&Path),
    shaken: Option<(u64, &'static [Level])>,
}

impl Run {
    /// A program, by its path or its name.
    pub fn of(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            stdin: Vec::new(),
            transport: Transport::Udp,
            options: LOSSLESS.iter().map(ToString::to_string).collect(),
            prepare: |_| {},
            shaken: None,
        }
    }

    /// A target program.
    #[track_caller]
    pub fn target(name: &str) -> Self {
        Self::of(Target::named(name).program())
    }

    /// With these arguments.
    pub fn arguments<S: AsRef<OsStr>>(mut self, arguments: &[S]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// With these arguments and no others.
    pub fn instead<S: AsRef<OsStr>>(mut self, arguments: &[S]) -> Self {
        self.arguments.clear();
        self.arguments(arguments)
    }

    /// With this in its environment.
    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// With this as its input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Traced over this.
    pub fn over(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Traced with these options besides.
    pub fn with(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(ToString::to_string));
        self
    }

    /// Traced with these options and no others: it may lose something.
    pub fn lossy(mut self, options: &[&str]) -> Self {
        self.options = options.iter().map(ToString::to_string).collect();
        self
    }

    /// In a folder that is made anew for each run, and filled by this.
    pub fn prepared_by(mut self, prepare: fn(&Path)) -> Self {
        self.prepare = prepare;
        self
    }

    /// With functions that go up and down at random while it is traced.
    pub fn shaken(mut self, seed: u64) -> Self {
        self.shaken = Some((seed, ALL_LEVELS));
        self
    }

    /// The same, with levels that leave no call untold.
    pub fn counting(mut self, seed: u64) -> Self {
        self.shaken = Some((seed, EXACT_LEVELS));
        self
    }

    /// Runs it as it is and then traced.
    #[track_caller]
    pub fn trace(self) -> Traced {
        agent_command::prepare();
        let folder = Folder::new("traced");
        let (untraced, _) = self.run(&folder, Command::new(&self.program), None);
        let collector = Collector::events_to_disk(&folder.join("traces"));
        let options: Vec<_> = self.options.iter().map(String::as_str).collect();
        let mut command = agent_command::run_to(collector.address(self.transport), self.transport, &options);
        command.arg(&self.program);
        let (traced, counts) = self.run(&folder, command, self.shaken);
        collector.stop().success();
        let (mut first, family) = Trace::all(&folder.join("traces"))
            .into_iter()
            .partition::<Vec<_>, _>(|trace| trace.manifest.birth.is_none());
        assert_eq!(first.len(), 1, "one session comes from no other; the agent said:\n{}", traced.stderr);
        let trace = first.remove(0);
        Traced { untraced, traced, trace, family, counts, program: self.program, folder }
    }

    /// Runs it once, in a folder that is always the same and always new, and reads what it counted.
    #[track_caller]
    fn run(
        &self,
        folder: &Folder,
        mut command: Command,
        shaken: Option<(u64, &'static [Level])>,
    ) -> (Exit, BTreeMap<String, Count>) {
        let (work, counts) = (folder.join("work"), folder.join("counts"));
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(&work).expect("a folder");
        (self.prepare)(&work);
        agent_command::private(&mut command);
        command.args(&self.arguments).current_dir(&work).env("SPOOR_COUNTS", &counts);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut process = Process::start(command, Stdout::Collect);
        let shaker = shaken.map(|(seed, levels)| Shaker::start(process.pid(), seed, levels));
        let (mut pipe, bytes) = (process.take_stdin().expect("stdin is piped"), self.stdin.clone());
        let writer = thread::spawn(move || pipe.write_all(&bytes));
        let exit = process.exit(PATIENCE);
        shaker.map(Shaker::stop);
        // A program need not read its input.
        let _ = writer.join();
        let counted = fs::read_to_string(&counts).unwrap_or_default();
        let _ = fs::remove_file(&counts);
        (exit, counts::parse(&counted))
    }
}

/// A program that was run as it is and traced.
#[derive(Debug)]
pub struct Traced {
    /// What it did by itself.
    pub untraced: Exit,
    /// What it did while it was traced, and what the agent said besides.
    pub traced: Exit,
    /// The trace.
    pub trace: Trace,
    /// Those of the processes that have come from it.
    pub family: Vec<Trace>,
    /// What the traced program counted, by the names of functions.
    pub counts: BTreeMap<String, Count>,
    /// The program.
    pub program: PathBuf,
    /// Where everything is.
    pub folder: Folder,
}

impl Traced {
    /// Fails the test unless everything holds that holds for every traced program.
    #[track_caller]
    pub fn sound(&self) -> &Self {
        self.same_behaviour().nothing_lost().times_rise();
        self.all().for_each(|trace| verified(&trace.folder));
        self
    }

    /// The traces of all processes.
    pub fn all(&self) -> impl Iterator<Item = &Trace> {
        [&self.trace].into_iter().chain(&self.family)
    }

    /// Fails the test unless the program did the same traced as by itself, to all who see it from outside.
    #[track_caller]
    pub fn same_behaviour(&self) -> &Self {
        let ending = |exit: &Exit| (exit.code, exit.signal);
        assert_eq!(ending(&self.traced), ending(&self.untraced), "how it ended; stderr:\n{}", self.traced.stderr);
        let text = |exit: &Exit| String::from_utf8_lossy(&exit.stdout).into_owned();
        assert_eq!(text(&self.traced), text(&self.untraced), "what it printed");
        assert_eq!(self.traced.stdout, self.untraced.stdout, "what it printed, to the byte");
        let (traced, _) = agent_command::apart(&self.traced);
        let (untraced, _) = agent_command::apart(&self.untraced);
        assert_eq!(traced, untraced, "what it printed to stderr");
        self
    }

    /// Fails the test unless every counted function was called, returned and was left otherwise just as often as the
    /// program says.
    #[track_caller]
    pub fn exact_counts(&self) -> &Self {
        assert!(!self.counts.is_empty(), "the program counted nothing");
        let recorded = self.own_functions();
        // What a signal handler calls while a call is being recorded is not recorded, and told to be missing.
        let limits = self.trace.manifest.limits.iter().filter(|limit| limit.reason == "interrupted");
        let mut left: u64 = limits.map(|limit| limit.count).sum();
        let wrong: Vec<_> = self
            .counts
            .iter()
            .map(|(name, counted)| (name, counted, recorded.get(name).copied().unwrap_or_default()))
            .filter(|(_, counted, recorded)| **counted != *recorded)
            .filter(|(_, counted, recorded)| !interrupted(counted, recorded, &mut left))
            .map(|(name, counted, recorded)| format!("{name}: counted {counted:?}, recorded {recorded:?}"))
            .collect();
        assert!(wrong.is_empty(), "{}:\n{}", self.trace.folder.display(), wrong.join("\n"));
        self
    }

    /// Fails the test unless every function was called just as often as the program says, by what was recorded and what was
    /// counted together.
    #[track_caller]
    pub fn exact_calls(&self) -> &Self {
        assert!(!self.counts.is_empty(), "the program counted nothing");
        let (recorded, counted) = (self.own_functions(), counts::turned_down(&self.trace));
        for (name, told) in &self.counts {
            let (recorded, counted) =
                (recorded.get(name).map_or(0, |count| count.calls), counted.get(name).unwrap_or(&0));
            let about = format!("{name}: {recorded} recorded and {counted} counted; {}", self.trace.folder.display());
            assert_eq!(recorded + counted, told.calls, "{about}");
        }
        self
    }

    /// Fails the test unless calls and returns fit each other.
    #[track_caller]
    pub fn depths(&self, stacks: Stacks) -> &Self {
        depths::consistent(&self.trace, stacks);
        self
    }

    /// Fails the test unless the trace holds all that the program did.
    #[track_caller]
    pub fn nothing_lost(&self) -> &Self {
        for Trace { manifest, .. } in self.all() {
            assert!(manifest.gaps.is_empty() && manifest.drops.is_empty(), "{:?} {:?}", manifest.gaps, manifest.drops);
            for thread in &manifest.threads {
                assert_eq!(thread.produced, thread.written, "thread {}", thread.id);
            }
        }
        assert!(!self.trace.is_empty(), "something was traced");
        self
    }

    /// Fails the test unless no event of a thread is before the one that came first.
    #[track_caller]
    pub fn times_rise(&self) -> &Self {
        for Trace { folder, threads, .. } in self.all() {
            for (thread, events) in threads {
                let sorted = events.is_sorted_by_key(|event| event.time_ns);
                assert!(sorted, "{}: the times of thread {thread}", folder.display());
            }
        }
        self
    }

    /// Fails the test unless the trace says that the program ended like this.
    #[track_caller]
    pub fn ended(&self, how: &str, code: Option<i32>) -> &Self {
        let end = self.trace.manifest.end.as_ref().map(|end| (end.how.as_str(), end.code));
        assert_eq!(end, Some((how, code)), "how the session ended");
        self
    }

    /// Fails the test unless the trace says that the program ended as it did.
    #[track_caller]
    pub fn ended_as_it_did(&self) -> &Self {
        match (self.untraced.code, self.untraced.signal) {
            (Some(code), _) => self.ended("exited", Some(code)),
            (None, signal) => self.ended("signaled", signal),
        }
    }

    /// Fails the test unless a library's functions were traced too: each under one of its names.
    #[track_caller]
    pub fn calls_libraries(&self, functions: &[&[&str]]) -> &Self {
        for names in functions {
            let calls: u64 = names.iter().map(|name| counts::of_functions(&self.trace, name).calls).sum();
            assert!(calls > 0, "no call of {names:?} in {}", self.trace.folder.display());
        }
        self
    }

    /// What the trace has of a function of the program or of a library that lies beside it, by its name as a target
    /// program says it: `+0x1139` is the function at that offset of the program.
    pub fn recorded(&self, name: &str) -> Count {
        self.own_functions().get(name).copied().unwrap_or_default()
    }

    /// What the trace has of the functions of the program and of libraries that lie beside it. Those of the program are
    /// there twice, by name and by offset.
    fn own_functions(&self) -> BTreeMap<String, Count> {
        let manifest = &self.trace.manifest;
        let paths: BTreeMap<_, _> =
            manifest.modules.iter().map(|module| (module.id, Path::new(&module.path))).collect();
        let counts = counts::of_trace(&self.trace);
        let mut own = BTreeMap::<String, Count>::new();
        for function in &manifest.functions {
            let id = FunctionId(function.id);
            let (Some(path), Some(count)) = (paths.get(&id.module().0), counts.get(&id)) else { continue };
            if path.parent() == self.program.parent() {
                let sum = own.entry(function.name.clone()).or_default();
                *sum = [*sum, *count].into_iter().sum();
            }
            if *path == self.program {
                own.insert(format!("+{:#x}", function.offset), *count);
            }
        }
        own
    }
}

/// Whether some calls of a function are missing, whole, and no more than may be. They are taken off what may be.
fn interrupted(counted: &Count, recorded: &Count, left: &mut u64) -> bool {
    let missing = |counted: u64, recorded: u64| counted.checked_sub(recorded);
    let calls = missing(counted.calls, recorded.calls);
    let leaves = missing(counted.returns + counted.unwound, recorded.returns + recorded.unwound);
    match (calls, leaves, calls.and_then(|calls| left.checked_sub(calls))) {
        (Some(calls), Some(leaves), Some(rest)) if calls == leaves => {
            *left = rest;
            true
        }
        _ => false,
    }
}
