//! Spans as the tests of the sinks need them.

use std::sync::{Arc, atomic::AtomicU64};

use codec::{
    Position, SessionNs, StreamId,
    profile::Thread,
    span::{Span, SpanId, SpanKind, What},
};

use crate::{Catalog, CatalogLimits, Ended, Session, Sink};

/// A frame that nothing called.
pub(crate) fn frame(stream: u32, position: u64, start: u64, end: u64) -> Span {
    let id = SpanId::new(StreamId(stream), Position(position));
    Span::new(id, SpanKind::Frame, SessionNs(start), Some(SessionNs(end)))
}

/// The same with a name.
pub(crate) fn named(span: Span, name: &str) -> Span {
    Span { what: What::Named(name.into()), ..span }
}

/// A session with one thread, stream 0, named `main`.
pub(crate) fn session() -> Arc<Session> {
    let mut catalog = Catalog::new(CatalogLimits::default(), Arc::new(AtomicU64::new(0)));
    let (stream, start) = (StreamId(0), SessionNs(0));
    catalog.apply(&Thread { stream, os_id: 7, start, end: None, creator: None, name: "main" }.into());
    Arc::new(Session::new("s".into(), None, String::new(), 0, catalog))
}

/// Tells a sink of a session with these spans, from its start to its end.
pub(crate) fn tell(sink: &mut dyn Sink, spans: &[Span]) {
    let session = session();
    sink.start(&session).expect("it starts");
    sink.spans(&session, spans).expect("it takes spans");
    sink.end(&session, &Ended::default()).expect("it ends");
    sink.close().expect("it closes");
}
