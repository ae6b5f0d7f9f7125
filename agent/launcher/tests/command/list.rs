//! What would be hooked.

use serde_json::Value;

use crate::{
    program::{compile, compile_static},
    support::{Folder, agent, run},
};

fn listed(args: &[&str]) -> Vec<Value> {
    let ended = run(agent(&["list", "--json"]).args(args));
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn number(module: &Value, key: &str) -> u64 {
    module[key].as_u64().expect("a number")
}

#[test]
fn every_module_is_listed_and_adds_up() {
    let modules = listed(&["true"]);
    let named = |part: &str| modules.iter().find(|module| module["module"].as_str().expect("a path").contains(part));
    assert!(named("/true").is_some() && named("ld-").is_some());
    let libc = named("libc.so").expect("true is linked with it");
    assert!(number(libc, "hooked") > 1000);
    for module in &modules {
        let left: u64 = module["left"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
        let taken = number(module, "hooked") + number(module, "probed") + number(module, "unwinders");
        assert_eq!(taken + left, number(module, "functions"), "{module}");
    }
}

#[test]
fn functions_are_listed_with_what_becomes_of_them() {
    let folder = Folder::new();
    let source = "__attribute__((noinline)) int f(int x) { return x * x + 3; }\n\
                  __attribute__((noinline)) int g(int x) { return f(x) - 7; }\n\
                  int main(int argc, char **argv) { return g(argc); }\n";
    let program = compile(&folder, "sample", source, &["-fno-inline"]);
    let modules = listed(&["--functions", "--exclude", "g", &program]);
    let functions = modules[0]["list"].as_array().expect("functions");
    let named = |name: &str| functions.iter().find(|function| function["name"] == name).expect(name);
    assert_eq!(named("main")["hook"], "frame");
    assert_eq!(named("g")["left"], "excluded");

    let text = run(&mut agent(&["list", "--functions", &program]));
    assert!(text.stdout.contains("  frame                     main\n"), "{}", text.stdout);
    let all = text.stdout.lines().find(|line| line.starts_with("all ")).expect("a line for all");
    assert_eq!(all.split_whitespace().count(), 6, "{all}");
}

#[test]
fn modules_can_be_excluded() {
    let modules = listed(&["--exclude", "libc.so*", "true"]);
    let libc = modules.iter().find(|module| module["module"].as_str().expect("a path").contains("libc.so"));
    let libc = libc.expect("it is listed");
    // A few are needed by others: those that make and end threads and processes, for most of them.
    let hooked = number(libc, "hooked") + number(libc, "probed");
    assert!((1..50).contains(&hooked), "{hooked} are hooked");
    assert!(libc["left"]["excluded"].as_u64() > Some(1000));
}

#[test]
fn what_cannot_be_listed_is_told() {
    let folder = Folder::new();
    let ended = run(&mut agent(&["list", &compile_static(&folder)]));
    assert!(ended.code() == Some(0) && ended.stdout.contains("--engine native traces it"), "{ended:?}");
    for program in ["no-such-program-anywhere", "/etc/passwd", "/etc"] {
        let ended = run(&mut agent(&["list", program]));
        assert_eq!(ended.code(), Some(1), "{ended:?}");
        assert!(ended.error().contains(program), "{ended:?}");
    }
}
