//! Programs that nobody here wrote, with all their functions hooked: each does what it does untraced.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use codec::atf::LimitEntry;
use tests::{
    Run, Target, Trace, Traced, Transport, agent_command, counts,
    depths::Stacks,
    foreign::{self, Foreign, words},
    python::{say_skipped, skip},
    traced::LOSSLESS,
};

/// Where a program is. Where it is missing, the test that asked is over, and says so. With `SPOOR_REQUIRE_PROGRAMS=1` it
/// fails.
pub(crate) fn installed(program: &str, package: &str) -> Option<PathBuf> {
    let found = foreign::installed(program);
    if found.is_none() {
        skip(&format!("{program} (apt-get install {package})"));
    }
    found
}

/// A program of the catalogue, as a run. Where it is missing, the same.
fn catalogued(name: &str) -> Option<Run> {
    let run = Foreign::named(name).run();
    if run.is_none() {
        skip(&format!("{name} (apt-get install {})", Foreign::named(name).missing().join(" ")));
    }
    run
}

/// What holds for every program: unharmed, nothing lost, calls and returns in order, libraries traced.
#[track_caller]
fn unharmed(run: Run) -> Traced {
    let traced = run.trace();
    traced.sound().depths(Stacks::One).ended_as_it_did();
    let libc = traced.trace.manifest.modules.iter().find(|module| module.path.contains("/libc.so"));
    let libc = libc.expect("the program uses the library of C").id;
    assert!(traced.trace.threads.values().flatten().any(|event| event.function.module().0 == libc));
    traced
}

#[test]
fn ls() {
    let Some(run) = catalogued("ls") else { return };
    unharmed(run);
}

#[test]
fn addresses_that_are_not_random_leave_room() {
    let Some(setarch) = installed("setarch", "util-linux") else { return };
    let plain = Target::named("plain").program();
    let arguments = [OsStr::new("-R"), plain.as_os_str()];
    for engine in ["native", "frida"] {
        let traced = Run::of(&setarch).arguments(&arguments).with(&["--engine", engine, "--no-detail"]).trace();
        traced.sound();
        let is_plain = |trace: &&Trace| trace.manifest.modules.iter().any(|module| Path::new(&module.path) == plain);
        let trace = traced.all().find(is_plain).expect("it was run");
        for name in ["leaf", "main", "_dl_fini", "exit"] {
            assert!(counts::of_functions(trace, name).calls > 0, "{engine}: {name}; {}", traced.traced.stderr);
        }
        assert!(trace.manifest.limits.iter().all(|limit| limit.reason != "module-not-hooked"));
    }
}

#[test]
fn gzip_there_and_back() {
    let (Some(gzip), Some(run)) = (installed("gzip", "gzip"), catalogued("gzip")) else { return };
    let packed = unharmed(run);
    let run = Run::of(&gzip).arguments(&["-d", "-c"]).stdin(packed.traced.stdout).over(Transport::Tcp);
    let unpacked = unharmed(run);
    assert_eq!(unpacked.traced.text(), words(2000), "back again");
}

#[test]
fn sort() {
    let (Some(sort), Some(run)) = (installed("sort", "coreutils"), catalogued("sort")) else { return };
    unharmed(run);
    let run = Run::of(&sort).arguments(&["-u", "-r", "-o", "sorted"]).stdin(words(1000)).over(Transport::Tcp);
    unharmed(run);
}

#[test]
fn grep() {
    let (Some(grep), Some(run)) = (installed("grep", "grep"), catalogued("grep")) else { return };
    unharmed(run);
    let none = unharmed(Run::of(&grep).arguments(&["there is no such line", "-"]).stdin(words(2000)));
    assert_eq!(none.traced.code, Some(1));
}

#[test]
fn find() {
    let (Some(find), Some(run)) = (installed("find", "findutils"), catalogued("find")) else { return };
    let arguments = ["/usr/include", "-name", "*.h", "-size", "+8k", "-newermt", "2000-01-01"];
    unharmed(Run::of(&find).arguments(&arguments).with(&["--no-detail"]));
    unharmed(run);
}

#[test]
fn perl() {
    let Some(run) = catalogued("perl") else { return };
    unharmed(run.with(&["--no-detail"]));
}

/// These change what all threads of a process have in common, or what only a process with one thread may change: Frida's
/// threads are gone before.
#[test]
fn programs_that_must_be_alone() {
    for (program, arguments) in [
        ("setpriv", &["--reuid", "1000", "--clear-groups", "id", "-u"][..]),
        ("setpriv", &["--bounding-set", "-all", "--reuid", "1000", "--clear-groups", "true"]),
        ("unshare", &["--user", "--map-root-user", "id", "-u"]),
    ] {
        let Some(path) = installed(program, "util-linux") else { return };
        for engine in ["frida", "native"] {
            let run = Run::of(path.clone()).arguments(arguments).over(Transport::Tcp);
            let traced = run.with(&["--engine", engine]).trace();
            if traced.untraced.code != Some(0) {
                say_skipped(&format!("the right to run {program} {}", arguments.join(" ")));
                continue;
            }
            traced.sound().ended("replaced", None);
            let limits = &traced.trace.manifest.limits;
            let has_left = |limit: &LimitEntry| limit.reason == "frida-gone" && limit.detail.contains("alone");
            // Nobody has to leave where nobody is.
            assert_eq!(limits.iter().any(has_left), engine == "frida", "{limits:?}");
        }
    }
}

#[test]
fn python() {
    let Some(run) = catalogued("python3") else { return };
    unharmed(run.with(&["--no-detail"]));
}

#[test]
fn sqlite() {
    let Some(run) = catalogued("sqlite3") else { return };
    unharmed(run.with(&["--no-detail"]));
}

#[test]
fn git() {
    for others in
        [&["log", "--stat", "--graph"][..], &["status"], &["diff", "HEAD~3", "--color=always"], &["gc", "--quiet"]]
    {
        let Some(run) = catalogued("git") else { return };
        unharmed(run.instead(others).with(&["--no-detail"]));
    }
}

#[test]
fn curl() {
    let Some(curl) = installed("curl", "curl") else { return };
    let page = words(5000);
    let address = foreign::serve(page.clone().into_bytes());
    let run =
        Run::of(&curl).arguments(&["-sS", "--noproxy", "*", &format!("http://{address}/page")]).over(Transport::Tcp);
    let traced = unharmed(run);
    assert_eq!(traced.traced.text(), page);
    // Without its message, which says how long it took.
    let refused = unharmed(Run::of(&curl).arguments(&["-s", "--noproxy", "*", "http://127.0.0.1:1/"]));
    assert_ne!(refused.traced.code, Some(0));
}

#[test]
fn openssl_digests() {
    for others in [None, Some(&["sha256", "text"][..])] {
        let Some(run) = catalogued("openssl") else { return };
        unharmed(match others {
            Some(others) => run.instead(others),
            None => run,
        });
    }
}

#[test]
fn openssl_speed() {
    let Some(openssl) = installed("openssl", "openssl") else { return };
    // It does as much as it can in a second, and an alarm stops it.
    let run = Run::of(&openssl).arguments(&["speed", "-seconds", "1", "-bytes", "4096", "sha256"]);
    let traced = run.with(&["--no-detail"]).trace();
    traced.nothing_lost().times_rise().depths(Stacks::One).ended("exited", Some(0));
    // The figures differ, and nothing else.
    let shape = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).replace(|c: char| c.is_ascii_digit(), "");
        text.split_whitespace()
            .filter(|word| word.chars().any(char::is_alphabetic))
            .map(String::from)
            .collect::<Vec<_>>()
    };
    assert_eq!(shape(&traced.traced.stdout), shape(&traced.untraced.stdout));
    let figures = traced.traced.text().lines().find(|line| line.starts_with("sha256")).expect("the figures");
    assert!(figures.split_whitespace().nth(1).is_some_and(|figure| figure.ends_with('k')), "{figures}");
}

/// Those of the catalogue that every Debian has, or that `.ci/run` installs, and that have no test of their own. The
/// command `cargo foreign` runs them all.
const FOREIGN: [&str; 15] = [
    "sed",
    "diff",
    "tar",
    "readelf",
    "bash",
    "dash",
    "lua5.4",
    "gcc",
    "cc1plus",
    "as",
    "ld",
    "memcached",
    "nginx",
    "asyncio",
    "lua coroutines",
];

#[test]
fn others_of_the_catalogue() {
    agent_command::prepare();
    for name in FOREIGN {
        let program = Foreign::named(name);
        if !program.missing().is_empty() {
            skip(&format!("{name} (apt-get install {})", program.missing().join(" ")));
            continue;
        }
        let options = [LOSSLESS, &["--no-detail"]].concat();
        let beside = program.beside(&options).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(beside.harm, None, "{name}");
        assert!(beside.missing().is_empty() && beside.produced() > 0, "{name}: {:?}", beside.missing());
    }
}

/// A program that aborts where a return address is not its own, under names of functions by which runtimes are recognised.
#[test]
fn runtimes_that_look_up_return_addresses_find_them() {
    for name in ["reads_returns_ocaml", "reads_returns_plugin", "reads_returns_moar", "reads_returns_mono"] {
        let traced = Run::target(name).over(Transport::Tcp).with(&["--no-detail"]).trace();
        traced.sound().ended_as_it_did();
        let looks = traced.recorded("looks");
        assert_eq!((looks.calls, looks.returns), (100, 0), "{name}");
    }
}
