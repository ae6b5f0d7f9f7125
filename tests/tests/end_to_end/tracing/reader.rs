//! A trace opens with a reader that was written from the description of the format alone.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use codec::{EventKind, profile::EndReason};
use tests::{Agent, Collector, Folder, Run, Settings, Trace, Traced, Transport, counts::Count};

/// Runs the reader on a session.
fn read(session: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("read_atf.py");
    let output = Command::new("python3").arg(script).arg("--functions").arg(session).output();
    output.expect("python3, which tests/read_atf.py needs: apt-get install python3")
}

/// What the reader prints of a session that it finds sound.
#[track_caller]
fn sound(session: &Path) -> String {
    let output = read(session);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The functions in what the reader prints, by their names.
fn functions(printed: &str) -> BTreeMap<String, Count> {
    let mut functions = BTreeMap::new();
    for line in printed.lines().filter_map(|line| line.strip_prefix("function ")) {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        let [calls, returns, unwound] = [0, 1, 2].map(|at| words[at].parse().expect("a number"));
        let count = functions.entry(words[3].to_string()).or_insert(Count::default());
        *count = [*count, Count { calls, returns, unwound }].into_iter().sum();
    }
    functions
}

/// Fails the test unless the reader finds what our own does, in every thread.
#[track_caller]
fn agrees(printed: &str, trace: &Trace) {
    for (thread, events) in &trace.threads {
        let of = |kind| events.iter().filter(|event| event.kind == kind).count();
        let (calls, returns) = (of(EventKind::Call), of(EventKind::Return));
        let start = format!("thread {thread} call {calls} return {returns} exception {} ", of(EventKind::Exception));
        assert!(printed.lines().any(|line| line.starts_with(&start)), "{start} in {printed}");
    }
    assert_eq!(printed.lines().filter(|line| line.starts_with("thread ")).count(), trace.threads.len());
}

#[track_caller]
fn has_what_the_program_counted(traced: &Traced) {
    let printed = sound(&traced.trace.folder);
    agrees(&printed, &traced.trace);
    let functions = functions(&printed);
    for (name, counted) in &traced.counts {
        assert_eq!(functions.get(name), Some(counted), "{name}");
    }
}

#[test]
fn an_independent_reader_finds_what_the_program_counted() {
    has_what_the_program_counted(&Run::target("recursion").arguments(&["5000"]).over(Transport::Tcp).trace());
    has_what_the_program_counted(&Run::target("exceptions").over(Transport::Udp).trace());
    has_what_the_program_counted(&Run::target("longjmp").with(&["--no-detail"]).trace());
}

/// A session of the synthetic agent's, which needs no Frida.
fn synthetic(folder: &Folder) -> Trace {
    let collector = Collector::to_disk(folder.path(), &[]);
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 3)).expect("it is heard");
    agent.work(5000).expect("it is taken");
    agent.finish(EndReason::Exited(0), Duration::from_secs(30)).expect("it is acknowledged");
    collector.stop().success();
    Trace::only(folder.path())
}

#[test]
fn an_independent_reader_finds_what_ours_does() {
    let folder = Folder::new("reader");
    let trace = synthetic(&folder);
    agrees(&sound(&trace.folder), &trace);
}

#[test]
fn an_independent_reader_notices_damage() {
    let folder = Folder::new("damaged");
    let trace = synthetic(&folder);
    sound(&trace.folder);
    for file in ["index.atf", "detail.atf"] {
        let path = trace.folder.join("thread_1").join(file);
        let bytes = fs::read(&path).expect("a file");
        let end = bytes.len();
        // In the header, in events, and in the footer.
        for at in [0, 5, 12, 33, 64 + 16, 64 + 21, end / 2, end - 65, end - 60, end - 50, end - 40] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            fs::write(&path, damaged).expect("room on disk");
            let output = read(&trace.folder);
            assert_eq!(output.status.code(), Some(1), "{file}: byte {at} of {end} was changed");
        }
        fs::write(&path, &bytes).expect("room on disk");
    }
    fs::write(trace.folder.join("manifest.json"), "{}").expect("room on disk");
    assert_eq!(read(&trace.folder).status.code(), Some(1), "a manifest without threads");
}
