use std::sync::{Mutex, PoisonError};

use codec::{
    Arch, BirthKind, Os, Position, SessionNs, StreamId,
    atf::EndEntry,
    profile::{Birth, Epoch, Offset, PROFILE_VERSION, Session as SessionOption, Thread, TraceContext},
    span::{More, Reason, SpanId, SpanKind, SpanStatus},
};

use super::*;
use crate::{
    Catalog, CatalogLimits,
    spans_for_tests::{frame, named},
};

const MS: u64 = 1_000_000;
const EPOCH: u64 = 1_700_000_000_000_000_000;

/// A span as a receiver sees it, as far as it is looked at here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    name: String,
    id: Vec<u8>,
    parent: Option<Vec<u8>>,
    links: Vec<Vec<u8>>,
    events: usize,
    took: u64,
    start: u64,
}

/// The fields of a message: numbers, and bytes of whatever kind.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let (number, length) = match tag & 7 {
            0 => (varint(&mut bytes), 0),
            1 => (0, 8),
            5 => (0, 4),
            _ => (0, usize::try_from(varint(&mut bytes)).expect("short")),
        };
        let (value, rest) = bytes.split_at(length);
        found.push((tag >> 3, number, value.to_vec()));
        bytes = rest;
    }
    found
}

fn all(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    fields(message).into_iter().filter(|field| field.0 == number).map(|field| field.2).collect()
}

fn sent_in(request: &[u8]) -> Vec<Sent> {
    let spans = all(request, 1)
        .iter()
        .flat_map(|resource| all(resource, 2))
        .flat_map(|scope| all(&scope, 2))
        .collect::<Vec<_>>();
    let time = |span: &[u8], number| u64::from_le_bytes(all(span, number)[0].clone().try_into().expect("eight"));
    let read = |span: &Vec<u8>| Sent {
        name: String::from_utf8(all(span, 5)[0].clone()).expect("a name"),
        id: all(span, 2)[0].clone(),
        parent: all(span, 4).pop(),
        links: all(span, 13).iter().map(|link| all(link, 2)[0].clone()).collect(),
        events: all(span, 11).len(),
        took: time(span, 8) - time(span, 7),
        start: time(span, 7) - EPOCH,
    };
    spans.iter().map(read).collect()
}

/// What has been sent.
#[derive(Debug, Clone, Default)]
struct Receiver(Arc<Mutex<Vec<Sent>>>);

impl Receiver {
    fn spans(&self) -> Vec<Sent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn find(&self, name: &str) -> Sent {
        let spans = self.spans();
        let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name} in {spans:#?}");
        found[0].clone()
    }

    /// The name of what a span is in. It must have been sent.
    fn around(&self, name: &str) -> String {
        let parent = self.find(name).parent.expect("it is in something");
        self.spans().into_iter().find(|span| span.id == parent).expect("that was sent").name
    }
}

impl Write for Receiver {
    fn write(&mut self, batch: &[u8]) -> std::io::Result<usize> {
        let (count, request) = batch.split_first_chunk().expect("four bytes");
        let spans = sent_in(request);
        assert_eq!(u32::from_be_bytes(*count) as usize, spans.len());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
        Ok(batch.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn session(number: u8, birth: Option<Birth>, parent: &str) -> Arc<Session> {
    let id = SessionId([number; 16]);
    let mut catalog = Catalog::new(CatalogLimits::default(), Arc::default());
    let executable = format!("/bin/program{number}");
    let process = SessionOption {
        id,
        profile: PROFILE_VERSION,
        arch: Arch::X86_64,
        os: Os::Linux,
        pid: 1,
        agent_version: "1",
        host: "machine",
        executable: &executable,
        argument_count: 0,
        arguments: Default::default(),
    };
    catalog.apply(&process.into());
    catalog.apply(&Epoch { unix_ns: EPOCH }.into());
    birth.into_iter().for_each(|birth| _ = catalog.apply(&birth.into()));
    let root = birth.map_or(id, |birth| birth.parent);
    catalog.apply(&TraceContext { root, parent, state: "" }.into());
    let (stream, start) = (StreamId(0), SessionNs(0));
    catalog.apply(&Thread { stream, os_id: 7, start, end: None, creator: None, name: "main thread" }.into());
    Arc::new(Session::new(format!("s-{number}"), Some(id), String::new(), 0, catalog))
}

fn sink() -> (Receiver, OtlpSink<Receiver>) {
    let receiver = Receiver::default();
    let options = OtlpOptions { min_ns: MS, ..OtlpOptions::default() };
    (receiver.clone(), OtlpSink::new(receiver, options, |line| panic!("{line}")))
}

fn started(sink: &mut OtlpSink<Receiver>, session: &Arc<Session>) {
    sink.start(session).expect("it starts");
    sink.options(session, b"").expect("it takes options");
}

fn ended(sink: &mut OtlpSink<Receiver>, session: &Arc<Session>) {
    let end = EndEntry { how: "exited".into(), code: Some(0), ..EndEntry::default() };
    sink.end(session, &Ended { end, ..Ended::default() }).expect("it ends");
}

fn called(span: Span, name: &str, parent: Option<&Span>) -> Span {
    Span { parent: parent.map(|parent| parent.id), ..named(span, name) }
}

#[test]
fn long_frames_are_sent_with_all_that_they_are_in() {
    let ((receiver, mut sink), session) = (sink(), session(1, None, ""));
    started(&mut sink, &session);
    let main = Span {
        end: None,
        status: SpanStatus::Unmatched,
        reason: Some(Reason::Gap),
        ..called(frame(0, 0, 5, 0), "main", None)
    };
    let long = called(frame(0, 1, 10, 10 + 2 * MS), "long", Some(&main));
    let brief = called(frame(0, 2, 20, 30), "brief", Some(&long));
    let maker = Span { is_named: true, ..called(frame(0, 3, 40, 50), "maker", Some(&long)) };
    let mut task = Span::new(SpanId::new(StreamId(0), Position(4)), SpanKind::Task, SessionNs(60), Some(SessionNs(70)));
    task.parent = Some(maker.id);
    task.more = Some(Box::new(More { origin: Some(maker.id), ..More::default() }));
    let task = named(task, "task");
    let open = Span { status: SpanStatus::Open, end: None, ..called(frame(1, 0, 90, 0), "open", None) };
    let late = called(frame(1, 1, 100, 100 + 5 * MS), "late", Some(&open));
    let given = [brief, maker.clone(), task, long, main, open.clone(), open, late];
    sink.spans(&session, &given).expect("it takes spans");
    assert_eq!(receiver.spans(), [], "they wait for others");
    ended(&mut sink, &session);
    sink.close().expect("it closes");
    let mut names: Vec<_> = receiver.spans().into_iter().map(|span| span.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["late", "long", "main", "main thread", "maker", "open", "program1", "task", "thread 1"]);
    for (inner, outer) in [
        ("task", "maker"),
        ("maker", "long"),
        ("long", "main"),
        ("main", "main thread"),
        ("main thread", "program1"),
        ("late", "open"),
        ("open", "thread 1"),
    ] {
        assert_eq!(receiver.around(inner), outer);
    }
    assert_eq!(receiver.find("task").links, [receiver.find("maker").id], "what created it");
    assert_eq!(receiver.find("main").took, 5 + 2 * MS, "it went on for as long as what it called");
    assert_eq!(receiver.find("open").took, 10 + 5 * MS, "it went on to the end");
    assert_eq!(receiver.find("program1").parent, None);
}

#[test]
fn gaps_are_events_of_their_threads() {
    let ((receiver, mut sink), session) = (sink(), session(1, None, ""));
    started(&mut sink, &session);
    let gap = |position, start, end| {
        let id = SpanId::new(StreamId(0), Position(position));
        let mut gap = Span::new(id, SpanKind::Gap, SessionNs(start), Some(SessionNs(end)));
        gap.more = Some(Box::new(More { key: Some(10), cause: Some("network".into()), ..More::default() }));
        gap
    };
    sink.spans(&session, &[gap(0, 5, 9), gap(20, 30, 40)]).expect("it takes spans");
    ended(&mut sink, &session);
    assert_eq!((receiver.find("main thread").events, receiver.find("main thread").start), (2, 5));
}

#[test]
fn the_same_session_has_the_same_ids_again_and_is_in_the_trace_of_its_program() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let runs = [0, 1].map(|_| {
        let ((receiver, mut sink), session) = (sink(), session(1, None, parent));
        started(&mut sink, &session);
        sink.spans(&session, &[named(frame(0, 0, 0, MS), "main")]).expect("it takes spans");
        ended(&mut sink, &session);
        receiver.spans()
    });
    assert_eq!(runs[0], runs[1]);
    let process = runs[0].iter().find(|span| span.name == "program1").expect("it was sent");
    assert_eq!(process.parent.as_deref(), Some(&[0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7][..]));
}

/// A process is below the innermost frame that was sent of those that it was made in, also where that ends after it.
#[test]
fn processes_are_below_the_calls_that_made_them() {
    let (receiver, mut sink) = sink();
    let birth = |at| Some(Birth { parent: SessionId([1; 16]), how: BirthKind::Forked, tid: 7, at: SessionNs(at) });
    let parent = session(1, None, "");
    let (early, late, lost) = (session(2, birth(10), ""), session(3, birth(5 * MS), ""), session(4, birth(9 * MS), ""));
    let foreign = session(5, Some(Birth { parent: SessionId([9; 16]), ..birth(1).expect("one") }), "");
    for session in [&parent, &early, &lost, &foreign] {
        started(&mut sink, session);
    }
    let run = called(frame(0, 1, 5, 2 * MS), "run", None);
    ended(&mut sink, &early);
    ended(&mut sink, &foreign);
    ended(&mut sink, &lost);
    let names = |receiver: &Receiver| receiver.spans().into_iter().map(|span| span.name).collect::<Vec<_>>();
    assert_eq!(names(&receiver), ["program5"], "the others wait for the calls that made them");
    let again = called(frame(0, 2, 4 * MS, 6 * MS), "again", None);
    sink.spans(&parent, &[run, again]).expect("it takes spans");
    started(&mut sink, &late);
    ended(&mut sink, &parent);
    ended(&mut sink, &late);
    for (inner, outer) in [("program2", "run"), ("program3", "again"), ("program4", "main thread")] {
        assert_eq!(receiver.around(inner), outer);
    }
    assert_eq!(receiver.find("program5").parent, None, "nothing is known of what made it");
}

#[test]
fn clocks_that_are_apart_are_told() {
    let session = session(1, None, "");
    let told = |zero_unix_ns| {
        session.catalog_mut().apply(&Offset { zero_unix_ns, error_ns: 5, at: SessionNs(0) }.into());
        clocks_apart(&session.catalog())
    };
    assert_eq!(told(EPOCH + 400 * MS), None);
    let behind = told(EPOCH + 1_000 * MS).expect("it is told");
    assert!(behind.contains("the clock of machine is 1.000 s behind this collector's"), "{behind}");
    assert!(told(EPOCH - 1_000 * MS).expect("it is told").contains("1.000 s ahead of"));
}
