use std::sync::Arc;

use codec::{
    ModuleId, SessionNs,
    atf::{FunctionEntry, Manifest, ModuleEntry, QueueEntry, ThreadEntry},
};

use super::*;

fn function(module: u32, index: u32, offset: u64, name: &str) -> FunctionEntry {
    let id = FunctionId::new(ModuleId(module), index).0;
    FunctionEntry { id, offset, name: name.into(), ..FunctionEntry::default() }
}

fn manifest() -> Manifest {
    let module = |id, path: &str, loaded, unloaded| ModuleEntry {
        id,
        path: path.into(),
        base: 0x1000,
        size: 0x100,
        build_id: "00ff".into(),
        loaded_ns: Some(loaded),
        unloaded_ns: unloaded,
        ..ModuleEntry::default()
    };
    Manifest {
        clock: Some("boottime".into()),
        clock_zero_ns: Some(1000),
        epoch_unix_ns: Some(77),
        modules: vec![module(1, "/lib/old.so", 1000, Some(1050)), module(2, "/lib/new.so", 1060, None)],
        functions: vec![
            function(0, 0, 0, "a description"),
            function(1, 0, 0x10, "_ZN3foo3barEi"),
            function(1, 1, 0x20, ""),
            function(2, 7, 0x30, "main"),
        ],
        queues: vec![QueueEntry { id: 5, label: "com.example.q".into(), ..QueueEntry::default() }],
        threads: vec![ThreadEntry { id: 3, start_ns: Some(1004), ..ThreadEntry::default() }],
        ..Manifest::default()
    }
}

#[test]
fn everything_has_a_name() {
    let catalog = Catalog::from_manifest(&manifest());
    let of = |module, index| What::Function(FunctionId::new(ModuleId(module), index));
    let cases = [
        (of(1, 0), Some("_ZN3foo3barEi"), "foo::bar(int)", Some("/lib/old.so")),
        (of(1, 1), None, "old.so+0x20", Some("/lib/old.so")),
        (of(2, 7), Some("main"), "main", Some("/lib/new.so")),
        (of(0, 0), Some("a description"), "a description", None),
        (of(9, 9), None, "9:9", None),
        (What::Address(0x1035), Some("main"), "main", Some("/lib/new.so")),
        (What::Address(0x1005), None, "new.so+0x5", Some("/lib/new.so")),
        (What::Address(7), None, "0x7", None),
        (What::Named("named".into()), None, "named", None),
        (What::Named("".into()), None, "?", None),
        (What::Unknown, None, "?", None),
    ];
    let mut cache = NameCache::new();
    for (what, raw, pretty, module) in cases {
        let named = name(&catalog, &what);
        assert_eq!((named.raw, &*named.pretty, named.module), (raw, pretty, module), "{what:?}");
        for _ in 0..2 {
            let known = cache.name(&catalog, &what, SessionNs(u64::MAX));
            assert_eq!((known.raw.as_deref(), &*known.pretty, known.module.as_deref()), (raw, pretty, module));
        }
    }
}

#[test]
fn a_manifest_tells_what_the_options_told() {
    let catalog = Catalog::from_manifest(&manifest());
    assert_eq!(catalog.queue_label(5), Some("com.example.q"));
    assert_eq!(catalog.clock().map(|clock| clock.zero_ns), Some(1000));
    assert_eq!(catalog.thread(codec::StreamId(3)).map(|thread| thread.start), Some(SessionNs(4)));
    let again = catalog.manifest();
    let before = manifest();
    assert_eq!((&again.functions, &again.queues), (&before.functions, &before.queues));
    assert_eq!((again.clock, again.clock_zero_ns, again.epoch_unix_ns), (before.clock, Some(1000), Some(77)));
    let modules = |manifest: &Manifest| -> Vec<_> {
        let entry =
            |entry: &ModuleEntry| (entry.path.clone(), entry.build_id.clone(), entry.loaded_ns, entry.unloaded_ns);
        manifest.modules.iter().map(entry).collect()
    };
    assert_eq!(modules(&Catalog::from_manifest(&manifest()).manifest()), modules(&manifest()));
}

#[test]
fn an_address_is_in_the_module_that_was_there_then() {
    let catalog = Catalog::from_manifest(&manifest());
    let old = FunctionId::new(ModuleId(1), 1);
    let new = FunctionId::new(ModuleId(2), 7);
    assert_eq!(catalog.function_at(0x1040, SessionNs(20)), Some(old));
    assert_eq!(catalog.function_at(0x1040, SessionNs(70)), Some(new));
    assert_eq!(catalog.function_at(0x1010, SessionNs(20)), Some(FunctionId::new(ModuleId(1), 0)));
    assert_eq!(catalog.function_at(0x100f, SessionNs(20)), None);
    assert_eq!(catalog.function_at(0x1100, SessionNs(20)), None);
    assert_eq!(catalog.function_at(0, SessionNs(20)), None);
    let mut cache = NameCache::new();
    assert_eq!(&*cache.name(&catalog, &What::Address(0x1010), SessionNs(20)).pretty, "foo::bar(int)");
    assert_eq!(&*cache.name(&catalog, &What::Address(0x1030), SessionNs(70)).pretty, "main");
}

#[test]
fn a_name_that_comes_late_is_found_all_the_same() {
    let mut known = manifest();
    let functions = std::mem::take(&mut known.functions);
    let early = Catalog::from_manifest(&known);
    known.functions = functions;
    let late = Catalog::from_manifest(&known);
    let mut cache = NameCache::new();
    let what = [What::Function(FunctionId::new(ModuleId(2), 7)), What::Address(0x1030)];
    let names = |cache: &mut NameCache, catalog: &Catalog| -> Vec<Arc<str>> {
        what.iter().map(|what| Arc::clone(&cache.name(catalog, what, SessionNs(70)).pretty)).collect()
    };
    assert_eq!(names(&mut cache, &early), ["2:7".into(), "new.so+0x30".into()]);
    assert_eq!(names(&mut cache, &late), ["main".into(), "main".into()]);
}

#[test]
fn symbols_of_cpp_and_rust_are_read() {
    let cases = [
        ("_ZN3foo3barEi", Some("foo::bar(int)")),
        ("_ZNSt6vectorIiSaIiEE9push_backERKi", Some("std::vector<int, std::allocator<int> >::push_back(int const&)")),
        ("_Z3addIiET_S0_S0_", Some("add<int>(int, int)")),
        ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", Some("core::fmt::Write::write_fmt")),
        ("_ZN3foo3bar17h0123456789abcdefE.llvm.123", Some("foo::bar")),
        ("_RNvCs1234_7mycrate3foo", Some("mycrate::foo")),
        ("main", None),
        ("_Z", None),
        ("_R", None),
        ("", None),
    ];
    for (symbol, name) in cases {
        assert_eq!(demangle(symbol).as_deref(), name, "{symbol}");
    }
}

#[test]
fn symbols_of_swift_are_read_as_far_as_they_are_understood() {
    let cases = [
        ("$s4Main3fooyyF", Some("Main.foo()")),
        ("_$s4Main3fooyyF", Some("Main.foo()")),
        ("$s4Main3foo3barySi_tF", Some("Main.foo(bar:)")),
        ("$s4Main3addyS2i_SitF", Some("Main.add(_:)")),
        ("$s4Main5ThingC3runyyF", Some("Main.Thing.run()")),
        ("$s4Main5ThingC3runyyFZ", Some("static Main.Thing.run()")),
        ("$s4Main5ThingC5countSivg", Some("Main.Thing.count.getter")),
        ("$s4Main5ThingCACycfC", Some("Main.Thing.init")),
        ("$s4Main5ThingCfD", Some("Main.Thing.deinit")),
        ("$s4Main3fooyyFyycfU_", Some("closure #1 in Main.foo()")),
        ("$s4Main3fooyyFyyXEfU0_", Some("closure #2 in Main.foo()")),
        ("$s4Main3fooyyYaF", Some("Main.foo()")),
        ("$s4Main4loadSSyYaKF", Some("Main.load()")),
        ("$s4Main3fooyyYaFTY0_", Some("(1) suspend resume partial function for Main.foo()")),
        ("$s4Main3fooyyYaFyyYaYbcfU_TQ1_", Some("(2) await resume partial function for closure #1 in Main.foo()")),
        ("$s4main4MainVAAyyYaFZTf4d_n", Some("specialized static main.Main.main()")),
        (
            "$s4main4MainVAAyyYaFZTf4d_nTQ1_",
            Some("(2) await resume partial function for specialized static main.Main.main()"),
        ),
        ("$s4Main3fooyyFTm", Some("merged Main.foo()")),
        ("$s4Main3fooyyFTf4d", None),
        ("$s4Main3fooyyYaF.resume.0", Some("Main.foo().resume.0")),
        ("$s4Main3fooyyFTA", Some("partial apply for Main.foo()")),
        // Words that were there before: `downloadImage`, then `image` and `Downloader` of it.
        ("$s4Main13downloadImageC0C6LoaderyyF", Some("Main.downloadImage.ImageLoader()")),
        ("$s4Main5outeryyF5innerL_yyF", Some("Main.outer().inner()")),
        ("$s", None),
        ("$s4Main", Some("Main")),
        ("$s9Main", None),
        ("$s99999999999999999999999Main", None),
        ("$s4MainN", None),
        ("$s4Main3fooyyFWx", None),
    ];
    for (symbol, name) in cases {
        assert_eq!(demangle(symbol).as_deref(), name, "{symbol}");
    }
    // However a symbol is cut or changed, it is read or not.
    for (symbol, _) in cases {
        for end in 0..symbol.len() {
            let _ = demangle(&symbol[..end]);
            for byte in b"A0_yfTtGSLcX" {
                let mut changed = symbol.as_bytes().to_vec();
                changed[end] = *byte;
                let _ = demangle(&String::from_utf8_lossy(&changed));
            }
        }
    }
}

#[test]
fn hostile_symbols_end_soon() {
    // Types in types, and ones that stand for twice as much each time.
    let deep = |open: &str, times: usize| format!("_Z1f{}i", open.repeat(times));
    let doubling: String = (0..200)
        .map(|at| if at == 0 { "1AIiiE".into() } else { format!("1AIS{}_S{}_E", base36(at), base36(at)) })
        .collect();
    let rust = format!("_R{}", "NvC1a1b".repeat(500));
    let symbols = [
        deep("P", 4000),
        deep("PF", 2000),
        deep("1AI", 1300),
        format!("_Z1f{doubling}"),
        format!("_ZN{}E", "1a".repeat(2000)),
        format!("_Z1fDp{}", "T_".repeat(2000)),
        format!("_RINvC1a1b{}", "TB4_B4_E".repeat(300)),
        format!("_RNvXC1a{}", "INtC1a1b".repeat(500)),
        rust,
        format!("$s{}", "4Main3fooyyF".repeat(300)),
        format!("$s4Main{}", "yyXEfU_".repeat(500)),
        "_Z".repeat(2048),
    ];
    for symbol in symbols {
        let small = std::thread::Builder::new().stack_size(1 << 20);
        let running = small.spawn(move || demangle(&symbol).map_or(0, |name| name.len())).expect("a thread starts");
        assert!(running.join().expect("no stack overflows") <= 16 << 10);
    }
    assert_eq!(demangle(&format!("_ZN3foo{}E", "3bar".repeat(2000))), None);
}

fn base36(number: usize) -> String {
    let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut number = number;
    let mut text = Vec::new();
    loop {
        text.push(digits[number % 36]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    text.reverse();
    String::from_utf8(text).expect("digits")
}
