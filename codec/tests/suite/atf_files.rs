//! Files on disk: written in pieces, abandoned at any byte, damaged, repaired.

use std::io::{self, Cursor, Write};

use codec::{
    Arch, ClockKind, ClockNs, EventKind, FunctionId, Os, SubstreamId,
    atf::{
        AppendError, BrokenLink, DetailBody, DetailEvent, DetailReader, DetailWriter, EDGE_BYTES, FunctionDetail,
        IndexEvent, IndexReader, IndexWriter, Integrity, Keys, OpenError, Origin, Sealed, ThreadReader, ThreadWriter,
    },
    heph::{Attribute, Value},
    profile::Registers,
};
use quickcheck::{TestResult, quickcheck};

use crate::{fixtures::golden, generate::AnyThread};

const ORIGIN: Origin = Origin { arch: Arch::X86_64, os: Os::Linux, clock: ClockKind::Boottime, thread: 7 };

fn write(thread: &AnyThread) -> ThreadWriter {
    let mut writer = ThreadWriter::new(ORIGIN);
    for (sequence, (event, details)) in (0..).zip(&thread.0) {
        assert_eq!(writer.append(event, details), Ok(sequence));
    }
    writer
}

/// The files of a thread, finished.
fn files(writer: ThreadWriter) -> (Vec<u8>, Option<Vec<u8>>) {
    let (index, detail) = writer.seal();
    (finish(Vec::new(), index), detail.map(|detail| finish(Vec::new(), detail)))
}

/// What is in the files of a thread whose writer was killed.
fn flushed(mut writer: ThreadWriter) -> (Vec<u8>, Vec<u8>) {
    let (mut index, mut detail) = (Vec::new(), Vec::new());
    writer.flush_to(&mut index, &mut detail).expect("memory");
    (index, detail)
}

/// What the golden files were when they had just been started.
fn golden_starts() -> (Vec<u8>, Vec<u8>) {
    let origin = Origin { thread: 4712, ..ORIGIN };
    let (mut index, mut detail) = (Vec::new(), Vec::new());
    IndexWriter::new(origin).flush_to(&mut index).expect("memory");
    DetailWriter::new(origin).flush_to(&mut detail).expect("memory");
    (index, detail)
}

/// A thread from the bytes of its files.
fn open<'a>(index: &'a [u8], detail: Option<&'a [u8]>) -> ThreadReader<'a> {
    ThreadReader {
        index: IndexReader::open(index).expect("a header"),
        detail: detail.map(|detail| DetailReader::open(detail).expect("a header")),
    }
}

/// What has been flushed of a file, ended.
fn finish(file: Vec<u8>, mut sealed: Sealed) -> Vec<u8> {
    let mut file = Cursor::new(file);
    sealed.write_to(&mut file).expect("memory");
    file.into_inner()
}

/// A file that goes on behind so many bytes, ended there.
fn repaired(file: &[u8], written_bytes: u64, sealed: Sealed) -> Vec<u8> {
    finish(file[..written_bytes as usize].to_vec(), sealed)
}

fn repaired_index(writer: IndexWriter, file: &[u8]) -> Vec<u8> {
    repaired(file, writer.written_bytes(), writer.seal())
}

/// Both files of a thread, the details where there are any.
fn repaired_thread(writer: ThreadWriter, index: &[u8], detail: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let (index_bytes, detail_bytes) = writer.written_bytes();
    let (index_end, detail_end) = writer.seal();
    let detail = detail_bytes.zip(detail_end).map(|(bytes, sealed)| repaired(detail, bytes, sealed));
    (repaired(index, index_bytes, index_end), detail)
}

fn repaired_detail(writer: DetailWriter, file: &[u8]) -> Vec<u8> {
    repaired(file, writer.written_bytes(), writer.seal())
}

/// A disk that takes a few bytes at a time and is often full.
struct BadDisk {
    file: Vec<u8>,
    calls: usize,
}

impl Write for BadDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        match self.calls % 3 {
            0 => Err(io::ErrorKind::StorageFull.into()),
            1 => Err(io::ErrorKind::Interrupted.into()),
            _ => self.file.write(&bytes[..bytes.len().min(11)]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

quickcheck! {
    fn threads_come_back_with_all_links(thread: AnyThread) -> bool {
        let (index, detail) = files(write(&thread));
        assert_eq!(IndexReader::check_file(&index), Integrity::Intact);
        let reader = open(&index, detail.as_deref());
        assert_eq!(reader.check_links(), Ok(()));
        assert!(reader.detail.as_ref().is_none_or(|detail| detail.check() == Integrity::Intact));
        assert_eq!(reader.index.has_detail(), Some(detail.is_some()));
        (0..).zip(&thread.0).all(|(sequence, (event, details))| {
            let read = reader.index.get(sequence).expect("it is there").expect("it is whole");
            let found: Vec<_> = reader.details_of(sequence).map(|detail| detail.expect("it is whole")).collect();
            let linked = found.iter().all(|detail| detail.index == sequence && detail.timestamp == event.timestamp);
            let bodies: Vec<_> = found.into_iter().map(|detail| detail.body).collect();
            linked && IndexEvent { detail: None, ..read } == *event && bodies == *details
        })
    }

    fn flushing_in_pieces_to_a_bad_disk_gives_the_same_file(thread: AnyThread, every: u8) -> bool {
        let (index, detail) = files(write(&thread));
        let mut disks = [BadDisk { file: Vec::new(), calls: 0 }, BadDisk { file: Vec::new(), calls: 0 }];
        let mut writer = ThreadWriter::new(ORIGIN);
        for (at, (event, details)) in thread.0.iter().enumerate() {
            writer.append(event, details).expect("room");
            if at % (usize::from(every) + 1) == 0 {
                // Full or not: what is not written now is written later.
                let [index_disk, detail_disk] = &mut disks;
                let _ = writer.flush_to(index_disk, detail_disk);
            }
        }
        let [index_disk, detail_disk] = &mut disks;
        while writer.flush_to(index_disk, detail_disk).is_err() {}
        assert_eq!(writer.pending_bytes(), 0);
        let [index_disk, detail_disk] = disks;
        let (sealed_index, sealed_detail) = writer.seal();
        let same = finish(index_disk.file, sealed_index) == index;
        same && sealed_detail.map(|sealed| finish(detail_disk.file, sealed)) == detail
    }

    fn a_file_abandoned_at_any_byte_holds_its_whole_events(thread: AnyThread, at: usize) -> TestResult {
        let (index, detail) = flushed(write(&thread));
        abandoned_index(&index[..at % (index.len() + 1)]);
        if !detail.is_empty() {
            abandoned_detail(&detail[..at % (detail.len() + 1)]);
        }
        TestResult::passed()
    }
}

fn abandoned_index(file: &[u8]) {
    let events = file.len().saturating_sub(EDGE_BYTES) as u64 / 32;
    assert_eq!(IndexReader::check_file(file), Integrity::Unfinished { events });
    let Ok(reader) = IndexReader::open(file) else {
        assert!(matches!(IndexReader::open(file), Err(OpenError::Short { found }) if found == file.len()));
        return;
    };
    assert!(!reader.is_finished());
    let repaired = repaired_index(reader.resume().expect("it only lacks its end"), file);
    assert_eq!(IndexReader::check_file(&repaired), Integrity::Intact);
    let repaired = IndexReader::open(&repaired).expect("intact");
    assert!(repaired.events().eq(reader.events()), "the events are the same");
    assert_eq!(repaired.origin(), &ORIGIN);
}

fn abandoned_detail(file: &[u8]) {
    let Ok(reader) = DetailReader::open(file) else {
        assert!(matches!(DetailReader::open(file), Err(OpenError::Short { found }) if found == file.len()));
        return;
    };
    assert_eq!(reader.check(), Integrity::Unfinished { events: reader.len() });
    for keep in [reader.len(), reader.len() / 2, 0] {
        let repaired = repaired_detail(reader.resume(keep).expect("it only lacks its end"), file);
        assert_eq!(DetailReader::check_file(&repaired), Integrity::Intact);
        let repaired = DetailReader::open(&repaired).expect("intact");
        assert!(repaired.events().eq(reader.events().take(keep as usize)), "the events kept are the same");
    }
}

/// Killed between two flushes, at any byte: what is repaired is whole and linked.
#[test]
fn a_thread_abandoned_at_any_byte_is_repaired_with_its_links() {
    let body = |byte: u8| call(vec![byte; 24].leak());
    let mut writer = ThreadWriter::new(ORIGIN);
    let (mut index, mut detail) = (Vec::new(), Vec::new());
    for at in 0..3 {
        writer.append(&index_event(), &[body(at), body(at + 100)]).expect("room");
        writer.append(&index_event(), &[]).expect("room");
    }
    writer.flush_to(&mut index, &mut detail).expect("memory");
    for length in EDGE_BYTES..=index.len() {
        let cut = &index[..length];
        let reader = open(cut, Some(&detail));
        assert_eq!(reader.check_links(), Ok(()), "the details came further");
        let (index, detail) = repaired_thread(reader.resume().expect("they only lack their ends"), cut, &detail);
        let repaired = open(&index, detail.as_deref());
        assert_eq!(repaired.index.check(), Integrity::Intact);
        assert_eq!(repaired.detail.is_none(), repaired.index.is_empty());
        assert!(repaired.detail.as_ref().is_none_or(|detail| detail.check() == Integrity::Intact));
        assert_eq!(repaired.check_links(), Ok(()), "index cut to {length}");
    }
}

/// Damage is not an end: what lies behind it is not given up, and no repair signs it.
#[test]
fn damage_in_an_unfinished_file_is_corruption() {
    let mut writer = ThreadWriter::new(ORIGIN);
    let body = call(&[7; 16]);
    for _ in 0..100 {
        writer.append(&index_event(), &[body]).expect("room");
    }
    let (mut index, detail) = flushed(writer);
    index[64 + 10 * 32 + 20] = 9;
    let reader = IndexReader::open(&index).expect("a header");
    assert_eq!((reader.len(), reader.events().filter(Result::is_ok).count()), (100, 99));
    assert!(matches!(reader.check(), Integrity::Corrupt(_)));
    assert!(reader.resume().is_err());

    let told = |at: usize, byte: u8| {
        let mut file = detail.clone();
        file[64 + 10 * 140 + at] = byte;
        let reader = DetailReader::open(&file).expect("a header");
        let told = match reader.check() {
            Integrity::Corrupt(corrupt) => corrupt.to_string(),
            other => panic!("expected corruption, found {other:?}"),
        };
        assert_eq!(reader.resume(u64::MAX).expect_err("it is damaged").to_string(), told);
        assert!(reader.resume(5).is_ok() || at < 24, "before the damage it is sound");
        told
    };
    assert_eq!(told(0, 5), "at byte 1464: expected a length from 24 to 636, found 5");
    assert_eq!(told(2, 1), "at byte 1464: expected a length from 24 to 636, found 65676");
    assert_eq!(told(24 + 96, 17), "at byte 1488: expected 117 bytes of payload, found 116");
    assert_eq!(told(24 + 97, 4), "at byte 1584: expected at most 512 bytes of stack, found 1040");
}

/// Without a footer there is no checksum, so that not all damage can be seen. But none makes a repair give up what is
/// there, or leave links that lead astray.
#[test]
fn no_changed_bit_makes_a_repair_lose_an_event() {
    for body in [keys(), call(&[7; 16])] {
        let mut writer = ThreadWriter::new(ORIGIN);
        (0..6).for_each(|_| _ = writer.append(&index_event(), &[body]).expect("room"));
        let (index, detail) = flushed(writer);
        for (at, bit) in (EDGE_BYTES..detail.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = detail.clone();
            changed[at] ^= 1 << bit;
            let reader = open(&index, Some(&changed));
            let Ok(writer) = reader.resume() else { continue };
            let (index, detail) = repaired_thread(writer, &index, &changed);
            let repaired = open(&index, detail.as_deref());
            assert_eq!(repaired.check_links(), Ok(()), "bit {bit} of byte {at}");
            let left = (repaired.index.len(), repaired.detail.as_ref().map(DetailReader::len));
            assert_eq!(left, (6, Some(6)), "bit {bit} of byte {at}");
        }
    }
}

/// The place of the footer is where the footer is.
#[test]
fn a_header_that_misplaces_the_footer_hides_nothing() {
    let index = golden("atf/index.hex");
    for (at, byte) in [(40, 0xff), (41, 9), (40, 3)] {
        let mut file = index.clone();
        file[at] = byte;
        file[64] ^= 1;
        let reader = IndexReader::open(&file).expect("a header");
        assert_eq!(reader.len(), 5, "the footer is no event");
        assert!(matches!(reader.check(), Integrity::Corrupt(_)));
        assert!(reader.resume().is_err(), "the event that was changed is not signed");
    }
}

#[test]
fn a_link_to_another_events_details_is_told() {
    let (index, detail) = (golden("atf/index.hex"), golden("atf/detail.hex"));
    let mut wrong = index.clone();
    wrong[64 + 32 + 28] = 1;
    let reader = open(&wrong, Some(&detail));
    let found: Vec<_> = reader.details_of(1).collect();
    assert_eq!(found, [Err(BrokenLink::Forward { sequence: 1, position: 1 })]);
    assert_eq!(reader.details_of(2).filter(Result::is_ok).count(), 1, "others are not touched");
}

/// Killed while the file was being finished: in the footer, or between footer and header.
#[test]
fn a_file_killed_while_it_is_finished_loses_nothing() {
    let (index, detail) = (golden("atf/index.hex"), golden("atf/detail.hex"));
    let (index_start, detail_start) = golden_starts();
    for lost in 0..=64 {
        let mut file = index[..index.len() - lost].to_vec();
        file[..EDGE_BYTES].copy_from_slice(&index_start);
        let expected = if lost == 0 { Integrity::Intact } else { Integrity::Unfinished { events: 5 } };
        assert_eq!(IndexReader::check_file(&file), expected, "{lost} bytes of the footer lost");
        let writer = IndexReader::open(&file).expect("readable").resume().expect("it only lacks its end");
        assert_eq!(repaired_index(writer, &file), index);
    }
    for lost in 0..=64 {
        let mut file = detail[..detail.len() - lost].to_vec();
        file[..EDGE_BYTES].copy_from_slice(&detail_start);
        let expected = if lost == 0 { Integrity::Intact } else { Integrity::Unfinished { events: 4 } };
        assert_eq!(DetailReader::check_file(&file), expected, "{lost} bytes of the footer lost");
        let writer = DetailReader::open(&file).expect("readable").resume(u64::MAX).expect("it only lacks its end");
        assert_eq!(repaired_detail(writer, &file), detail);
    }
}

/// A machine that lost power may have given the file its length but not its last bytes.
#[test]
fn zeros_at_the_end_of_an_unfinished_file_are_no_events() {
    let (index, detail) = (golden("atf/index.hex"), golden("atf/detail.hex"));
    let mut file = index[..index.len() - 64].to_vec();
    file[28..32].fill(0);
    file[40..64].fill(0);
    file.extend([0; 4096]);
    assert_eq!(IndexReader::check_file(&file), Integrity::Unfinished { events: 5 });
    // The last event ends in zeros itself: whether they are its own cannot be told, so it does not count.
    let mut file = detail[..detail.len() - 64].to_vec();
    file[28..60].fill(0);
    file.extend([0; 4096]);
    assert_eq!(DetailReader::check_file(&file), Integrity::Unfinished { events: 3 });
}

/// The zeros may start anywhere, and a repair signs no half event.
#[test]
fn zeros_in_place_of_the_last_bytes_cost_one_event_at_most() {
    let call = DetailBody::Call(FunctionDetail {
        function: FunctionId(1),
        registers: Registers::from_words([7; Registers::WORDS]),
        stack: &[7; 16],
    });
    for body in [call, keys()] {
        let mut writer = DetailWriter::new(ORIGIN);
        let mut file = Vec::new();
        for index in 0..10 {
            let timestamp = ClockNs(u64::MAX);
            writer.append(&DetailEvent { index, thread: 7, timestamp, flags: 0, body }).expect("room");
        }
        writer.flush_to(&mut file).expect("memory");
        let event_bytes = (file.len() - EDGE_BYTES) / 10;
        for lost in 1..event_bytes {
            // As many as were lost could be the event's own.
            for zeros in [lost - 1, lost + 1, lost + 100, 4096] {
                let mut file = file[..file.len() - lost].to_vec();
                file.extend(vec![0; zeros]);
                let reader = DetailReader::open(&file).expect("a header");
                let whole: Vec<_> = reader.events().map(|event| event.expect("whole")).collect();
                assert!(whole.len() == 9, "{} events with {lost} bytes lost to {zeros} zeros", whole.len());
                assert!(whole.iter().all(|event| event.body == body));
                let repaired = repaired_detail(reader.resume(u64::MAX).expect("it only lacks its end"), &file);
                assert_eq!(DetailReader::check_file(&repaired), Integrity::Intact);
            }
        }
    }
}

/// Killed anywhere in the last write, which completes the header.
#[test]
fn a_half_completed_header_hides_nothing() {
    let (index, detail) = (golden("atf/index.hex"), golden("atf/detail.hex"));
    let (index_start, detail_start) = golden_starts();
    for written in 0..=EDGE_BYTES {
        let torn = |file: &[u8], start: &[u8]| [&file[..written], &start[written..], &file[EDGE_BYTES..]].concat();
        let file = torn(&index, &index_start);
        let reader = IndexReader::open(&file).expect("a header");
        assert!(!matches!(reader.check(), Integrity::Corrupt(_)), "{written} bytes of the header written");
        assert_eq!(repaired_index(reader.resume().expect("all events are there"), &file), index);
        let file = torn(&detail, &detail_start);
        let reader = DetailReader::open(&file).expect("a header");
        assert!(!matches!(reader.check(), Integrity::Corrupt(_)), "{written} bytes of the header written");
        assert_eq!(repaired_detail(reader.resume(u64::MAX).expect("all events are there"), &file), detail);
    }
}

/// What is left of a footer still speaks for the events before it.
#[test]
fn a_cut_footer_does_not_let_damage_be_signed() {
    let (index, detail) = (golden("atf/index.hex"), golden("atf/detail.hex"));
    for lost in 1..=56 {
        let mut file = index[..index.len() - lost].to_vec();
        file[64] ^= 1;
        assert!(IndexReader::open(&file).expect("a header").resume().is_err(), "{lost} bytes of the footer lost");
        let mut file = detail[..detail.len() - lost].to_vec();
        file[64 + 16] ^= 1;
        assert!(DetailReader::open(&file).expect("a header").resume(u64::MAX).is_err(), "{lost} bytes lost");
    }
}

#[test]
fn corruption_is_told_with_its_place() {
    let told = |file: &[u8]| match IndexReader::check_file(file) {
        Integrity::Corrupt(corrupt) => corrupt.to_string(),
        other => panic!("expected corruption, found {other:?}"),
    };
    let index = golden("atf/index.hex");
    let with = |at: usize, byte: u8| {
        let mut file = index.clone();
        file[at] = byte;
        file
    };
    assert_eq!(told(&with(0, b'X')), "at byte 0: expected the magic \"ATI2\", found \"XTI2\"");
    assert_eq!(told(b"XTI"), "at byte 0: expected the magic \"ATI2\", found \"XTI\\x00\"");
    assert_eq!(told(&with(4, 2)), "at byte 4: expected byte order 1 (little-endian), found 2");
    assert_eq!(told(&with(5, 9)), "at byte 5: expected version 1, found 9");
    assert_eq!(told(&with(24, 33)), "at byte 24: expected events of 32 bytes, found 33");
    assert_eq!(told(&with(32, 65)), "at byte 32: expected the first event at byte 64, found 65");
    assert_eq!(told(&with(28, 4)), "at byte 28: event count in the header: expected 5, found 4");
    assert_eq!(told(&with(224, b'X')), "at byte 224: expected the magic \"2ITA\", found \"XITA\"");
    assert_eq!(told(&with(232, 4)), "at byte 232: event count in the footer: expected 5, found 4");
    assert_eq!(told(&with(64, 1)), "at byte 228: expected checksum 0895297c, the events have 8c168f2f");
    assert_eq!(told(&index[..index.len() - 1]), "at byte 224: expected a footer of 64 bytes, found 63 bytes");
    assert_eq!(told(&index[..100]), "at byte 100: expected a footer of 64 bytes, found 0 bytes");
    assert_eq!(told(&[&index[..], b"more"].concat()), "at byte 288: expected the end of the file, found 4 more bytes");

    // What was finished and then cut can be finished again.
    let cut = &index[..100];
    let writer = IndexReader::open(cut).expect("readable").resume().expect("it lacks its end");
    assert_eq!(IndexReader::check_file(&repaired_index(writer, cut)), Integrity::Intact);
    // Damage is not repaired away.
    let damaged = with(64, 1);
    assert!(IndexReader::open(&damaged).expect("readable").resume().is_err());

    let detail = golden("atf/detail.hex");
    let told = |at: usize, byte: u8| {
        let mut file = detail.clone();
        file[at] = byte;
        match DetailReader::check_file(&file) {
            Integrity::Corrupt(corrupt) => corrupt.to_string(),
            other => panic!("expected corruption, found {other:?}"),
        }
    };
    assert_eq!(told(64, 23), "at byte 64: expected a length from 24 to 396, found 23");
    assert_eq!(told(64 + 24 + 96, 17), "at byte 88: expected 117 bytes of payload, found 116");
}

#[test]
fn an_event_of_no_kind_is_corruption_in_a_finished_file() {
    let mut writer = IndexWriter::new(ORIGIN);
    for _ in 0..3 {
        writer.append(&index_event()).expect("room");
    }
    let mut file = Cursor::new(Vec::new());
    writer.seal().write_to(&mut file).expect("memory");
    let mut file = file.into_inner();
    file[64 + 32 + 20] = 9;
    let checksum = crc32(&file[64..64 + 96]).to_le_bytes();
    file[64 + 96 + 4..64 + 96 + 8].copy_from_slice(&checksum);
    let Integrity::Corrupt(corrupt) = IndexReader::check_file(&file) else { panic!("it is corrupt") };
    assert_eq!(corrupt.to_string(), "at byte 116: expected a kind from 1 to 3, found 9");
    let reader = IndexReader::open(&file).expect("readable");
    assert_eq!(reader.events().filter(Result::is_ok).count(), 2, "the others can be read");
}

#[test]
fn links_that_lead_astray_are_found() {
    let body = call(&[]);
    let detail = |index| DetailEvent { index, thread: 7, timestamp: ClockNs(1), flags: 0, body };
    let links = |index: &[Option<u32>], details: &[u32]| {
        let mut index_writer = IndexWriter::new(ORIGIN);
        for &detail in index {
            index_writer.append(&IndexEvent { detail, ..index_event() }).expect("room");
        }
        let mut detail_writer = DetailWriter::new(ORIGIN);
        for &index in details {
            detail_writer.append(&detail(index)).expect("room");
        }
        let (index, detail) = (finish(Vec::new(), index_writer.seal()), finish(Vec::new(), detail_writer.seal()));
        let reader = open(&index, Some(&detail));
        reader.check_links()
    };
    assert_eq!(links(&[None, Some(0), Some(2)], &[1, 1, 2]), Ok(()));
    assert_eq!(links(&[Some(1), None], &[0]), Err(BrokenLink::Forward { sequence: 0, position: 1 }));
    assert_eq!(links(&[Some(0), None], &[1]), Err(BrokenLink::Forward { sequence: 0, position: 0 }));
    assert_eq!(links(&[Some(0), None], &[0, 1]), Err(BrokenLink::Backward { position: 1, index: 1 }));
    assert_eq!(links(&[None, None], &[5]), Err(BrokenLink::Backward { position: 0, index: 5 }));
    assert_eq!(links(&[Some(0), Some(0)], &[0]), Err(BrokenLink::Forward { sequence: 1, position: 0 }));
}

#[test]
fn an_event_whose_details_are_refused_leaves_no_trace() {
    let mut writer = ThreadWriter::new(ORIGIN);
    writer.append(&index_event(), &[call(&[1; 512])]).expect("512 bytes are allowed");
    let refused = writer.append(&index_event(), &[call(&[2; 8]), call(&[3; 513])]);
    assert_eq!(refused, Err(AppendError::TooLong { field: "stack", found: 513, limit: 512 }));
    let other = |kind| DetailBody::Other { kind, payload: &[] };
    assert_eq!(writer.append(&index_event(), &[other(5), other(16)]), Err(AppendError::KnownType { kind: 16 }));
    writer.append(&index_event(), &[call(&[4; 8])]).expect("room");
    let (index, detail) = files(writer);
    let detail = detail.expect("there are details");
    let reader = open(&index, Some(&detail));
    assert_eq!((reader.index.len(), reader.check_links()), (2, Ok(())));
    assert_eq!(DetailReader::check_file(&detail), Integrity::Intact);
}

fn call(stack: &[u8]) -> DetailBody<'_> {
    DetailBody::Call(FunctionDetail { function: FunctionId(1), registers: Registers::default(), stack })
}

/// Details that end in bytes other than zero.
fn keys() -> DetailBody<'static> {
    const ATTRIBUTES: &[Attribute<'_>] = &[Attribute { name: "key", value: Value::U64(u64::MAX) }];
    let (function, substream) = (FunctionId(1), SubstreamId(3));
    DetailBody::Keys(Keys { function, start: ClockNs(1), end: ClockNs(2), substream, attributes: ATTRIBUTES.into() })
}

fn index_event() -> IndexEvent {
    IndexEvent {
        timestamp: ClockNs(1),
        function: FunctionId(1),
        thread: 7,
        kind: EventKind::Call,
        depth: 0,
        detail: None,
    }
}

/// CRC-32 as the IEEE defines it, the slow way.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}
