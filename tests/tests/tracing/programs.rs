//! Programs that nobody here wrote, with all their functions hooked: each does what it does untraced.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use codec::atf::LimitEntry;
use tests::{
    Run, Traced, Transport,
    depths::Stacks,
    python::{say_skipped, skip},
};

use crate::local_server;

/// Where a program is. Debian's own goes before others: some machines have scripts of the same name in front.
///
/// Where it is missing, the test that asked is over, and says so. With `SPOOR_REQUIRE_PROGRAMS=1` it fails.
pub(crate) fn installed(program: &str, package: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = ["/usr/bin", "/bin"].into_iter().map(PathBuf::from).chain(env::split_paths(&path));
    let found = places.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()));
    if found.is_none() {
        skip(&format!("{program} (apt-get install {package})"));
    }
    found
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

/// Lines of words that are always the same, in no order.
fn words(lines: u32) -> String {
    let mut seed = 12_345_u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        seed >> 16
    };
    (0..lines).map(|line| format!("{} word{} line {line} {}\n", next() % 1000, next() % 50, next())).collect()
}

fn text_file(folder: &Path) {
    fs::write(folder.join("text"), words(2000)).expect("room on disk");
}

fn text_files(folder: &Path) {
    for number in 0..5 {
        let inner = folder.join(format!("folder{number}"));
        fs::create_dir(&inner).expect("a folder");
        fs::write(inner.join("text"), words(200)).expect("room on disk");
    }
}

#[test]
fn ls() {
    let Some(ls) = installed("ls", "coreutils") else { return };
    unharmed(Run::of(ls).arguments(&["-la", "--color=always", "/usr/bin", "/etc"]));
}

#[test]
fn gzip_there_and_back() {
    let Some(gzip) = installed("gzip", "gzip") else { return };
    let packed = unharmed(Run::of(&gzip).arguments(&["-9", "-c", "-n", "text"]).prepared_by(text_file));
    let run = Run::of(&gzip).arguments(&["-d", "-c"]).stdin(packed.traced.stdout).over(Transport::Tcp);
    let unpacked = unharmed(run);
    assert_eq!(unpacked.traced.text(), words(2000), "back again");
}

#[test]
fn sort() {
    let Some(sort) = installed("sort", "coreutils") else { return };
    unharmed(Run::of(&sort).arguments(&["-k2,2", "-k1,1n", "text"]).prepared_by(text_file));
    let run = Run::of(&sort).arguments(&["-u", "-r", "-o", "sorted"]).stdin(words(1000)).over(Transport::Tcp);
    unharmed(run);
}

#[test]
fn grep() {
    let Some(grep) = installed("grep", "grep") else { return };
    unharmed(Run::of(&grep).arguments(&["-rnE", "word(1|2)[0-9]* line .*7$", "."]).prepared_by(text_files));
    let none = unharmed(Run::of(&grep).arguments(&["there is no such line", "text"]).prepared_by(text_file));
    assert_eq!(none.traced.code, Some(1));
}

#[test]
fn find() {
    let Some(find) = installed("find", "findutils") else { return };
    let arguments = ["/usr/include", "-name", "*.h", "-size", "+8k", "-newermt", "2000-01-01"];
    unharmed(Run::of(&find).arguments(&arguments).with(&["--no-detail"]));
    unharmed(Run::of(&find).arguments(&[".", "-name", "text", "-exec", "wc", "-l", "{}", ";"]).prepared_by(text_files));
}

#[test]
fn perl() {
    let Some(perl) = installed("perl", "perl") else { return };
    let script = r#"
        use strict; use warnings; use List::Util qw(sum); use Data::Dumper; $Data::Dumper::Sortkeys = 1;
        my %count; while (<STDIN>) { $count{$1}++ while /(word\d+)/g; }
        print "$_ $count{$_}\n" for sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
        for my $n (1 .. 50) { eval { die { code => $n } if $n % 2; 1 } or print "died $@->{code}\n"; }
        local $SIG{ALRM} = sub { die "alarm\n" }; eval { alarm 1; select undef, undef, undef, 10; }; print $@;
        my $pid = fork; if (!$pid) { print "child\n"; exit 7; } waitpid $pid, 0; print "child ended with ", $? >> 8, "\n";
        print Dumper({ sum => sum(map { length } keys %count), list => [1 .. 3] }), `echo from a shell`;
        exit 3;
    "#;
    let run = Run::of(perl).arguments(&["-e", script]).variable("PERL_HASH_SEED", "0").stdin(words(500));
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
        let run = || Run::of(path.clone()).arguments(arguments).over(Transport::Tcp);
        let traced = run().trace();
        if traced.untraced.code != Some(0) {
            say_skipped(&format!("the right to run {program} {}", arguments.join(" ")));
            continue;
        }
        traced.sound().ended("replaced", None);
        let has_left = |limit: &LimitEntry| limit.reason == "frida-gone" && limit.detail.contains("alone");
        assert!(traced.trace.manifest.limits.iter().any(has_left), "{:?}", traced.trace.manifest.limits);
    }
}

#[test]
fn python() {
    let Some(python) = installed("python3", "python3") else { return };
    let script = r#"
import collections, concurrent.futures, ctypes, decimal, json, math, os, re, subprocess, sys, threading, zlib
text = sys.stdin.read()
print(collections.Counter(re.findall(r"word\d+", text)).most_common(5))
def work(n):
    try:
        if n % 3 == 0: raise ValueError(n)
        return math.factorial(n) % 1000003
    except ValueError as error:
        return -error.args[0]
with concurrent.futures.ThreadPoolExecutor(4) as pool: print(list(pool.map(work, range(40))))
lock, total = threading.Lock(), [0]
def add():
    for _ in range(50):
        with lock: total[0] += 1
threads = [threading.Thread(target=add, name=f"adder {n}") for n in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(total, zlib.crc32(text.encode()), decimal.Decimal(2).sqrt(), json.dumps({"a": [1, 2.5, None]}))
print(subprocess.run(["echo", "from a child"], capture_output=True).stdout, sorted(ctypes.CDLL(None).abs(-5) for _ in "ab"))
print("to stderr", file=sys.stderr)
sys.exit(3)
"#;
    let run = Run::of(python).arguments(&["-X", "utf8", "-c", script]).stdin(words(500));
    unharmed(run.variable("PYTHONHASHSEED", "0").variable("PYTHONDONTWRITEBYTECODE", "1").with(&["--no-detail"]));
}

#[test]
fn sqlite() {
    let Some(sqlite) = installed("sqlite3", "sqlite3") else { return };
    let script = "
        create table t(a integer primary key, b text, c real);
        with recursive n(x) as (select 1 union all select x + 1 from n where x < 500)
            insert into t select x, 'row ' || (x * 7919 % 1000), x / 3.0 from n;
        create index i on t(b); begin; update t set c = c * 2 where a % 3 = 0; rollback;
        select count(*), sum(a), max(b), round(avg(c), 6) from t;
        select b, a from t where b like 'row 1%' order by b desc limit 20;
        select * from nowhere;
        .mode json
        select * from t limit 3;
    ";
    let run = Run::of(sqlite).arguments(&["file.db"]).stdin(script).with(&["--no-detail"]);
    unharmed(run);
}

/// A repository with a history that is the same every time.
fn repository(folder: &Path) {
    let git = |arguments: &[&str]| {
        let mut command = Command::new(installed("git", "git").expect("the test has asked"));
        for (name, value) in GIT {
            command.env(name, value);
        }
        let output = command.args(arguments).current_dir(folder).output().expect("git runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
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

const GIT: [(&str, &str); 8] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "Somebody"),
    ("GIT_AUTHOR_EMAIL", "somebody@example.org"),
    ("GIT_AUTHOR_DATE", "2024-01-01T12:00:00Z"),
    ("GIT_COMMITTER_NAME", "Somebody"),
    ("GIT_COMMITTER_EMAIL", "somebody@example.org"),
    ("GIT_COMMITTER_DATE", "2024-01-01T12:00:00Z"),
];

#[test]
fn git() {
    let Some(git) = installed("git", "git") else { return };
    for arguments in
        [&["log", "--stat", "--graph"][..], &["status"], &["diff", "HEAD~3", "--color=always"], &["gc", "--quiet"]]
    {
        let run = Run::of(&git).arguments(arguments).prepared_by(repository).with(&["--no-detail"]);
        unharmed(GIT.into_iter().fold(run, |run, (name, value)| run.variable(name, value)));
    }
}

#[test]
fn curl() {
    let Some(curl) = installed("curl", "curl") else { return };
    let page = words(5000);
    let address = local_server::serve(page.clone().into_bytes());
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
    let Some(openssl) = installed("openssl", "openssl") else { return };
    for arguments in [&["sha256", "text"][..], &["enc", "-aes-256-cbc", "-K", "00", "-iv", "00", "-in", "text", "-a"]] {
        unharmed(Run::of(&openssl).arguments(arguments).prepared_by(text_file));
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
