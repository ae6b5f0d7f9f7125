//! The ids of traces and spans. They follow from what is told of a session, so they are the same whoever exports it, and
//! however often.

use codec::{StreamId, profile::Fingerprint, span::SpanId};

use crate::{Catalog, Session};

/// What all spans of a session have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The trace that the session is part of.
    pub(super) trace: [u8; 16],
    /// What the program was started in, where its environment says so.
    pub(super) remote: Option<TraceParent>,
    /// The state of that trace, to be handed on.
    pub(super) state: Box<str>,
    /// What tells the spans of this session from those of others.
    key: u64,
}

impl Identity {
    pub(super) fn of(session: &Session, catalog: &Catalog) -> Self {
        let id = session.id.or(catalog.session().map(|process| process.id)).map(|id| id.0);
        // A sender without an id is known by the name that its session was given here.
        let id = id.unwrap_or_else(|| {
            let first = Fingerprint::of(session.name.as_bytes()).0;
            (u128::from(first) << 64 | u128::from(mix(first))).to_be_bytes()
        });
        let context = catalog.context();
        let remote = context.and_then(|context| TraceParent::parse(&context.parent));
        let root = context.map_or(id, |context| context.root.0);
        let state = context.filter(|_| remote.is_some()).map(|context| context.state.clone()).unwrap_or_default();
        let trace = remote.map_or(root, |remote| remote.trace);
        Self { trace, remote, state, key: Fingerprint::of(&id).0 }
    }

    /// The id of a span of the trace.
    pub(super) fn span(&self, id: SpanId) -> [u8; 8] {
        self.number(id.short())
    }

    /// The id of the span of the process.
    pub(super) fn process(&self) -> [u8; 8] {
        self.number(OWN)
    }

    /// The id of the span of a thread that nobody was seen to create.
    pub(super) fn thread(&self, stream: StreamId) -> [u8; 8] {
        self.number(OWN | (1 + u64::from(stream.0)))
    }

    fn number(&self, number: u64) -> [u8; 8] {
        // Different numbers of one session have different ids; those of different sessions almost surely.
        mix(self.key ^ number).max(1).to_be_bytes()
    }
}

/// Numbers of spans that the trace does not have begin here: those of others have 62 bits.
const OWN: u64 = 1 << 62;

/// Numbers that differ in a bit become numbers that differ in about half of them; different ones stay different.
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// A span of another program, as `traceparent` of W3C Trace Context names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TraceParent {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) flags: u8,
}

impl TraceParent {
    /// Reads `00-TRACE-SPAN-FLAGS`. Of a later version, what comes behind that is passed over, as the standard wants it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let version = hexadecimal::<1>(parts.next()?)?;
        let (trace, span) = (hexadecimal::<16>(parts.next()?)?, hexadecimal::<8>(parts.next()?)?);
        let [flags] = hexadecimal::<1>(parts.next()?)?;
        let is_valid = version != [0xff] && (version != [0] || parts.next().is_none());
        (is_valid && trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span, flags })
    }
}

/// Bytes in lower-case hexadecimal digits.
fn hexadecimal<const BYTES: usize>(digits: &str) -> Option<[u8; BYTES]> {
    if digits.len() != 2 * BYTES || !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, digits) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use codec::{Position, SessionId, profile::TraceContext};

    use super::*;
    use crate::CatalogLimits;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn session(name: &str, id: Option<SessionId>, context: Option<TraceContext<'_>>) -> Session {
        let mut catalog = Catalog::new(CatalogLimits::default(), Arc::default());
        context.into_iter().for_each(|context| _ = catalog.apply(&context.into()));
        Session::new(name.into(), id, String::new(), 0, catalog)
    }

    fn identity(session: &Session) -> Identity {
        Identity::of(session, &session.catalog())
    }

    #[test]
    fn the_trace_is_the_programs_own_or_that_of_the_first_session() {
        let (id, root) = (SessionId([7; 16]), SessionId([8; 16]));
        assert_eq!(identity(&session("a", Some(id), None)).trace, id.0);
        let context = |parent, state| Some(TraceContext { root, parent, state });
        let of_family = identity(&session("a", Some(id), context("", "a=1")));
        assert_eq!((of_family.trace, of_family.remote, &*of_family.state), (root.0, None, ""));
        let of_program = identity(&session("a", Some(id), context(PARENT, "a=1")));
        assert_eq!((of_program.trace[..2].to_vec(), &*of_program.state), (vec![0x4b, 0xf9], "a=1"));
        assert_eq!(of_program.process(), of_family.process(), "spans have the same ids in every trace");
        assert_eq!(identity(&session("a", None, None)), identity(&session("a", None, None)));
        assert_ne!(identity(&session("a", None, None)), identity(&session("b", None, None)));
    }

    #[test]
    fn spans_of_all_sessions_have_different_ids() {
        let mut ids = HashSet::new();
        for session_id in [[1; 16], [2; 16]] {
            let identity = identity(&session("a", Some(SessionId(session_id)), None));
            assert!(ids.insert(identity.process()));
            for stream in (0..100).map(StreamId) {
                assert!(ids.insert(identity.thread(stream)));
                for position in (0..100).map(Position) {
                    let id = SpanId::new(stream, position);
                    assert!(ids.insert(identity.span(id)) && ids.insert(identity.span(id.second())));
                }
            }
        }
    }

    #[test]
    fn a_trace_parent_is_read_as_the_standard_has_it() {
        let read = TraceParent::parse(PARENT).expect("it is valid");
        assert_eq!((read.span, read.flags), ([0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7], 1));
        let later = PARENT.replacen("00", "cc", 1) + "-what-the-future-will-be-like";
        assert_eq!(TraceParent::parse(&later), Some(read));
        let wrong = [
            "",
            "00",
            &PARENT.to_uppercase(),
            &PARENT.replacen("00", "ff", 1),
            &(PARENT.to_owned() + "-more"),
            &PARENT[..54],
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ];
        for text in wrong {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
    }
}
