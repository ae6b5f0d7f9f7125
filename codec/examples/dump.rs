//! Prints what is in a file: Heph packets, or an ATF index or detail file.
//!
//! `cargo run -p codec --example dump -- --help` says how.

use std::{
    env,
    fmt::Debug,
    fs,
    io::{self, ErrorKind, Read, Write},
    process::ExitCode,
};

use codec::{
    atf::{Corrupt, DetailReader, IndexReader, Integrity},
    heph::{MAX_PACKET_BYTES, Step, StreamDecoder},
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
    match message {
        Message::Run(run) => {
            writeln!(out, "run of {} events, {:?}", run.count, run.stamp)?;
            run.function_events().try_for_each(|event| writeln!(out, "{:>10}{event:?}", ""))
        }
        Message::Option(known) => writeln!(out, "option {:?}", known.option),
        Message::BadOption { metadata, error } => {
            writeln!(out, "option {:?} with a bad value: {}", metadata.name, error.from_base(offset))
        }
        other => writeln!(out, "{other:?}"),
    }
}

fn dump_index(bytes: &[u8], out: &mut impl Write) -> io::Result<Integrity> {
    if let Ok(index) = IndexReader::open(bytes) {
        writeln!(out, "index of {:?}, events: {}", index.origin(), index.len())?;
        dump_events(index.events(), out)?;
    }
    Ok(IndexReader::check_file(bytes))
}

fn dump_detail(bytes: &[u8], out: &mut impl Write) -> io::Result<Integrity> {
    if let Ok(detail) = DetailReader::open(bytes) {
        writeln!(out, "detail of thread {}, events: {}", detail.thread(), detail.len())?;
        dump_events(detail.events(), out)?;
    }
    Ok(DetailReader::check_file(bytes))
}

fn dump_events<T: Debug>(events: impl Iterator<Item = Result<T, Corrupt>>, out: &mut impl Write) -> io::Result<()> {
    events.enumerate().try_for_each(|(number, event)| match event {
        Ok(event) => writeln!(out, "{number:>8}  {event:?}"),
        Err(corrupt) => writeln!(out, "{number:>8}  {corrupt}"),
    })
}
