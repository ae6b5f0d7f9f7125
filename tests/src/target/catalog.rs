//! All target programs.

use super::{Library, Target};

/// All target programs. What each shows is in `fixtures/targets/README.md`.
pub const TARGETS: &[Target] = &[
    c("plain", "plain.c"),
    c("recursion", "recursion.c"),
    c("threads64", "threads64.c"),
    c("short_threads", "short_threads.c"),
    c("starts", "starts.c"),
    c("kept_threads", "kept_threads.c"),
    c("leaves", "leaves.c"),
    c("exits", "exits.c"),
    c("orphans", "orphans.c"),
    c("pthreads", "pthreads.c"),
    c("bare_threads", "bare_threads.c"),
    c("brief_threads", "brief_threads.c"),
    with(c("dlopen_loop", "dlopen_loop.c"), PLUGIN),
    with(c("exceptions", "exceptions.cpp"), THROWER),
    c("uncaught", "uncaught.cpp"),
    flags("rust_panics", "rust_panics.rs", &["-Copt-level=1"]),
    c("longjmp", "longjmp.c"),
    c("crossings", "crossings.cpp"),
    c("needle", "needle.c"),
    c("contexts", "contexts.c"),
    c("fibers", "fibers.c"),
    c("fibers_throw", "fibers_throw.cpp"),
    c("odd_stacks", "odd_stacks.c"),
    c("signals", "signals.c"),
    c("fork", "fork.c"),
    c("fork_throws", "fork_throws.cpp"),
    c("vfork_exec", "vfork_exec.c"),
    c("spawn", "spawn.c"),
    c("exec", "exec.c"),
    c("family", "family.c"),
    c("spawn_races", "spawn_races.c"),
    c("ends", "ends.c"),
    flags("tail_calls", "tail_calls.c", &["-O2"]),
    flags("arguments", "arguments.c", &["-O2"]),
    c("detail", "detail.c"),
    c("callbacks", "callbacks.c"),
    flags("tail_callbacks", "tail_callbacks.c", &["-O2"]),
    c("constructors", "constructors.c"),
    c("descriptors", "descriptors.c"),
    c("environment", "environment.c"),
    c("stdin_echo", "stdin_echo.c"),
    c("many_functions", "many_functions.c"),
    c("hot_loop", "hot_loop.c"),
    c("phases", "phases.c"),
    c("quadratic", "quadratic.c"),
    c("convoy", "convoy.c"),
    c("steady", "steady.c"),
    c("steady_fibers", "steady_fibers.cpp"),
    c("side_by_side", "side_by_side.cpp"),
    flags("side_by_side_open", "side_by_side.cpp", &["-O1", "-DOPEN"]),
    c("registers", "registers.c"),
    c("endless", "endless.c"),
    c("uses_gs", "uses_gs.c"),
    c("alarmed", "alarmed.c"),
    c("slow_children", "slow_children.c"),
    c("realtime", "realtime.c"),
    c("holds", "holds.c"),
    with(c("loads", "loads.c"), WAITS),
    // One program, in every form that a program can have.
    flags("plain_pie", "plain.c", &["-O1", "-fPIE", "-pie"]),
    flags("plain_no_pie", "plain.c", &["-O1", "-fno-pie", "-no-pie"]),
    flags("plain_unoptimised", "plain.c", &["-O0"]),
    flags("plain_no_frame_pointer", "plain.c", &["-O2", "-fomit-frame-pointer"]),
    flags("plain_frame_pointer", "plain.c", &["-O2", "-fno-omit-frame-pointer"]),
    flags("plain_protected", "plain.c", &["-O2", "-fcf-protection=full"]),
    flags("plain_lazy", "plain.c", &["-O2", "-Wl,-z,lazy"]),
    flags("plain_debug", "plain.c", &["-O1", "-g"]),
    flags("plain_stripped", "plain.c", &["-O1", "-DBY_OFFSET", "-s"]),
    flags("plain_static", "plain.c", &["-O1", "-static"]),
    flags("plain_static_pie", "plain.c", &["-O1", "-static-pie"]),
    flags("threads_static", "threads64.c", &["-O1", "-static"]),
    flags("exceptions_static", "uncaught.cpp", &["-O1", "-static"]),
    flags("plain_sanitized", "plain.c", &["-O1", "-fsanitize=address,undefined"]),
    // Go, also without symbols, and where it is loaded anywhere.
    flags("goroutines", "goroutines.go", &[]),
    flags("goroutines_stripped", "goroutines.go", &["-ldflags=-s -w"]),
    flags("goroutines_pie", "goroutines.go", &["-buildmode=pie"]),
    flags("goroutines_steady", "goroutines.go", &["-ldflags=-X main.mode=steady"]),
    // Runtimes that look up return addresses, by a function that each has.
    flags("reads_returns_ocaml", "reads_returns.c", &["-O1", "-DMARKER=caml_call_gc"]),
    flags("reads_returns_plugin", "reads_returns.c", &["-O1", "-DMARKER=camlUnit__entry"]),
    flags("reads_returns_moar", "reads_returns.c", &["-O1", "-DMARKER=MVM_jit_code_get_current_position"]),
    flags("reads_returns_mono", "reads_returns.c", &["-O1", "-DEVERYWHERE", "-DMARKER=mono_jit_init"]),
    // Where frames are hardest to tell apart.
    flags("longjmp_no_frame_pointer", "longjmp.c", &["-O2", "-fomit-frame-pointer"]),
    with(flags("exceptions_stripped", "exceptions.cpp", &["-O2", "-DBY_OFFSET", "-s"]), THROWER),
    flags("arguments_frame_pointer", "arguments.c", &["-O1", "-fno-omit-frame-pointer"]),
];

const PLUGIN: &[Library] = &[Library { name: "plugin", source: "plugin.c", linked: false }];
const WAITS: &[Library] = &[Library { name: "waits", source: "waits.c", linked: false }];
const THROWER: &[Library] = &[Library { name: "thrower", source: "thrower.cpp", linked: true }];

/// A program compiled as most are.
const fn c(name: &'static str, source: &'static str) -> Target {
    flags(name, source, &["-O1"])
}

const fn flags(name: &'static str, source: &'static str, flags: &'static [&'static str]) -> Target {
    Target { name, source, flags, libraries: &[] }
}

const fn with(target: Target, libraries: &'static [Library]) -> Target {
    Target { libraries, ..target }
}
