//! Prints what is in a file: Heph packets, or an ATF index or detail file.
//!
//! `cargo run -p codec --example dump -- --help` says how.

use std::{
    env, fs,
    io::{self, ErrorKind, Read, Write},
    process::ExitCode,
};

use codec::{
    EventKind,
    atf::{DetailBody, DetailEvent, DetailReader, FunctionDetail, IndexEvent, IndexReader, Integrity},
    heph::{MAX_PACKET_BYTES, Stamp, Step, StreamDecoder},
    profile::Message,
};

const USAGE: &str = "usage: dump FILE

Prints Heph packets, or an ATF index or detail file, and whether they are sound.
FILE - is standard input; a FILE named *.hex holds bytes in hexadecimal.";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let name = match arguments.as_slice() {
        [help] if help == "--help" || help == "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [path] => path.to_string_lossy(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match read(&name).and_then(|bytes| dump(&bytes, &mut io::stdout().lock())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dump: {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match name {
        "-" => io::stdin().read_to_end(&mut bytes)?,
        _ => fs::File::open(name)?.read_to_end(&mut bytes)?,
    };
    if !name.ends_with(".hex") {
        return Ok(bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let code = text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().chars());
    let digits: Option<Vec<_>> = code.filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16)).collect();
    let pairs = digits.filter(|digits| digits.len().is_multiple_of(2));
    let bytes = pairs.map(|digits| digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect());
    bytes.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "expected pairs of hexadecimal digits"))
}

/// Prints `bytes` and returns whether all of them are sound.
fn dump(bytes: &[u8], out: &mut impl Write) -> io::Result<bool> {
    let integrity = match bytes {
        [b'A', b'T', b'I', b'2', ..] => dump_index(bytes, out)?,
        [b'A', b'T', b'D', b'2', ..] => dump_detail(bytes, out)?,
        _ => return dump_packets(bytes, out),
    };
    match integrity {
        Integrity::Intact => writeln!(out, "intact")?,
        Integrity::Unfinished { events } => writeln!(out, "unfinished: events that can be read: {events}")?,
        Integrity::Corrupt(corrupt) => writeln!(out, "corrupt {corrupt}")?,
    }
    Ok(integrity == Integrity::Intact)
}

fn dump_packets(bytes: &[u8], out: &mut impl Write) -> io::Result<bool> {
    let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
    let (mut offset, mut sound) = (0, true);
    if bytes.is_empty() {
        writeln!(out, "empty: no packets")?;
    }
    while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
        write!(out, "{offset:>8}  ")?;
        match decoder.step_with(rest, true, Message::decode) {
            Step::Packet { packet, bytes } => {
                sound &= !matches!(packet, Message::BadOption { .. });
                dump_message(&packet, offset, out)?;
                offset += bytes.len();
            }
            Step::Skip { bytes, cause } => {
                writeln!(out, "{bytes} bytes are no packet: {}", cause.from_base(offset))?;
                offset += bytes;
                sound = false;
            }
            Step::More { needed } => unreachable!("{needed} bytes needed behind the end"),
        }
    }
    Ok(sound)
}

fn dump_message(message: &Message<'_>, offset: usize, out: &mut impl Write) -> io::Result<()> {
    let stamped = |stamp: &Stamp| {
        let Stamp { stream, counter, substream, start, end } = stamp;
        format!("stream {} #{} substream {} at {}..{}", stream.0, counter.0, substream.0, start.0, end.0)
    };
    match message {
        Message::Run(run) => {
            writeln!(out, "{}: run of {} events", stamped(&run.stamp), run.count)?;
            run.function_events().try_for_each(|event| {
                write!(out, "  ")?;
                dump_message(&Message::Function(event), offset, out)
            })
        }
        Message::Function(event) => {
            let kind = event.kind.description();
            let function = event.function.map_or("?".to_string(), |id| id.to_string());
            write!(out, "{}: {kind} of {function} depth {}", stamped(&event.stamp), event.depth)?;
            if let Some(ip) = event.ip {
                write!(out, " ip {ip:#x}")?;
            }
            if let Some(detail) = &event.detail {
                let stack: Vec<_> = detail.stack().iter().collect();
                write!(out, " registers {} stack {}", hex(&detail.registers().to_words()), hex(&stack))?;
            }
            if !event.extra.is_empty() {
                write!(out, " {:?}", event.extra)?;
            }
            writeln!(out)
        }
        Message::Runtime(event) => {
            let kind = event.phase.description();
            writeln!(out, "{}: {kind} of {} {:?}", stamped(&event.stamp), event.function, event.keys)
        }
        Message::Event(event) => {
            writeln!(out, "{}: {:?} {:?}", stamped(&event.stamp), event.description, event.attributes)
        }
        Message::Option(known) => writeln!(out, "option {:?}", known.option),
        Message::Metadata(metadata) => {
            writeln!(out, "option {:?}: {} bytes, not in the profile", metadata.name, metadata.value.len())
        }
        Message::BadOption { metadata, error } => {
            writeln!(out, "option {:?} with a bad value: {}", metadata.name, error.from_base(offset))
        }
    }
}

fn dump_index(bytes: &[u8], out: &mut impl Write) -> io::Result<Integrity> {
    if let Ok(index) = IndexReader::open(bytes) {
        let origin = index.origin();
        let (arch, os, clock) = (origin.arch.name(), origin.os.name(), origin.clock.name());
        writeln!(out, "index of thread {} on {os} {arch}, clock {clock}, events: {}", origin.thread, index.len())?;
        for (sequence, event) in index.events().enumerate() {
            let event = match event {
                Ok(event) => event,
                Err(corrupt) => {
                    writeln!(out, "{sequence:>8}  {corrupt}")?;
                    continue;
                }
            };
            let IndexEvent { timestamp, function, kind, depth, detail, .. } = event;
            let detail = detail.map_or(String::new(), |position| format!(", detail {position}"));
            let kind = kind.description();
            writeln!(out, "{sequence:>8}  at {}: {kind} of {function} depth {depth}{detail}", timestamp.0)?;
        }
    }
    Ok(IndexReader::check_file(bytes))
}

fn dump_detail(bytes: &[u8], out: &mut impl Write) -> io::Result<Integrity> {
    if let Ok(detail) = DetailReader::open(bytes) {
        writeln!(out, "detail of thread {}, events: {}", detail.thread(), detail.len())?;
        for (position, event) in detail.events().enumerate() {
            match event {
                Ok(DetailEvent { index, timestamp, body, .. }) => {
                    write!(out, "{position:>8}  of event {index} at {}: ", timestamp.0)?;
                    dump_body(&body, out)?;
                }
                Err(corrupt) => writeln!(out, "{position:>8}  {corrupt}")?,
            }
        }
    }
    Ok(DetailReader::check_file(bytes))
}

fn dump_body(body: &DetailBody<'_>, out: &mut impl Write) -> io::Result<()> {
    let function = |kind: EventKind, detail: &FunctionDetail<'_>| {
        let (kind, registers) = (kind.description(), hex(&detail.registers.to_words()));
        format!("{kind} of {}, registers {registers}, stack {:02x?}", detail.function, detail.stack)
    };
    match body {
        DetailBody::Call(detail) => writeln!(out, "{}", function(EventKind::Call, detail)),
        DetailBody::Return(detail) => writeln!(out, "{}", function(EventKind::Return, detail)),
        DetailBody::Keys(keys) => writeln!(
            out,
            "keys of {} substream {} at {}..{} {:?}",
            keys.function, keys.substream.0, keys.start.0, keys.end.0, keys.attributes
        ),
        DetailBody::Context(context) => {
            writeln!(out, "substream {} from here, entered at {}", context.substream.0, context.start.0)
        }
        DetailBody::Other { kind, payload } => writeln!(out, "type {kind}, {} bytes", payload.len()),
    }
}

fn hex(words: &[u64]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("{word:#x}")).collect();
    format!("[{}]", words.join(" "))
}
