//! Programs that are linked to musl, whose C library has hardly any unwind entries.

use std::{collections::BTreeMap, fs, process::Command, time::Duration};

use codec::FunctionId;
use tests::{Folder, Process, Trace, agent_command, agent_command::PATIENCE, counts, process::Stdout, python::skip};

const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#ifdef LIBRARY
#include <dlfcn.h>
#endif
__attribute__((noinline, noclone)) int inner(int n) { __asm__ volatile("nop; nop; nop; nop; nop" : "+r"(n)); return n + 1; }
__attribute__((noinline, noclone)) int outer(int n) { int sum = 0; while (n-- > 0) sum = inner(sum) + 1; return sum / 2; }
static void *run(void *n) { return (void *)(long)outer((int)(long)n); }
int main(void) {
    pthread_t threads[4];
    long sum = 0;
    for (long at = 0; at < 4; at++) pthread_create(&threads[at], 0, run, (void *)(100 + at));
    for (int at = 0; at < 4; at++) { void *part; pthread_join(threads[at], &part); sum += (long)part; }
#ifdef LIBRARY
    int (*later)(int) = (int (*)(int))dlsym(dlopen(LIBRARY, RTLD_NOW), "later");
    printf("%d\n", later(20));
    fflush(stdout);
    sleep(2);
    printf("%d\n", later(21));
#endif
    printf("%ld\n", sum);
    return 5;
}
"#;

const LIBRARY: &str =
    "__attribute__((noinline)) int later(int n) { __asm__ volatile(\"\" : \"+r\"(n)); return 2 * n + 1; }\n";

/// Calls of the functions of a trace, by their names.
fn calls(trace: &Trace) -> BTreeMap<String, u64> {
    let counts = counts::of_trace(trace);
    let functions = trace.manifest.functions.iter();
    functions.filter_map(|entry| Some((entry.name.clone(), counts.get(&FunctionId(entry.id))?.calls))).collect()
}

#[test]
fn the_functions_of_a_program_with_musl_are_exact_and_those_of_musl_are_told() {
    let has_musl = Command::new("musl-gcc").arg("--version").output().is_ok_and(|said| said.status.success());
    if !has_musl {
        return skip("musl-gcc (apt-get install musl-tools)");
    }
    let folder = Folder::new("musl");
    let library = folder.join("liblater.so");
    let compile = |source: &str, output: &std::path::Path, options: &[&str]| {
        let file = output.with_extension("c");
        fs::write(&file, source).expect("a file");
        let mut command = Command::new("musl-gcc");
        command.args(["-O1", "-fasynchronous-unwind-tables", "-o"]).arg(output).arg(&file).args(options);
        assert!(command.status().expect("a compiler").success());
    };
    compile(LIBRARY, &library, &["-shared", "-fPIC"]);
    let given = format!("-DLIBRARY=\"{}\"", library.display());
    for (name, options, is_dynamic) in [("dynamic", [given.as_str()], true), ("static", ["-static"], false)] {
        let program = folder.join(name);
        compile(PROGRAM, &program, &options);
        let plain = Command::new(&program).output().expect("it runs");
        let dir = folder.join(&format!("{name}-traces"));
        tests::process::build("collector");
        let mut command = agent_command::command(&["record", "--engine", "native", "-o"]);
        command.arg(&dir).arg("--").arg(&program);
        let exit = Process::start(command, Stdout::Collect).exit(PATIENCE.max(Duration::from_secs(30)));
        assert_eq!((exit.code, exit.stdout), (Some(5), plain.stdout), "{}", exit.stderr);
        assert!(!exit.stderr.contains("nothing lost"), "{}", exit.stderr);
        let hardly = if is_dynamic { "/libc.so could be hooked" } else { "/static could be hooked" };
        assert!(exit.stderr.contains(hardly), "{}", exit.stderr);
        let trace = Trace::only(&dir);
        let calls = calls(&trace);
        let of = |name: &str| calls.get(name).copied();
        assert_eq!([of("main"), of("run"), of("outer")], [Some(1), Some(4), Some(4)], "{calls:?}");
        assert_eq!(of("inner"), Some(100 + 101 + 102 + 103), "{calls:?}");
        // The first call came before anybody knew of the library.
        assert_eq!(of("later").is_some(), is_dynamic, "{calls:?}");
        let is_told = trace.manifest.limits.iter().any(|limit| limit.reason == "module-hooked-late");
        assert_eq!(is_told, is_dynamic, "{:?}", trace.manifest.limits);
    }
}
