use std::io::Write;

use super::*;
use crate::{
    Ended, Sink, SinkError,
    spans_for_tests::{frame, named, session, tell},
};

/// The packets of a trace, as bytes.
fn packets(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut packets = Vec::new();
    while let [0x0a, rest @ ..] = bytes {
        let (mut length, mut shift, mut at) = (0, 0, 0);
        while let Some(byte) = rest.get(at) {
            length |= usize::from(byte & 0x7f) << shift;
            (shift, at) = (shift + 7, at + 1);
            if byte & 0x80 == 0 {
                break;
            }
        }
        packets.push(&rest[at..at + length]);
        bytes = &rest[at + length..];
    }
    assert!(bytes.is_empty(), "all of it is packets");
    packets
}

#[test]
fn a_name_is_written_once_and_ends_need_none() {
    let spans: Vec<Span> = (0..100).map(|at| named(frame(0, at, 10 * at, 10 * at + 5), "a_function")).collect();
    let mut bytes = Vec::new();
    tell(&mut PerfettoSink::new(&mut bytes), &spans);
    let found = bytes.windows(10).filter(|window| *window == b"a_function").count();
    assert_eq!(found, 1);
    // The start of the sequence, the process, the thread, and a begin and an end each.
    let packets = packets(&bytes);
    assert_eq!(packets.len(), 3 + 200);
    assert!(packets[50..].iter().all(|packet| packet.len() < 30), "{}", packets[50].len());
}

#[test]
fn what_could_not_be_written_is_told() {
    /// Takes nothing while it is full.
    struct Full<'a>(&'a mut Vec<u8>, &'a std::sync::atomic::AtomicBool);
    impl Write for Full<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            match self.1.load(std::sync::atomic::Ordering::Relaxed) {
                true => Err(std::io::ErrorKind::StorageFull.into()),
                false => self.0.write(bytes),
            }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (mut bytes, full) = (Vec::new(), std::sync::atomic::AtomicBool::new(true));
    let mut sink = PerfettoSink::new(Full(&mut bytes, &full));
    let session = session();
    sink.start(&session).expect("it starts");
    let spans: Vec<Span> = (0..1000).map(|at| named(frame(0, at, 10 * at, 10 * at + 5), "f")).collect();
    while sink.spans(&session, &spans).is_ok() {}
    assert!(matches!(sink.spans(&session, &spans), Err(SinkError::Failed { .. })));
    full.store(false, std::sync::atomic::Ordering::Relaxed);
    sink.spans(&session, &spans).expect("there is room");
    sink.end(&session, &Ended::default()).expect("it ends");
    sink.close().expect("it closes");
    drop(sink);
    let packets = packets(&bytes);
    let told = packets.iter().filter(|packet| packet.windows(5).any(|window| window == b"could")).count();
    assert_eq!(told, 1);
}

/// Its turns come before it, and may come behind it; they and its suspensions have keys of their own.
#[test]
fn a_task_has_one_track_named_by_its_key() {
    let task = frame(0, 0, 10, 90).id;
    let of_task = |kind, position, key, start, end| {
        let (parent, substream) = if kind == SpanKind::Task { (None, 0) } else { (Some(task), 0xabc) };
        let more = Some(Box::new(codec::span::More { key: Some(key), ..Default::default() }));
        let substream = codec::SubstreamId(substream);
        Span { kind, parent, substream, more, ..frame(0, position, start, end) }
    };
    let spans = [
        of_task(SpanKind::Job, 1, 0x100, 10, 30),
        // It begins before the turn ends.
        of_task(SpanKind::Suspension, 2, 0x200, 20, 40),
        of_task(SpanKind::Job, 3, 0x300, 40, 50),
        of_task(SpanKind::Task, 0, 0xabc, 10, 90),
        of_task(SpanKind::Job, 4, 0x400, 95, 99),
    ];
    let mut bytes = Vec::new();
    tell(&mut PerfettoSink::new(&mut bytes), &spans);
    let packets = packets(&bytes);
    let with = |text: &[u8]| -> std::collections::BTreeSet<_> {
        packets.iter().filter(|packet| packet.windows(text.len()).any(|window| window == text)).collect()
    };
    assert_eq!((with(b"task 0x").len(), with(b"task 0xabc").len()), (1, 1), "each time with the same id");
}
