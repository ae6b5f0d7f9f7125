use std::sync::atomic::Ordering;

use codec::{
    Arch, BirthKind, ClockKind, Os, SessionId, SessionNs,
    profile::{FunctionName, Functions, Limits, Module, Queue, Session as SessionOption, Thread, TraceContext},
};

use super::*;

fn catalog(limits: CatalogLimits) -> (Catalog, Arc<AtomicU64>) {
    let bytes = Arc::new(AtomicU64::new(0));
    (Catalog::new(limits, Arc::clone(&bytes)), bytes)
}

fn functions(module: u32, first_index: u32, names: &[&str]) -> Vec<u8> {
    use codec::heph::Encode;
    let names: Vec<_> = names.iter().map(|name| FunctionName { offset: 8, name }).collect();
    let part = Functions { module: ModuleId(module), first_index, functions: names.as_slice().into() };
    let mut packet = Vec::new();
    ProfileOption::from(part).encode(&mut packet).expect("it can be written");
    packet
}

/// Applies an option as it comes from the wire.
fn apply(catalog: &mut Catalog, packet: &[u8]) -> Refused {
    match codec::profile::Message::decode(packet) {
        Ok(codec::profile::Message::Option(known)) => catalog.apply(&known.option),
        other => panic!("not an option: {other:?}"),
    }
}

fn thread(stream: u32, name: &str) -> Thread<'_> {
    Thread { stream: StreamId(stream), os_id: 7, start: SessionNs(5), end: None, creator: None, name }
}

fn module(id: u32) -> Module<'static> {
    Module {
        id: ModuleId(id),
        base: 1,
        size: 2,
        loaded: SessionNs(3),
        unloaded: Some(SessionNs(u64::MAX)),
        function_count: 4,
        table_hash: 5,
        build_id: &[0xab, 0x01],
        path: "/lib/a",
    }
}

#[test]
fn a_later_option_replaces_an_earlier_one_and_frees_its_bytes() {
    let (mut catalog, bytes) = catalog(CatalogLimits::default());
    assert!(catalog.apply(&thread(1, "a long name").into()) == Refused::default());
    let before = bytes.load(Ordering::Relaxed);
    assert!(catalog.apply(&thread(1, "short").into()) == Refused::default());
    assert_eq!(catalog.thread(StreamId(1)).map(|thread| &*thread.name), Some("short"));
    assert_eq!(before - bytes.load(Ordering::Relaxed), 6);
    assert!(apply(&mut catalog, &functions(1, 3, &["f", "g"])) == Refused::default());
    assert!(apply(&mut catalog, &functions(1, 4, &["h"])) == Refused::default());
    assert_eq!(catalog.function_name(FunctionId::new(ModuleId(1), 4)), Some("h"));
    assert_eq!((catalog.function_name(FunctionId::new(ModuleId(1), 5)), catalog.function_count()), (None, 2));
    drop(catalog);
    assert_eq!(bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_hostile_index_takes_one_block_and_does_not_run_past_the_last() {
    let (mut catalog, bytes) = catalog(CatalogLimits::default());
    let refused = apply(&mut catalog, &functions(u32::MAX, u32::MAX, &["last", "beyond"]));
    assert_eq!(refused, Refused { functions: 1, ..Refused::default() });
    assert_eq!(catalog.function_name(FunctionId(u64::MAX)), Some("last"));
    assert!(bytes.load(Ordering::Relaxed) < 4096);
    assert_eq!(catalog.manifest().functions.len(), 1);
}

#[test]
fn module_0_is_not_for_others() {
    let (mut catalog, _) = catalog(CatalogLimits::default());
    assert_eq!(apply(&mut catalog, &functions(0, 0, &["mine"])).functions, 1);
    assert_eq!(catalog.apply(&module(0).into()).modules, 1);
    assert_eq!(catalog.manifest(), Manifest::default());
}

#[test]
fn what_is_too_much_is_refused_and_counted() {
    let limits = CatalogLimits { functions: 2, threads: 1, others: 1, ..CatalogLimits::default() };
    let (mut few, _) = catalog(limits);
    assert_eq!(apply(&mut few, &functions(1, 0, &["a", "b", "c"])).functions, 1);
    assert!(apply(&mut few, &functions(1, 0, &["d", "e"])) == Refused::default(), "known ones can be replaced");
    assert_eq!((few.apply(&thread(1, "").into()).threads, few.apply(&thread(2, "").into()).threads), (0, 1));
    assert_eq!(few.apply(&Queue { id: 1, label: "" }.into()).others, 0);
    assert_eq!(few.apply(&Queue { id: 2, label: "" }.into()).others, 1);
    let limit = Limit { module: ModuleId(0), count: 1, reason: "a", detail: "" };
    let two = [limit, Limit { reason: "b", ..limit }];
    assert_eq!(few.apply(&Limits { limits: (&two).into() }.into()).others, 1);

    let shared = Arc::new(AtomicU64::new(0));
    let limits = CatalogLimits { bytes: 300, ..CatalogLimits::default() };
    let (mut one, mut two) = (Catalog::new(limits, Arc::clone(&shared)), Catalog::new(limits, Arc::clone(&shared)));
    assert_eq!(one.apply(&thread(1, &"x".repeat(150)).into()).threads, 0);
    assert_eq!(two.apply(&thread(1, &"x".repeat(150)).into()).threads, 1, "the other has taken the room");
    drop(one);
    assert_eq!(two.apply(&thread(1, &"x".repeat(150)).into()).threads, 0);
}

#[test]
fn a_long_name_is_cut_between_characters() {
    let (mut catalog, _) = catalog(CatalogLimits { name_bytes: 8, ..CatalogLimits::default() });
    let refused = catalog.apply(&thread(1, "äöüäöü").into());
    assert_eq!(refused, Refused { names_cut: 1, ..Refused::default() });
    assert_eq!(catalog.thread(StreamId(1)).map(|thread| &*thread.name), Some("äö…"));
}

#[test]
fn the_manifest_tells_times_of_the_traces_clock() {
    let (mut catalog, _) = catalog(CatalogLimits::default());
    let session = SessionOption {
        id: SessionId([1; 16]),
        profile: 1,
        arch: Arch::Arm64,
        os: Os::Linux,
        pid: 3,
        agent_version: "1",
        host: "h",
        executable: "/bin/x",
        argument_count: 2,
        arguments: (&["x", "y"]).into(),
    };
    catalog.apply(&session.into());
    catalog.apply(&Clock { clock: ClockKind::Boottime, zero_ns: 1000 }.into());
    catalog.apply(&Epoch { unix_ns: 9 }.into());
    catalog.apply(&module(1).into());
    let manifest = catalog.manifest();
    let process = manifest.process.expect("it was announced");
    assert_eq!((process.arch.as_str(), process.arguments.len()), ("arm64", 2));
    assert_eq!((manifest.clock.as_deref(), manifest.clock_zero_ns), (Some("boottime"), Some(1000)));
    let module = &manifest.modules[0];
    assert_eq!((module.loaded_ns, module.unloaded_ns), (Some(1003), Some(u64::MAX)));
    assert_eq!((module.build_id.as_str(), module.function_table_hash.as_str()), ("ab01", "0000000000000005"));
    catalog.with_session_option(|again| assert_eq!(again, session)).expect("it was announced");
}

#[test]
fn a_trace_context_goes_to_a_manifest_and_back() {
    let (mut catalog, _) = catalog(CatalogLimits::default());
    for (parent, state) in [("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1"), ("", "")] {
        let context = TraceContext { root: SessionId([0x0e; 16]), parent, state };
        assert!(catalog.apply(&context.into()) == Refused::default());
        let manifest = catalog.manifest();
        assert_eq!(manifest.context.as_ref().expect("it was told").traceparent.is_some(), !parent.is_empty());
        let again = Catalog::from_manifest(&manifest);
        assert_eq!(again.context().map(CatalogContext::option), Some(context));
    }
}

#[test]
fn a_birth_goes_to_a_manifest_and_back() {
    let (mut catalog, _) = catalog(CatalogLimits::default());
    catalog.apply(&Clock { clock: ClockKind::Boottime, zero_ns: 1_000 }.into());
    let parent = SessionId([0x0f; 16]);
    for (how, tid, at) in [(BirthKind::Forked, 7, 5), (BirthKind::Replaced, 0, 0), (BirthKind::Spawned, u32::MAX, 9)] {
        let birth = Birth { parent, how, tid, at: SessionNs(at) };
        assert!(catalog.apply(&birth.into()) == Refused::default());
        let manifest = catalog.manifest();
        let entry = manifest.birth.as_ref().expect("it was told");
        assert_eq!((&*entry.how, entry.at_ns), (how.name(), 1_000 + at));
        assert_eq!(entry.tid.is_some(), tid != 0, "a thread that is not known has no number");
        assert_eq!(Catalog::from_manifest(&manifest).birth(), Some(birth));
    }
    let mut manifest = catalog.manifest();
    let entry = manifest.birth.as_mut().expect("it was told");
    entry.parent = "not a session".into();
    assert_eq!(Catalog::from_manifest(&manifest).birth(), None, "what names no session says nothing");
}
