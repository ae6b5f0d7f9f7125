//! The viewer: `cargo bench -p benches --bench view -- [events=MILLIONS] [rounds=N]`. Sessions of 1, 10 and 100 million
//! events, or of those alone, made by a generator, recorded by the collector, and asked for over HTTP as the page does, and by the
//! page in Chromium; and what it costs a capture that somebody looks on.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use benches::{
    Arguments, fresh,
    load::Carries,
    ran::status_bytes,
    recorded::record,
    running::{Account, Running, binary, only_session},
    samples::Samples,
    sender,
    walk::Walk,
};
use codec::SessionId;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How wide a picture is, and how many threads the program has.
const PIXELS: u64 = 1920;
const THREADS: u32 = 4;

fn main() {
    let arguments = Arguments::read();
    // It is built first, which is not to be measured.
    binary();
    let sizes = arguments.value("events=").map_or_else(|| vec![1, 10, 100], |size| vec![size]);
    println!("\n### Viewer\n");
    println!(
        "| M events | trace, MB | overview, MB | `ingest`, s | first picture, ms | KB | zoom step, ms, median | worst | KB | \
         table of a third, ms | find, ms | memory, MiB |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let browsed: Vec<_> = sizes.into_iter().map(|millions| (millions, measure(millions))).collect();
    in_browser(&browsed);
    beside(arguments.value("rounds=").unwrap_or(5));
}

/// What the same sessions are in a browser.
fn in_browser(browsed: &[(u64, Option<Browsed>)]) {
    println!("\n### Viewer, in Chromium\n");
    println!("| M events | first picture, ms | zoom step, ms, median | worst | page's heap, MiB | its process, MiB |");
    println!("|---:|---:|---:|---:|---:|---:|");
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for (millions, browsed) in browsed {
        let Some(Browsed { first_ms, steps_ms, heap_bytes, taken_bytes }) = browsed else {
            println!("| {millions} | there is no Chromium | | | | |");
            continue;
        };
        let median = steps_ms.iter().copied().collect::<Samples>().median();
        let worst = steps_ms.iter().copied().fold(0.0, f64::max);
        let (heap, taken) = (mib(*heap_bytes), mib(*taken_bytes));
        println!("| {millions} | {first_ms:.0} | {median:.0} | {worst:.0} | {heap:.0} | {taken:.0} |");
    }
}

/// What a page in a browser has told.
struct Browsed {
    first_ms: f64,
    steps_ms: Vec<f64>,
    heap_bytes: u64,
    taken_bytes: u64,
}

/// Zooms into a session in a browser, as a test does with a smaller one.
fn browse(address: &str, session: &str) -> Option<Browsed> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/zoom.py");
    let output = Command::new("python3").args([script, address, session]).stderr(Stdio::inherit()).output().ok()?;
    let told: Value = serde_json::from_slice(&output.stdout).ok()?;
    let steps_ms = told["steps_ms"].as_array()?.iter().filter_map(Value::as_f64).collect();
    let [heap_bytes, taken_bytes] = ["heap_bytes", "taken_bytes"].map(|key| told[key].as_u64().unwrap_or(0));
    Some(Browsed { first_ms: told["first_ms"].as_f64()?, steps_ms, heap_bytes, taken_bytes })
}

/// How many events a second are recorded while somebody looks on, where not as many as can be, and how many in all.
const PACE: u64 = 2_000_000;
const EVENTS: u64 = 12_000_000;
const EVENTS_AT_FULL_SPEED: u64 = 40_000_000;

/// Records with a viewer that nobody looks at and with one page that follows, in turn.
fn beside(rounds: u64) {
    println!("\n### Capture beside a viewer\n");
    println!("Medians of {rounds} rounds\n");
    println!("| | M events/s | collector, ns of processor time an event | missing | looks | slowest, ms |");
    println!("|:--|---:|---:|---:|---:|---:|");
    for (speed, pace, events) in [("full speed", None, EVENTS_AT_FULL_SPEED), ("2 M events/s", Some(PACE), EVENTS)] {
        let (mut alone, mut followed) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            alone.push(capture(events, pace, false));
            followed.push(capture(events, pace, true));
        }
        for (name, captures) in [("nobody looks", &alone), ("one page follows", &followed)] {
            println!(
                "| {speed}, {name} | {:.2} | {:.1} | {} | {} | {:.0} |",
                captures.iter().map(|one| events as f64 / 1e6 / one.seconds).collect::<Samples>().median(),
                captures.iter().map(|one| one.cpu_ns).collect::<Samples>().median(),
                captures.iter().map(|one| one.missing).sum::<u64>(),
                captures.iter().map(|one| one.looks).sum::<u64>(),
                captures.iter().map(|one| one.slowest.as_secs_f64() * 1e3).fold(0.0, f64::max),
            );
        }
    }
}

/// What a capture came to.
struct Capture {
    /// From the first event to the end of the session.
    seconds: f64,
    /// Processor time of the collector for each event.
    cpu_ns: f64,
    missing: u64,
    /// How often the page asked for everything that it shows, and how long the slowest answer took.
    looks: u64,
    slowest: Duration,
}

fn capture(events: u64, pace: Option<u64>, is_followed: bool) -> Capture {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("view-beside");
    let sink = format!("disk:{},spans=no", fresh(&folder).display());
    let collector = Running::start_with(&["--once", "--ui", "127.0.0.1:0", "--sink", &sink]);
    let (address, started) = (collector.address, Instant::now());
    let sending = thread::spawn(move || {
        let pace = |sent: u64| {
            if let Some(pace) = pace {
                thread::sleep(Duration::from_secs_f64(sent as f64 / pace as f64).saturating_sub(started.elapsed()));
            }
        };
        sender::tcp(address, SessionId([7; 16]), Carries::Index, events, pace).expect("the collector takes it");
    });
    let mut page = is_followed.then(|| Page::open(collector.viewer.as_deref().expect("a viewer")));
    let (mut looks, mut slowest, mut looked, mut cpu_ns) = (0, Duration::ZERO, Instant::now(), 0.0);
    // The collector ends when it has all.
    while !sending.is_finished() {
        cpu_ns = f64::max(cpu_ns, collector.cpu_ns());
        // The page draws when something is told to it, no more than four times a second.
        if let Some(page) = page.as_mut().filter(|_| looked.elapsed() >= Duration::from_millis(250)) {
            looked = Instant::now();
            page.follow();
            slowest = slowest.max(looked.elapsed());
            looks += 1;
        }
        thread::sleep(Duration::from_millis(5));
    }
    sending.join().expect("all is sent");
    let seconds = started.elapsed().as_secs_f64();
    let account = Account::parse(&collector.wait()).expect("it says what it has");
    _ = std::fs::remove_dir_all(&folder);
    Capture {
        seconds,
        cpu_ns: cpu_ns / events as f64,
        missing: account.missing + events.saturating_sub(account.written),
        looks,
        slowest,
    }
}

fn measure(millions: u64) -> Option<Browsed> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("view-bench");
    let started = Instant::now();
    let walks = (0..THREADS).map(|stream| Walk::regular(stream, Carries::Index)).collect();
    record(fresh(&folder), SessionId([9; 16]), walks, millions * 1_000_000);
    let recorded = started.elapsed().as_secs_f64();
    let session = only_session(&folder);
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len()) as f64 / 1e6;
    let trace: f64 = (0..THREADS).map(|thread| size(&session.join(format!("thread_{thread}/index.atf")))).sum();
    let overview = size(&session.join("overview.spoor"));

    let mut viewer = Viewer::start(&folder);
    let name = session.file_name().expect("a name").to_string_lossy().into_owned();
    let started = Instant::now();
    let meta: Value = serde_json::from_slice(&viewer.get(&format!("/api/s/{name}/meta"))).expect("JSON");
    assert_eq!(meta["ready"], true, "the overview is there");
    let (first, last) = (meta["range"][0].as_u64().expect("a time"), meta["range"][1].as_u64().expect("a time"));
    let rows: Vec<String> = (0..meta["rows"].as_array().expect("rows").len()).map(|row| row.to_string()).collect();
    let rows = rows.join(",");
    let boxes = |viewer: &mut Viewer, from: u64, to: u64| {
        let step = ((to - from) / PIXELS).max(1);
        viewer.get(&format!("/api/s/{name}/boxes?rows={rows}&from={from}&to={to}&step={step}")).len()
    };
    let picture = boxes(&mut viewer, first, last);
    let first_picture = started.elapsed();

    // From all of it to a microsecond, half of it at a time, at nine places.
    let (mut steps, mut bytes) = (Vec::new(), 0);
    for place in 1..10 {
        let middle = first + (last - first) / 10 * place;
        let mut width = (last - first) / 2;
        while width > 1_000 {
            let (from, to) = (middle.saturating_sub(width / 2).max(first), (middle + width / 2).min(last));
            let started = Instant::now();
            bytes += boxes(&mut viewer, from, to);
            steps.push(started.elapsed());
            width /= 2;
        }
    }
    let third = (last - first) / 3;
    let table = time(|| drop(viewer.get(&format!("/api/s/{name}/top?from={}&to={}", first + third, last - third))));
    let find = time(|| drop(viewer.get(&format!("/api/s/{name}/find?q=function_number_7&from={third}&forward=true"))));
    let worst = steps.iter().copied().max().unwrap_or_default();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let median = steps.iter().map(|step| ms(*step)).collect::<Samples>().median();
    println!(
        "| {millions} | {trace:.0} | {overview:.0} | {recorded:.1} | {:.0} | {:.0} | {median:.1} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
        ms(first_picture),
        picture as f64 / 1e3,
        ms(worst),
        bytes as f64 / 1e3 / steps.len() as f64,
        ms(table),
        ms(find),
        viewer.peak_memory() as f64 / f64::from(1 << 20),
    );
    let browsed = browse(&viewer.address, &name);
    drop(viewer);
    _ = std::fs::remove_dir_all(&folder);
    browsed
}

fn time(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

/// `collector view`, and a connection to it.
struct Viewer {
    child: Child,
    /// The address that it has printed.
    address: String,
    page: Page,
}

impl Viewer {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(binary());
        command.arg("view").arg("--no-open").arg(folder).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the viewer starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("an address");
        Self { child, address: line.trim().into(), page: Page::open(line.trim()) }
    }

    fn get(&mut self, path: &str) -> Vec<u8> {
        self.page.get(path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn peak_memory(&self) -> u64 {
        status_bytes(self.pid(), "VmHWM:").unwrap_or(0)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

/// What asks a viewer, as a page does.
struct Page {
    stream: BufReader<TcpStream>,
    host: String,
    cookie: String,
}

impl Page {
    fn open(address: &str) -> Self {
        let rest = address.strip_prefix("http://").expect("an address");
        let (host, token) = rest.split_once("/#token=").expect("a token");
        let stream = BufReader::new(TcpStream::connect(host).expect("a connection"));
        stream.get_ref().set_nodelay(true).expect("a socket");
        let port = host.rsplit(':').next().expect("a port");
        let cookie = format!("Cookie: spoor-{port}={token}");
        Self { stream, host: host.into(), cookie }
    }

    /// Asks for all that a page shows of the session that is recorded.
    fn follow(&mut self) {
        let mut value =
            |path: String| self.get(&path).ok().and_then(|body| serde_json::from_slice::<Value>(&body).ok());
        let Some(list) = value("/api/sessions".into()) else { return };
        let Some(name) = list["sessions"][0]["name"].as_str().map(str::to_owned) else { return };
        value(format!("/api/s/{name}/hot"));
        let Some(meta) = value(format!("/api/s/{name}/meta")).filter(|meta| meta["ready"] == true) else { return };
        let (first, last) = (meta["range"][0].as_u64().unwrap_or(0), meta["range"][1].as_u64().unwrap_or(0));
        let from = last.saturating_sub(1_000_000_000).max(first);
        let step = ((last - from) / PIXELS).max(1);
        let rows =
            (0..meta["rows"].as_array().map_or(0, Vec::len)).map(|row| row.to_string()).collect::<Vec<_>>().join(",");
        _ = self.get(&format!("/api/s/{name}/boxes?rows={rows}&from={from}&to={last}&step={step}"));
    }

    /// The body of an answer. One that is refused is an error, and so is a viewer that has ended.
    fn get(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let Self { stream, host, cookie } = self;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{cookie}\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes())?;
        let mut status = String::new();
        stream.read_line(&mut status)?;
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            match line.trim().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().map_err(io::Error::other)?;
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        if status.contains(" 200 ") { Ok(body) } else { Err(io::Error::other(status)) }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        _ = kill_process(self.pid(), Signal::TERM);
        _ = self.child.wait();
    }
}
