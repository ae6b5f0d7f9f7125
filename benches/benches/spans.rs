//! Spans: `cargo bench -p benches --bench spans -- [WORDS] [events=MILLIONS] [baseline=COLLECTOR]`. The commands of another
//! collector, an older one for instance, are measured by turns with those of this one.

use std::{
    env, fs, hint,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use benches::{
    Arguments, fresh,
    load::{self, Carries, function_event},
    ran::Ran,
    running::{binary, only_session},
    walk::{Walk, options},
};
use codec::{
    EventKind, FunctionId, Position, SessionId, SessionNs, StreamId,
    heph::{Attribute, MAX_PACKET_BYTES, Packets, Stamp, Value},
    profile::{Message, RuntimeEvent},
    span::Span,
};
use collector_core::spans::{Engine, Finish, SpanConfig};
use sinks::{Catalog, SpanTable};

fn main() {
    let arguments = Arguments::read();
    let millions = arguments.value("events=").unwrap_or(10);

    // First, while the process is small: memory that was freed is used again.
    if arguments.wants("memory") {
        println!("\n### A million open spans\n");
        println!("| case | MiB | bytes/span |");
        println!("|---|---:|---:|");
        memory("frames, 1000 threads of 1000 each", open_frames);
        memory("blocks that wait in a queue", open_blocks);
    }
    if arguments.wants("live") {
        println!("\n### From packets to frame spans, on one core\n");
        println!("| case | M events | decode alone, ns/event | decode and make spans, ns/event | M spans/s |");
        println!("|---|---:|---:|---:|---:|");
        live("one thread, index-only", 1, Carries::Index, millions);
        live("16 threads by turns, index-only", 16, Carries::Index, millions);
        live("one thread, full detail", 1, Carries::Detail, millions / 4);
    }
    if arguments.wants("parquet") {
        println!("\n### Parquet\n");
        println!("| M spans | bytes/span | as JSON lines, bytes/span | M spans/s |");
        println!("|---:|---:|---:|---:|");
        parquet(millions);
    }
    if arguments.wants("offline") {
        println!("\n### From disk\n");
        println!("| command | M events | s | M events/s | peak memory, MiB | the same three of the baseline");
        println!("|---|---:|---:|---:|---:|---:|---:|---:|");
        let baseline = arguments.value::<PathBuf>("baseline=");
        let binaries: Vec<PathBuf> = [binary().to_owned()].into_iter().chain(baseline).collect();
        offline(millions, &binaries);
    }
}

/// Events of some threads, a few hundred of each at a time, as they arrive.
fn events(threads: u32, carries: Carries, millions: u64) -> Vec<Vec<u8>> {
    let mut walks: Vec<Walk> = (0..threads).map(|stream| Walk::new(stream, carries)).collect();
    let mut batches = Vec::new();
    let mut left = millions * 1_000_000;
    while left > 0 {
        for walk in &mut walks {
            let mut bytes = Vec::new();
            let count = left.min(256);
            (0..count).for_each(|_| walk.step(&mut bytes));
            left -= count;
            batches.push(bytes);
        }
    }
    for walk in &mut walks {
        let mut bytes = Vec::new();
        walk.climb_down(&mut bytes);
        batches.push(bytes);
    }
    batches
}

fn live(name: &str, threads: u32, carries: Carries, millions: u64) {
    let batches = events(threads, carries, millions);
    let mut count = 0_u64;
    let decode = best_of(3, || {
        count = 0;
        let started = Instant::now();
        for batch in &batches {
            let mut packets = Packets::new(batch, MAX_PACKET_BYTES);
            while let Some(message) = packets.next_with(Message::decode) {
                hint::black_box(message.expect("it is one"));
                count += 1;
            }
        }
        started.elapsed().as_secs_f64()
    });
    let mut made = 0;
    let whole = best_of(3, || {
        let started = Instant::now();
        made = spans_of(&batches, |spans| _ = hint::black_box(spans));
        started.elapsed().as_secs_f64()
    });
    assert_eq!(made * 2, count, "every call has its return");
    let per_event = |seconds: f64| seconds * 1e9 / count as f64;
    println!(
        "| {name} | {:.1} | {:.1} | {:.1} | {:.2} |",
        count as f64 / 1e6,
        per_event(decode),
        per_event(whole),
        made as f64 / whole / 1e6
    );
}

/// Makes spans of the events, batch by batch, and returns how many.
fn spans_of(batches: &[Vec<u8>], mut take: impl FnMut(&[Span])) -> u64 {
    let (mut engine, names) = (Engine::new(SpanConfig::default()), catalog());
    let mut positions = std::collections::HashMap::new();
    for batch in batches {
        let mut packets = Packets::new(batch, MAX_PACKET_BYTES);
        let mut stream = None;
        let mut position = 0;
        while let Some(Ok(message)) = packets.next_with(Message::decode) {
            let Message::Function(event) = &message else { unreachable!("only those were made") };
            if stream.is_none() {
                stream = Some(event.stamp.stream);
                position = positions.get(&event.stamp.stream).copied().unwrap_or(0);
            }
            engine.event(event.stamp.stream, Position(position), &message, &names);
            position += 1;
        }
        if let Some(stream) = stream {
            positions.insert(stream, position);
        }
        take(engine.spans());
        engine.spans().clear();
    }
    engine.finish(Finish::Exited, None);
    take(engine.spans());
    engine.counts().made
}

fn best_of(times: usize, mut run: impl FnMut() -> f64) -> f64 {
    (0..times).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// A catalog that knows the names of the functions.
fn catalog() -> Catalog {
    let mut catalog = Catalog::new(sinks::CatalogLimits::default(), std::sync::Arc::default());
    for option in options(SessionId([9; 16])) {
        let mut packets = Packets::new(&option, MAX_PACKET_BYTES);
        while let Some(Ok(Message::Option(known))) = packets.next_with(Message::decode) {
            catalog.apply(&known.option);
        }
    }
    catalog
}

fn parquet(millions: u64) {
    let batches = events(4, Carries::Index, millions);
    let mut all = Vec::new();
    spans_of(&batches, |spans| all.extend_from_slice(spans));
    let catalog = catalog();
    let session = sinks::Session::new("bench".into(), None, "here".into(), 0, catalog);
    let mut bytes = 0;
    let seconds = best_of(3, || {
        let started = Instant::now();
        bytes = 0;
        let mut table = SpanTable::new().expect("a table");
        let catalog = session.catalog();
        for span in &all {
            table.push(&catalog, span).expect("a row");
            if table.waiting_rows() == 0 {
                bytes += table.take_bytes().len();
            }
        }
        drop(catalog);
        bytes += table.finish(&session).expect("an end").len();
        started.elapsed().as_secs_f64()
    });
    let mut line = Vec::new();
    let mut lines = 0;
    let (mut names, start) = (sinks::NameCache::default(), sinks::Line::start_of_spans(&session.name));
    let catalog = session.catalog();
    for span in all.iter().step_by(100) {
        line.clear();
        sinks::span_line(&mut line, &start, &catalog, &mut names, span);
        lines += line.len();
    }
    let count = all.len() as f64;
    println!(
        "| {:.1} | {:.1} | {:.0} | {:.2} |",
        count / 1e6,
        bytes as f64 / count,
        lines as f64 / (count / 100.0),
        count / seconds / 1e6
    );
}

/// What a million open spans take, beside what the process has anyway.
fn memory(name: &str, open: impl FnOnce() -> Engine) {
    let before = resident();
    let engine = open();
    let bytes = resident().saturating_sub(before);
    let count = engine.counts().open;
    assert!(count >= 1_000_000, "{count} are open");
    println!("| {name} | {:.0} | {:.0} |", bytes as f64 / f64::from(1 << 20), bytes as f64 / count as f64);
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").expect("it is there");
    let pages: u64 = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

fn open_frames() -> Engine {
    let names = catalog();
    let mut engine = Engine::new(SpanConfig::default());
    for stream in 0..1000 {
        for depth in 0..1000_u32 {
            let event = function_event(stamp(stream, depth.into()), EventKind::Call, FunctionId(1 << 32), depth, None);
            engine.event(StreamId(stream), Position(depth.into()), &Message::Function(event), &names);
        }
    }
    engine
}

fn open_blocks() -> Engine {
    let names = catalog();
    let mut engine = Engine::new(SpanConfig::default());
    for block in 0..1_000_000_u64 {
        let keys = [("block", 0x1000 + block * 64), ("invoke", 0x400), ("queue", 1)];
        let keys = keys.map(|(name, value)| Attribute { name, value: Value::U64(value) });
        let event = RuntimeEvent {
            stamp: stamp(0, block),
            function: "dispatch_async",
            phase: EventKind::Call,
            keys: keys.as_slice().into(),
        };
        engine.event(StreamId(0), Position(block), &Message::Runtime(event), &names);
        if block % 1024 == 0 {
            engine.settle(SessionNs(block));
        }
    }
    engine.settle(SessionNs(1_000_001));
    engine
}

fn stamp(stream: u32, at: u64) -> Stamp {
    load::stamp(stream, at, at, at)
}

/// How often each command is run; the median counts.
const ROUNDS: usize = 3;

fn offline(millions: u64, binaries: &[PathBuf]) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("spans-bench");
    let file = fresh(&folder).join("events.heph");
    let batches = events(4, Carries::Index, millions);
    let mut bytes: Vec<u8> = options(SessionId([9; 16])).concat();
    batches.iter().for_each(|batch| bytes.extend_from_slice(batch));
    fs::write(&file, &bytes).expect("room");
    drop((batches, bytes));
    let sink = |kind: &str| format!("disk:{}{kind}", folder.join(format!("traces{kind}")).display());
    let count = millions as f64;
    let input = file.display().to_string();
    for (name, kind) in [("without spans", ",spans=no"), ("spans live", ",spans=live"), ("spans after", "")] {
        let sink = sink(kind);
        let mut command = Command::new(binary());
        let ran = Ran::well(command.args(["ingest", &input, "--sink", &sink]));
        let peak = ran.peak_bytes as f64 / f64::from(1 << 20);
        println!("| `ingest`, {name} | {count:.0} | {:.2} | {:.2} | {peak:.0} |", ran.seconds, count / ran.seconds);
    }
    let session = only_session(&folder.join("traces"));
    let size = |path: &Path| fs::metadata(path).map_or(0, |data| data.len());
    println!("\n`spans.parquet` has {} bytes.\n", size(&session.join("spans.parquet")));
    // An older collector may not know what this one writes.
    let own = |(number, binary): (usize, &PathBuf)| {
        let traces = folder.join(format!("own{number}"));
        Ran::well(Command::new(binary).args(["ingest", &input, "--sink", &format!("disk:{}", traces.display())]));
        (binary.clone(), only_session(&traces))
    };
    let sessions: Vec<(PathBuf, PathBuf)> = binaries.iter().enumerate().map(own).collect();
    let line = |name: &str, command: &str, options: &[&str]| {
        let asked = |(binary, session): &(PathBuf, PathBuf)| {
            let mut rounds: Vec<Ran> =
                (0..ROUNDS).map(|_| Ran::well(Command::new(binary).arg(command).arg(session).args(options))).collect();
            rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
            let ran = &rounds[ROUNDS / 2];
            let peak = ran.peak_bytes as f64 / f64::from(1 << 20);
            format!("{:.2} | {:.2} | {peak:.0}", ran.seconds, count / ran.seconds)
        };
        let all: Vec<String> = sessions.iter().map(asked).collect();
        println!("| {name} | {count:.0} | {} |", all.join(" | "));
    };
    let output = folder.join("export").display().to_string();
    line("`verify`, for comparison", "verify", &[]);
    line("`stats`", "stats", &[]);
    line("`top`", "top", &[]);
    line("`tree --depth 3`", "tree", &["--depth", "3"]);
    line("`spans --sort duration --limit 10`", "spans", &["--sort", "duration", "--limit", "10"]);
    line("`spans --json`", "spans", &["--json"]);
    for format in ["perfetto", "chrome", "folded", "parquet"] {
        line(&format!("`export --format {format}`"), "export", &["-o", &output, "--format", format]);
    }
    _ = fs::remove_dir_all(&folder);
}
