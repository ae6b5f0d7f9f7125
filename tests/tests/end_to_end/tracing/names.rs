//! Names and source lines of programs that were stripped, from wherever their debug files are.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::tracing::eventually;
use tests::{Collector, Folder, Process, Run, Target, Traced, Transport, agent_command, collector, process::Stdout};

/// A program without its symbols, and the debug file that has them.
struct Stripped {
    folder: Folder,
    program: PathBuf,
    debug: PathBuf,
    build_id: String,
}

impl Stripped {
    #[track_caller]
    fn new() -> Self {
        let folder = Folder::new("stripped");
        let (whole, debug, program) = (folder.join("whole"), folder.join("plain.debug"), folder.join("plain"));
        fs::copy(Target::named("plain_debug").program(), &whole).expect("copied");
        tool("objcopy", &["--only-keep-debug".as_ref(), &whole, &debug]);
        tool("objcopy", &["--strip-all".as_ref(), &whole, &program]);
        let output = Command::new("readelf").args(["-n"]).arg(&whole).output().expect("readelf runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let build_id = text.split("Build ID: ").nth(1).and_then(|rest| rest.split_whitespace().next());
        Self { build_id: build_id.expect("it has one").into(), folder, program, debug }
    }

    /// Where its debug file is below a directory of such files.
    fn place_below(&self, dir: &Path) -> PathBuf {
        let (first, rest) = self.build_id.split_at(2);
        let folder = dir.join(".build-id").join(first);
        fs::create_dir_all(&folder).expect("made");
        folder.join(format!("{rest}.debug"))
    }

    fn run(&self) -> Run {
        // Nobody's cache is looked into but its own.
        Run::of(&self.program).with(&LINES).variable("DEBUGINFOD_CACHE_PATH", self.folder.join("cache"))
    }
}

const LINES: [&str; 2] = ["--lines", "read"];

/// Runs one of binutils.
#[track_caller]
fn tool(name: &str, arguments: &[&Path]) {
    let status = Command::new(name).args(arguments).status().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(status.success(), "{name} {arguments:?}");
}

/// Fails the test unless all functions have their names and the trace is as it should be.
#[track_caller]
fn named(traced: &Traced) {
    traced.sound().same_behaviour().exact_counts();
    for name in ["leaf", "middle", "outer", "nothing", "main"] {
        assert!(traced.trace.manifest.functions.iter().any(|function| function.name == name), "{name}");
    }
}

/// The same, and where they begin in their sources.
#[track_caller]
fn sourced(traced: &Traced) {
    named(traced);
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/targets/plain.c"));
    let text = text.expect("the source is there");
    for (name, begin) in [("leaf", "TRACED long leaf("), ("main", "int main(")] {
        let line = 1 + text.lines().position(|line| line.starts_with(begin)).expect("it is there");
        let function = traced.trace.manifest.functions.iter().find(|function| function.name == name);
        let source = function.and_then(|function| function.source.as_deref()).unwrap_or_default();
        // The first instruction of a function may be that of its first statement.
        let is_there = |line: usize| source.ends_with(&format!("/plain.c:{line}"));
        assert!(is_there(line) || is_there(line + 1), "{name}: {source}");
    }
}

#[test]
fn without_its_debug_file_a_function_is_a_place_in_its_module() {
    let stripped = Stripped::new();
    let traced = stripped.run().trace();
    traced.sound().same_behaviour();
    let top = collector::run_on("top", &traced.trace.folder, &[]).success().text().to_owned();
    assert!(top.contains(" plain+0x") && top.contains("libc.so.6"), "{top}");
    for (command, options) in [("tree", &["--min-percent", "0"][..]), ("events", &[]), ("spans", &[])] {
        let text = collector::run_on(command, &traced.trace.folder, options).success().text().to_owned();
        assert!(text.contains(" plain+0x"), "{command}:\n{text}");
    }
}

#[test]
fn a_debug_file_is_found_by_its_build_id() {
    let stripped = Stripped::new();
    let dir = stripped.folder.join("debug");
    fs::rename(&stripped.debug, stripped.place_below(&dir)).expect("moved");
    let traced = stripped.run().with(&["--debug-dir", dir.to_str().expect("text")]).trace();
    sourced(&traced);
    // The same names, and where they are, wherever one looks.
    let spans = collector::run_on("spans", &traced.trace.folder, &["--json", "--function", "leaf", "--limit", "1"]);
    let spans = spans.success().text().to_owned();
    assert!(spans.contains(r#""function":"leaf""#) && spans.contains("/plain.c:"), "{spans}");
    let source = spans.split(r#""source":""#).nth(1).and_then(|rest| rest.split('"').next()).expect("a source");
    for (command, options) in
        [("events", &["--json", "--function", "leaf"][..]), ("tree", &["--json"]), ("top", &["--json"])]
    {
        let text = collector::run_on(command, &traced.trace.folder, options).success().text().to_owned();
        let leaf = text.lines().find(|line| line.contains(r#""function":"leaf""#)).unwrap_or_default();
        assert!(leaf.contains(&format!(r#""source":"{source}""#)), "{command}: {leaf}");
    }
    for command in ["spans", "top"] {
        let text = collector::run_on(command, &traced.trace.folder, &["--csv", "--function", "leaf"]);
        let text = text.success().text().to_owned();
        assert!(text.lines().next().is_some_and(|head| head.ends_with(",source")), "{command}: {text}");
        assert!(text.lines().skip(1).all(|line| line.ends_with(&format!(",{source}"))), "{command}: {text}");
    }
    let info = collector::run_on("info", &traced.trace.folder, &[]).success().text().to_owned();
    assert!(info.contains("with source lines"), "{info}");
    let file = traced.folder.join("trace.perfetto");
    let file = file.to_str().expect("text");
    collector::run_on("export", &traced.trace.folder, &["--format", "perfetto", "-o", file]).success();
    let bytes = fs::read(file).expect("written");
    assert!(bytes.windows(9).any(|bytes| bytes == b"/plain.c:"), "the export says where functions are");
    collector::run_on("export", &traced.trace.folder, &["--format", "chrome", "-o", file]).success();
    let text = fs::read_to_string(file).expect("written");
    let told = format!(r#""args":{{"name":"leaf","symbol":"leaf","source":"{source}"}}"#);
    assert_eq!(text.matches(&told).count(), 1, "it says it once");
}

#[test]
fn the_lines_of_a_program_with_its_own_are_known() {
    sourced(&Run::target("plain_debug").with(&LINES).trace());
}

#[test]
fn a_debug_file_is_found_by_its_name_and_checksum() {
    let stripped = Stripped::new();
    // Without a build id the checksum is all there is.
    for file in [&stripped.program, &stripped.debug] {
        tool("objcopy", &["--remove-section".as_ref(), ".note.gnu.build-id".as_ref(), file]);
    }
    let link = PathBuf::from(format!("--add-gnu-debuglink={}", stripped.debug.display()));
    tool("objcopy", &[&link, &stripped.program]);
    sourced(&stripped.run().trace());
    let hidden = stripped.folder.join(".debug");
    fs::create_dir(&hidden).expect("made");
    fs::rename(&stripped.debug, hidden.join("plain.debug")).expect("moved");
    sourced(&stripped.run().trace());
    // One of the same name that is another's is not taken.
    let mut other = fs::read(hidden.join("plain.debug")).expect("read");
    other.push(0);
    fs::write(hidden.join("plain.debug"), other).expect("written");
    let traced = stripped.run().trace();
    assert!(traced.trace.manifest.functions.iter().all(|function| function.name != "leaf"), "it is not its own");
    let said =
        traced.traced.stderr.lines().filter(|line| line.contains("/.debug/plain.debug is not the debug file of"));
    let said: Vec<_> = said.collect();
    assert!(matches!(said[..], [line] if line.contains("its checksum is ")), "{}", traced.traced.stderr);
}

#[test]
fn lines_that_old_tools_packed_are_read() {
    let folder = Folder::new("packed");
    let program = folder.join("plain");
    fs::copy(Target::named("plain_debug").program(), &program).expect("copied");
    tool("objcopy", &["--compress-debug-sections=zlib-gnu".as_ref(), &program]);
    sourced(&Run::of(&program).with(&LINES).trace());
}

/// A table that would take far more memory than the program.
#[test]
fn lines_that_are_too_many_are_told_of() {
    let folder = Folder::new("huge");
    let (program, huge) = (folder.join("plain"), folder.join("huge"));
    fs::copy(Target::named("plain_debug").program(), &program).expect("copied");
    fs::File::create(&huge).and_then(|file| file.set_len(130 << 20)).expect("made");
    let section = PathBuf::from(format!(".debug_line={}", huge.display()));
    tool("objcopy", &["--update-section".as_ref(), &section, &program]);
    // In few bytes.
    tool("objcopy", &["--compress-debug-sections=zlib".as_ref(), &program]);
    let traced = Run::of(&program).trace();
    named(&traced);
    let why = "the table has 130.0 MiB, more than 128.0 MiB";
    let said = traced.traced.stderr.lines().filter(|line| line.contains(why)).count();
    assert_eq!(said, 1, "{}", traced.traced.stderr);
    let info = collector::run_on("info", &traced.trace.folder, &[]).success().text().to_owned();
    assert!(info.contains("source-lines-unread") && info.contains(why), "{info}");
}

#[test]
fn a_debug_file_that_is_packed_into_the_program_is_read() {
    let stripped = Stripped::new();
    // As distributions make it: the symbols and nothing else.
    tool("objcopy", &["--strip-debug".as_ref(), &stripped.debug]);
    let packed = stripped.folder.join("packed.xz");
    let xz = Command::new("xz").args(["-9", "--stdout"]).arg(&stripped.debug).stdout(Stdio::piped()).output();
    fs::write(&packed, xz.expect("xz runs").stdout).expect("written");
    let section = PathBuf::from(format!(".gnu_debugdata={}", packed.display()));
    tool("objcopy", &["--add-section".as_ref(), &section, &stripped.program]);
    named(&stripped.run().trace());
    // What is damaged is as if it were not there.
    let bytes = fs::read(&packed).expect("read");
    fs::write(&packed, &bytes[..bytes.len() / 2]).expect("written");
    let section = PathBuf::from(format!(".gnu_debugdata={}", packed.display()));
    tool("objcopy", &["--update-section".as_ref(), &section, &stripped.program]);
    let traced = stripped.run().trace();
    traced.sound().same_behaviour();
    assert!(traced.trace.manifest.functions.iter().all(|function| function.name != "leaf"));
}

/// A server with one debug file.
fn serve(build_id: &str, file: &Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    let (path, bytes) = (format!("GET /buildid/{build_id}/debuginfo "), fs::read(file).expect("it is there"));
    // It ends with the tests.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let (status, body) =
                if first.starts_with(&path) { ("200 OK", &*bytes) } else { ("404 Not Found", &[][..]) };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = (&stream).write_all(head.as_bytes()).and_then(|()| (&stream).write_all(body));
        }
    });
    address
}

#[test]
fn a_debug_file_is_fetched_if_that_is_asked_for() {
    let stripped = Stripped::new();
    let urls = format!("http://{}/", serve(&stripped.build_id, &stripped.debug));
    fs::remove_file(&stripped.debug).expect("it is there");
    let unasked = stripped.run().variable("DEBUGINFOD_URLS", &urls).trace();
    assert!(unasked.trace.manifest.functions.iter().all(|function| function.name != "leaf"), "nobody asked for it");
    sourced(&stripped.run().variable("DEBUGINFOD_URLS", &urls).with(&["--debuginfod"]).trace());
    // Now it is in the cache, which needs no server.
    sourced(&stripped.run().trace());
}

#[test]
fn a_server_that_sends_something_else_leaves_nothing_in_the_cache() {
    let stripped = Stripped::new();
    let urls = format!("http://{}", serve(&stripped.build_id, Path::new("/bin/true")));
    fs::remove_file(&stripped.debug).expect("it is there");
    let traced = stripped.run().variable("DEBUGINFOD_URLS", &urls).with(&["--debuginfod"]).trace();
    traced.sound();
    assert!(traced.traced.stderr.contains("no debug file of the module"), "{}", traced.traced.stderr);
    assert!(Folder::contents(&stripped.folder.join("cache")).is_empty(), "nothing of it is kept");
}

#[test]
fn an_agent_that_is_killed_leaves_nothing_in_the_cache() {
    let stripped = Stripped::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it has one"));
    let (_folder, collector) = Collector::in_folder("half", &[]);
    let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, &["--debuginfod"]);
    command.arg(&stripped.program).env("DEBUGINFOD_URLS", url);
    command.env("DEBUGINFOD_CACHE_PATH", stripped.folder.join("cache"));
    let mut agent = Process::start(command, Stdout::Collect);
    // Half of a file, and then nothing.
    let (mut stream, _) = listener.accept().expect("it asks");
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf").expect("it listens");
    let cache = stripped.folder.join("cache");
    eventually("it has begun", || cache.exists());
    thread::sleep(Duration::from_millis(100));
    agent.signal("KILL");
    eventually("it is gone", || !agent.is_running());
    assert!(Folder::contents(&cache).is_empty(), "{:?}", Folder::contents(&cache));
}

/// A server that accepts and says nothing.
#[test]
fn a_server_that_hangs_makes_nobody_deaf() {
    let stripped = Stripped::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it has one"));
    let (_folder, collector) = Collector::in_folder("hangs", &[]);
    let mut command = agent_command::run_to(collector.tcp(), Transport::Tcp, &["--debuginfod"]);
    command.arg(&stripped.program).env("DEBUGINFOD_URLS", url);
    command.env("DEBUGINFOD_CACHE_PATH", stripped.folder.join("cache"));
    agent_command::private(&mut command);
    let mut agent = Process::start(command, Stdout::Collect);
    let _asked = listener.accept().expect("it asks");
    agent.signal("INT");
    let exit = agent.exit(Duration::from_secs(20));
    assert_eq!((exit.code, exit.signal), (None, Some(2)), "{}", exit.stderr);
}

#[test]
fn a_server_that_is_not_there_costs_names_and_a_line() {
    let stripped = Stripped::new();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let run = stripped.run().variable("DEBUGINFOD_URLS", format!("http://127.0.0.1:{port}"));
    let traced = run.with(&["--debuginfod"]).trace();
    traced.sound();
    let told = traced.traced.stderr.matches("is not asked for debug files any more").count();
    assert_eq!(told, 1, "{}", traced.traced.stderr);
    let wrong = agent_command::command(&["run", "--debuginfod", "--", "true"]).env_remove("DEBUGINFOD_URLS").output();
    let wrong = wrong.expect("it runs");
    let text = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && text.contains("DEBUGINFOD_URLS names no server"), "{text}");
}
