use super::*;

#[test]
fn an_id_is_made_of_stream_and_position_and_never_repeats() {
    let id = |stream: u32, position: u64| SpanId::new(StreamId(stream), Position(position));
    assert_eq!((id(2, 7).stream(), id(2, 7).position()), (StreamId(2), Position(7)));
    assert_eq!((id(2, 7).second().stream(), id(2, 7).second().position()), (StreamId(2), Position(7)));
    let texts = [id(2, 7).to_string(), id(2, 7).second().to_string(), id(u32::MAX, u64::MAX).second().to_string()];
    assert_eq!(texts, ["2:7", "2:7b", "4294967295:18446744073709551615b"]);
    assert!(texts.iter().all(|text| text.len() <= SpanId::MOST_TEXT));
    // Far beyond what 64 bits in all could tell apart.
    let mut ids = Vec::new();
    for stream in [0, 1, 2, 3, 1 << 24, u32::MAX - 1, u32::MAX] {
        for position in [0, 1, 1 << 35, 1 << 36, (1 << 36) + 1, 1 << 37, 1 << 63, u64::MAX] {
            ids.extend([id(stream, position), id(stream, position).second()]);
        }
    }
    let count = |set: std::collections::BTreeSet<_>| set.len();
    assert_eq!(count(ids.iter().map(|id| id.to_bytes().to_vec()).collect()), ids.len());
    assert_eq!(count(ids.iter().map(|id| id.to_string().into_bytes()).collect()), ids.len());
    assert_eq!(count(ids.iter().map(|id| id.short().to_le_bytes().to_vec()).collect()), ids.len());
    assert!(ids.iter().all(|id| id.short() < 1 << 62 && *id > SpanId::FIRST));
    ids.sort();
    assert!(ids.is_sorted_by_key(|id| id.to_bytes()));
}

#[test]
fn names_are_read_back() {
    assert!(Reason::ALL.iter().all(|reason| Reason::from_name(reason.name()) == Some(*reason)));
    assert_eq!(SpanKind::from_name("fram"), None);
    let flags = SpanFlags::SYNC.with(SpanFlags::BARRIER, true).with(SpanFlags::AFTER, false);
    assert_eq!(flags.to_string(), "sync,barrier");
}

#[test]
fn a_frame_is_small() {
    assert!(size_of::<Span>() <= 128, "{}", size_of::<Span>());
}
