//! Libraries that come and go while the program runs.

use std::collections::BTreeMap;

use codec::FunctionId;
use tests::{Run, Transport, counts};

#[test]
fn every_load_of_a_library_is_a_module_of_its_own() {
    let traced = Run::target("dlopen_loop").over(Transport::Tcp).trace();
    traced.sound().exact_counts();
    let manifest = &traced.trace.manifest;
    let loads: Vec<_> = manifest.modules.iter().filter(|module| module.path.ends_with("/libplugin.so")).collect();
    assert_eq!(loads.len(), 20, "one for each time, and none for the times when it was loaded already");
    for load in &loads {
        assert!(load.unloaded_ns.expect("it was unloaded") >= load.loaded_ns.expect("it was loaded"));
        assert!(load.function_count > 0 && load.size > 0);
    }
    let counts = counts::of_trace(&traced.trace);
    let calls = |name: &str| -> BTreeMap<u32, u64> {
        let of_name = manifest.functions.iter().filter(|function| function.name == name).map(|f| FunctionId(f.id));
        of_name.filter_map(|id| Some((id.module().0, counts.get(&id)?.calls))).collect()
    };
    // Three calls each time, and one more when it was loaded twice; two calls of the leaf in each.
    for (name, each) in [("plugin_entry", 1), ("plugin_leaf", 2)] {
        let calls = calls(name);
        let per_load: Vec<_> = loads.iter().map(|load| calls.get(&load.id).copied().unwrap_or(0)).collect();
        let expected: Vec<_> = (0..20).map(|round| each * if round % 4 == 3 { 4 } else { 3 }).collect();
        assert_eq!(per_load, expected, "{name}");
    }
}

#[test]
fn a_library_of_the_system_is_traced_from_its_first_call() {
    let traced = Run::target("dlopen_loop").arguments(&["1"]).trace();
    let math = traced.trace.manifest.modules.iter().find(|module| module.path.contains("/libm.so"));
    let math = math.expect("the library of mathematics was loaded late").id;
    let counts = counts::of_trace(&traced.trace);
    let calls: u64 = counts.iter().filter(|(id, _)| id.module().0 == math).map(|(_, count)| count.calls).sum();
    assert!(calls > 0, "the cosine is there");
}

#[test]
fn modules_are_described() {
    let traced = Run::target("plain").trace();
    let manifest = &traced.trace.manifest;
    let program = manifest.modules.iter().find(|module| traced.program.ends_with(&module.path));
    let program = program.expect("the program is a module");
    assert!(!program.build_id.is_empty() && program.function_table_hash.len() == 16 && program.base > 0);
    let functions: Vec<_> =
        manifest.functions.iter().filter(|function| FunctionId(function.id).module().0 == program.id).collect();
    assert_eq!(functions.len(), program.function_count as usize, "no name was lost");
    for name in ["leaf", "middle", "outer", "nothing", "main"] {
        let found: Vec<_> = functions.iter().filter(|function| function.name == name).collect();
        assert_eq!(found.len(), 1, "{name}");
        assert!(found[0].offset < program.size);
    }
    let process = manifest.process.as_ref().expect("the process is described");
    assert_eq!(process.executable, traced.program.to_string_lossy());
    assert_eq!((process.arch.as_str(), process.os.as_str()), ("x86_64", "linux"));
    assert_eq!(manifest.clock.as_deref(), Some("boottime"));
}
