//! What only the sink of lines does.

use std::io::{self, Write};

use serde_json::json;
use sinks::{LineSink, Sink, SinkError};

use crate::{
    scene::{batch, introduction, packet, session, stamp},
    spans::{lines, span},
    subject::Shared,
};

#[test]
fn a_line_says_all_that_is_known() {
    let shared = Shared::default();
    let mut sink = LineSink::events(shared.clone());
    let session = session("a");
    let _ = introduction(&session, &[]);
    let packets = (0..9).map(|variety| packet(stamp(4, 0, 8), variety)).collect();
    sink.events(&batch(&session, &[(4, 20, packets)])).expect("it takes events");
    sink.flush().expect("it flushes");
    let lines = lines(&shared.bytes());
    let call = json!({
        "type": "event", "session": "a", "stream": 4, "position": 20, "start_ns": 8, "end_ns": 8, "kind": "call",
        "function": "work", "module": "/bin/true", "fn": "1:1", "depth": 0,
    });
    assert_eq!(lines[0], call);
    assert_eq!(lines[3]["registers"], json!(vec![u64::MAX; 11]));
    assert_eq!(lines[3]["stack"].as_str().expect("hex").get(..16), Some("0807060504030201"));
    assert_eq!(
        (&lines[4]["kind"], &lines[4]["ip"], &lines[4]["depth"]),
        (&json!("exception"), &json!(77), &json!(u32::MAX))
    );
    let runtime = json!({
        "type": "event", "session": "a", "stream": 4, "position": 25, "start_ns": 8, "end_ns": 8, "kind": "runtime",
        "function": "swift_task_create", "phase": "return", "attributes": {"task": 9},
    });
    assert_eq!(lines[5], runtime);
    let attributes = json!({
        "": [1, u64::MAX], "f": ["NaN", "inf", 0.5], "\"quoted\"\n": ["\u{0}", "\u{2028}"], "i": i64::MIN,
        "u": u64::MAX,
    });
    assert_eq!((&lines[6]["kind"], &lines[6]["attributes"]), (&json!("event"), &attributes));
    assert_eq!((&lines[8]["substream"], &lines[8]["position"]), (&json!(6), &json!(28)));
}

/// A pipe whose reader has gone.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn nobody_who_reads_is_no_failure() {
    let session = session("a");
    let events = batch(&session, &[(0, 0, vec![packet(stamp(0, 0, 1), 0)])]);
    let refuses = |mut sink: LineSink<Gone>, take: &dyn Fn(&mut LineSink<Gone>) -> Result<(), SinkError>| {
        sink.start(&session).expect("it waits in memory");
        assert!(matches!(sink.flush(), Err(SinkError::Closed)));
        assert!(matches!(take(&mut sink), Err(SinkError::Closed)));
        assert!(matches!(sink.close(), Err(SinkError::Closed)));
    };
    refuses(LineSink::events(Gone), &|sink| sink.events(&events));
    refuses(LineSink::spans(Gone), &|sink| sink.spans(&session, &[span(0)]));
}

#[test]
fn who_is_traced_is_said_again_only_when_more_is_known() {
    let shared = Shared::default();
    let mut sink = LineSink::events(shared.clone());
    let session = session("a");
    sink.start(&session).expect("it starts");
    let packets = introduction(&session, &[]);
    sink.options(&session, &packets).expect("it takes options");
    sink.options(&session, &packets).expect("it takes options");
    let gap = sinks::Gap { stream: codec::StreamId(1), first: codec::Position(5), count: 2, cause: "network".into() };
    sink.gap(&session, &gap).expect("it takes gaps");
    sink.close().expect("it closes");
    let lines = lines(&shared.bytes());
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!((lines[0].get("pid").is_some(), lines[1].get("pid").is_some()), (false, true));
    let gap = json!({"type": "gap", "session": "a", "stream": 1, "position": 5, "count": 2, "cause": "network"});
    assert_eq!(lines[2], gap);
}
