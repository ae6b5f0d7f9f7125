use std::sync::Arc;

use codec::{
    FunctionId, ModuleId, Position, SessionNs, StreamId,
    atf::{FunctionEntry, Manifest},
    span::{SpanFlags, What},
};
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::Field,
};

use super::*;

fn session(functions: u32) -> Session {
    let function = |index: u32| {
        let name = format!("work{index}");
        let scopes = "4part".repeat(index as usize % 5);
        let name = format!("_ZN7project9component{scopes}{}{name}Ei", name.len());
        FunctionEntry { id: FunctionId::new(ModuleId(0), index).0, name, ..FunctionEntry::default() }
    };
    let manifest = Manifest {
        functions: (0..functions).map(function).collect(),
        clock: Some("boottime".into()),
        clock_zero_ns: Some(77),
        ..Manifest::default()
    };
    Session::new("s".into(), None, String::new(), 0, Catalog::from_manifest(&manifest))
}

fn frame(number: u64, functions: u64) -> Span {
    // Numbers that look as if nobody had chosen them.
    let mut random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    random = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    random = (random ^ (random >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 54;
    let (stream, depth) = (StreamId((number / 4096 % 8) as u32), (random % 24) as u32);
    let id = SpanId::new(stream, Position(2 * number));
    let (start, end) = (1000 * number + random % 700, 1000 * number + 1000 + random);
    Span {
        parent: Some(SpanId::new(stream, Position(2 * number - random % 16))),
        what: What::Function(FunctionId::new(ModuleId(0), (random % functions) as u32)),
        depth,
        ..Span::new(id, SpanKind::Frame, SessionNs(start), Some(SessionNs(end)))
    }
}

/// The bytes of a whole file.
fn file(session: &Session, spans: &[Span], group: usize) -> Vec<u8> {
    let mut table = SpanTable::new().expect("it starts");
    let mut bytes = Vec::new();
    for span in spans {
        table.push(&session.catalog(), span).expect("it is taken");
        if table.waiting_rows() >= group {
            table.end_group().expect("it ends");
            bytes.extend(table.take_bytes());
        }
    }
    bytes.extend(table.finish(session).expect("it ends"));
    bytes
}

#[test]
fn rows_are_read_back_from_every_group() {
    let session = session(10);
    let mut spans: Vec<_> = (100..5100).map(|number| frame(number, 10)).collect();
    let threads = vec![StreamId(4), StreamId(u32::MAX)];
    let cause: Option<Arc<str>> = Some("network".into());
    spans[3].more = Some(Box::new(More { threads, key: Some(u64::MAX), cause, ..More::default() }));
    spans[3].flags = SpanFlags::SYNC.with(SpanFlags::ORPHAN, true);
    spans[4].end = None;
    // More events than 36 bits can count.
    spans[5].id = SpanId::new(StreamId(7), Position(1 << 40)).second();
    spans[6].parent = Some(SpanId::new(StreamId(7), Position((1 << 40) + (1 << 36))));
    spans[7].parent = None;
    for group in [1, 7, 4096, usize::MAX] {
        let few = if group == 1 { 50 } else { spans.len() };
        let reader =
            SerializedFileReader::new(bytes::Bytes::from(file(&session, &spans[..few], group))).expect("a file");
        assert_eq!(reader.metadata().num_row_groups(), few.div_ceil(group));
        let rows: Vec<Vec<(String, Field)>> = reader
            .get_row_iter(None)
            .expect("rows")
            .map(|row| {
                row.expect("a row").get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect()
            })
            .collect();
        assert_eq!(rows.len(), few);
        let field = |row: usize, name: &str| -> String {
            rows[row].iter().find(|(known, _)| known == name).map(|(_, field)| field.to_string()).expect("a column")
        };
        for (row, span) in spans[..few].iter().enumerate() {
            assert_eq!(field(row, "id"), format!("\"{}\"", span.id));
            assert_eq!(field(row, "parent"), span.parent.map_or("null".into(), |id| format!("\"{id}\"")));
            assert_eq!(field(row, "start_ns"), span.start.0.to_string());
            assert_eq!(field(row, "depth"), span.depth.to_string());
            assert!(field(row, "function").starts_with("\"project::component"), "{}", field(row, "function"));
        }
        assert_eq!((field(3, "threads"), field(3, "key")), ("[4, 4294967295]".into(), u64::MAX.to_string()));
        assert_eq!((field(3, "cause"), field(3, "flags")), ("\"network\"".into(), "\"sync,orphan\"".into()));
        assert_eq!(
            (field(4, "end_ns"), field(4, "threads"), field(4, "flags")),
            ("null".into(), "null".into(), "\"\"".into())
        );
    }
}

#[test]
fn a_file_says_whose_spans_it_has() {
    let session = session(1);
    let reader = SerializedFileReader::new(bytes::Bytes::from(file(&session, &[], 1))).expect("a file");
    let told = reader.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
    let told: Vec<_> = told.iter().map(|told| (&*told.key, told.value.as_deref().unwrap_or_default())).collect();
    assert!(told.contains(&("session_name", "s")) && told.contains(&("clock_zero_ns", "77")), "{told:?}");
    let columns: Vec<_> =
        reader.metadata().file_metadata().schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
    assert!(columns.iter().eq(SPAN_COLUMNS.iter().map(|column| column.name)));
}

#[test]
fn a_million_frames_take_few_bytes() {
    let session = session(2000);
    let spans: Vec<_> = (100..1_000_100).map(|number| frame(number, 2000)).collect();
    let started = std::time::Instant::now();
    let bytes = file(&session, &spans, usize::MAX);
    let (per_span, took) = (bytes.len() as f64 / spans.len() as f64, started.elapsed());
    println!("{per_span:.1} bytes a span, {:.0} spans a second", spans.len() as f64 / took.as_secs_f64());
    assert!(per_span < 40.0, "{per_span}");
}

#[test]
fn what_is_there_now_and_then_is_read_back() {
    let session = session(10);
    let causes: [Arc<str>; 4] = ["network".into(), "".into(), "network".into(), "ü".into()];
    let mut spans: Vec<_> = (100..3100).map(|number| frame(number, 10)).collect();
    for (row, span) in spans.iter_mut().enumerate() {
        // Some stretches have it in every row, some in none, and some in a few.
        let has = [false, row % 3 == 0, true, row % 11 < 5][row / 100 % 4];
        let wild = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let more = || More {
            threads: (0..row % 4).map(|thread| StreamId(thread as u32)).collect(),
            argument: Some(wild),
            latency: Some(wild >> 1),
            cause: Some(Arc::clone(&causes[row / 2 % 4])),
            ..More::default()
        };
        span.more = has.then(|| Box::new(more()));
    }
    let reader = SerializedFileReader::new(bytes::Bytes::from(file(&session, &spans, 1000))).expect("a file");
    let rows = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row"));
    let mut count = 0;
    for (row, span) in rows.zip(&spans) {
        let field = |name: &str| {
            let field = row.get_column_iter().find(|(known, _)| *known == name).map(|(_, field)| field.clone());
            field.filter(|field| *field != Field::Null)
        };
        let more = span.more.as_deref();
        assert_eq!(field("cause"), more.and_then(|more| Some(Field::Str(more.cause.as_deref()?.to_owned()))));
        assert_eq!(field("argument"), more.and_then(|more| Some(Field::ULong(more.argument?))));
        assert_eq!(field("latency_ns"), more.and_then(|more| Some(Field::Long(more.latency?.cast_signed()))));
        let threads = more.map(|more| more.threads.iter().map(|thread| thread.0.to_string()).collect::<Vec<_>>());
        let threads = threads.filter(|threads| !threads.is_empty()).map(|threads| format!("[{}]", threads.join(", ")));
        assert_eq!(field("threads").map(|field| field.to_string()), threads);
        count += 1;
    }
    assert_eq!(count, spans.len());
}

#[test]
fn arguments_have_columns_where_they_are_asked_for() {
    let session = session(10);
    let mut table = SpanTable::with_arguments().expect("it starts");
    let spans: Vec<_> = (100..103).map(|number| frame(number, 10)).collect();
    for (span, arguments) in spans.iter().zip([&[7, 8][..], &[], &[u64::MAX; 9]]) {
        table.push_with(&session.catalog(), span, arguments).expect("it is taken");
    }
    let bytes = bytes::Bytes::from(table.finish(&session).expect("it ends"));
    let reader = SerializedFileReader::new(bytes).expect("a file");
    let rows = reader.get_row_iter(None).expect("rows").map(|row| {
        let row = row.expect("a row");
        let field =
            |name: &str| row.get_column_iter().find(|(known, _)| *known == name).expect("a column").1.to_string();
        ["arg0", "arg1", "arg7"].map(field)
    });
    let most = u64::MAX.to_string();
    let expected = [["7", "8", "null"], ["null"; 3], [most.as_str(); 3]].map(|row| row.map(str::to_owned));
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}
