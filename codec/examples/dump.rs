//! Prints what is in a file: Heph packets, or an ATF index or detail file.
//!
//! `cargo run -p codec --example dump -- FILE`; `-` is standard input. A file named `*.hex` is bytes in hexadecimal,
//! as in `fixtures/`.

use std::{
    env, fs,
    io::{self, ErrorKind, Read, Write},
    process::ExitCode,
};

use codec::{
    atf::{DetailReader, IndexReader, Integrity},
    heph::{MAX_PACKET_BYTES, Stamp, Step, StreamDecoder},
    profile::Message,
};

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let (Some(path), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: dump FILE    (- is standard input)");
        return ExitCode::from(2);
    };
    let name = path.to_string_lossy();
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
    let digits: Vec<_> = text
        .lines()
        .flat_map(|line| line.split('#').next().unwrap_or_default().chars())
        .filter(|c| !c.is_whitespace())
        .collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
    let bytes: Result<_, _> = digits.chunks(2).map(byte).collect();
    bytes.map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("not hexadecimal: {error}")))
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
        Integrity::Unfinished { events } => writeln!(out, "unfinished: {events} events are safe")?,
        Integrity::Corrupt(corrupt) => writeln!(out, "corrupt {corrupt}")?,
    }
    Ok(integrity == Integrity::Intact)
}

fn dump_packets(bytes: &[u8], out: &mut impl Write) -> io::Result<bool> {
    let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
    let mut offset = 0;
    while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
        write!(out, "{offset:>8}  ")?;
        match decoder.step(rest, true) {
            Step::Packet { bytes, .. } => {
                match Message::decode(bytes) {
                    Ok(message) => dump_message(&message, out)?,
                    Err(error) => writeln!(out, "valid Heph, but not of the profile: {error}")?,
                }
                offset += bytes.len();
            }
            Step::Skip { bytes, cause } => {
                writeln!(out, "{bytes} bytes are no packet: {cause}")?;
                offset += bytes;
            }
            Step::More { needed } => {
                writeln!(out, "{needed} bytes needed")?;
                break;
            }
        }
    }
    Ok(decoder.skipped_bytes() == 0)
}

fn dump_message(message: &Message<'_>, out: &mut impl Write) -> io::Result<()> {
    let stamped = |stamp: &Stamp| {
        let Stamp { stream, counter, substream, start, end } = stamp;
        format!("stream {} #{} substream {} at {}..{}", stream.0, counter.0, substream.0, start.0, end.0)
    };
    match message {
        Message::Function(event) => {
            let kind = event.kind.description();
            let function = event.function.map_or("?".to_string(), |id| id.to_string());
            write!(out, "{}: {kind} of {function} depth {}", stamped(&event.stamp), event.depth)?;
            if let Some(ip) = event.ip {
                write!(out, " ip {ip:#x}")?;
            }
            if let Some(detail) = &event.detail {
                write!(out, " {:x?} stack {:x?}", detail.registers, detail.stack)?;
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
            writeln!(out, "option {:?}: {} bytes, not of the profile", metadata.name, metadata.value.len())
        }
    }
}

fn dump_index(bytes: &[u8], out: &mut impl Write) -> io::Result<Integrity> {
    if let Ok(index) = IndexReader::open(bytes) {
        writeln!(out, "index: {} events of {:?}", index.len(), index.origin())?;
        for (sequence, event) in index.events().enumerate() {
            match event {
                Ok(event) => writeln!(out, "{sequence:>8}  {event:?}")?,
                Err(corrupt) => writeln!(out, "{sequence:>8}  {corrupt}")?,
            }
        }
    }
    Ok(IndexReader::check_file(bytes))
}

fn dump_detail(bytes: &[u8], out: &mut impl Write) -> io::Result<Integrity> {
    if let Ok(detail) = DetailReader::open(bytes) {
        writeln!(out, "detail: {} events of thread {}", detail.len(), detail.origin().thread)?;
        for (position, event) in detail.events().enumerate() {
            match event {
                Ok(event) => writeln!(out, "{position:>8}  {event:x?}")?,
                Err(corrupt) => writeln!(out, "{position:>8}  {corrupt}")?,
            }
        }
    }
    Ok(DetailReader::check_file(bytes))
}
