//! Every target program, traced: it does what it does untraced, and the trace holds every call that it made, no more and
//! no less.
//!
//! The hooks do not know how their records travel, so one transport is enough for most programs. Those that make many
//! calls or many threads, or that end or go on in another way than most, are traced over both. All are traced with both
//! engines.

use tests::{Run, Transport, depths::Stacks};

use crate::tracing::{BOTH, spans};

const TCP: &[Transport] = &[Transport::Tcp];

/// A target program and what is particular about it.
struct Case {
    target: &'static str,
    arguments: &'static [&'static str],
    stdin: &'static str,
    stacks: Stacks,
    over: &'static [Transport],
    /// How the session ends, where that is not how the program did.
    end: Option<&'static str>,
    /// Whether it makes so many calls that once with all detail is enough: over UDP.
    large: bool,
}

impl Case {
    const fn new(target: &'static str) -> Self {
        let over = &[Transport::Udp];
        Self { target, arguments: &[], stdin: "", stacks: Stacks::One, over, end: None, large: false }
    }

    #[track_caller]
    fn holds_over(&self, transport: Transport, engine: &str) {
        println!("{} over {transport:?} with {engine}", self.target);
        let index_only = self.large && transport == Transport::Tcp;
        let options: &[&str] = if index_only { &["--no-detail"] } else { &[] };
        let run = Run::target(self.target).arguments(self.arguments).stdin(self.stdin);
        // The search for leaks runs in a process that has the program's memory and its thread pointer.
        let run = run.variable("ASAN_OPTIONS", "detect_leaks=0");
        let traced = run.over(transport).with(options).with(&["--engine", engine]).trace();
        traced.sound().exact_counts().depths(self.stacks);
        // As text, a million spans are hundreds of megabytes.
        if traced.trace.len() < 200_000 {
            spans::agree(&traced);
        }
        match self.end {
            Some(how) => traced.ended(how, None),
            None => traced.ended_as_it_did(),
        };
        // Every program here writes its counts.
        traced.calls_libraries(&[&["write", "__write", "__libc_write"]]);
        let detailed = traced.trace.threads.values().flatten().any(|event| event.captured.is_some());
        assert_eq!(detailed, !index_only, "registers and stacks are in the trace, unless they were not wanted");
    }
}

macro_rules! targets {
    ($($name:ident $({ $($field:ident: $value:expr),* })?)*) => {
        $(
            #[test]
            fn $name() {
                let case = Case { $($($field: $value,)*)? ..Case::new(stringify!($name)) };
                case.over.iter().for_each(|transport| case.holds_over(*transport, "frida"));
            }
        )*

        mod native {
            use super::*;

            $(
                #[test]
                fn $name() {
                    let case = Case { $($($field: $value,)*)? ..Case::new(stringify!($name)) };
                    case.over.iter().take(1).for_each(|transport| case.holds_over(*transport, "native"));
                }
            )*

            /// Nothing can be loaded into these, and nothing but the program itself is there.
            #[test]
            fn plain_static() {
                Case::new("plain_static").holds_over(Transport::Tcp, "native");
            }

            #[test]
            fn plain_static_pie() {
                Case::new("plain_static_pie").holds_over(Transport::Udp, "native");
            }

            #[test]
            fn threads_static() {
                Case { large: true, ..Case::new("threads_static") }.holds_over(Transport::Tcp, "native");
            }

            #[test]
            fn exceptions_static() {
                Case::new("exceptions_static").holds_over(Transport::Tcp, "native");
            }

            /// The sanitizer wants to be the first library, and looks at where memory is.
            #[test]
            fn plain_sanitized() {
                Case::new("plain_sanitized").holds_over(Transport::Tcp, "native");
            }
        }
    };
}

targets! {
    plain { over: &BOTH }
    plain_pie
    plain_no_pie { over: TCP }
    plain_unoptimised
    plain_no_frame_pointer { over: TCP }
    plain_frame_pointer
    plain_protected { over: TCP }
    plain_lazy
    plain_stripped { over: TCP }
    recursion { large: true, over: &BOTH }
    threads64 { large: true, over: &BOTH }
    short_threads { over: &BOTH }
    kept_threads { over: TCP }
    pthreads { over: TCP }
    bare_threads
    dlopen_loop
    exceptions { over: &BOTH }
    exceptions_stripped { over: TCP }
    uncaught
    rust_panics { over: TCP }
    longjmp
    longjmp_no_frame_pointer { over: TCP }
    contexts { stacks: Stacks::Many, over: TCP }
    signals { stacks: Stacks::Many, over: TCP }
    fork { over: &BOTH }
    fork_throws
    vfork_exec { over: TCP }
    // The child has a stack of its own in the parent's memory until it executes.
    spawn { stacks: Stacks::Many }
    exec { end: Some("replaced"), over: &BOTH }
    exec_in_a_thread { target: "exec", arguments: &["thread"], end: Some("replaced"), over: TCP }
    tail_calls { over: TCP }
    arguments
    arguments_frame_pointer { over: TCP }
    detail
    callbacks { large: true, over: &BOTH }
    tail_callbacks
    constructors { over: TCP }
    descriptors
    environment { arguments: &["one", "", "two words", "ünï"], over: TCP }
    stdin_echo { stdin: "one line\nanother\nthe last, which has no end" }
    many_functions { over: &BOTH }
    hot_loop { arguments: &["20000", "2"], large: true, over: &BOTH }
    ends_by_exit { target: "ends", arguments: &["exit"] }
    ends_by_underscore_exit { target: "ends", arguments: &["_exit"], over: TCP }
    ends_by_quick_exit { target: "ends", arguments: &["quick_exit"] }
    ends_by_abort { target: "ends", arguments: &["abort"], over: &BOTH }
    ends_by_segfault { target: "ends", arguments: &["segfault"], over: TCP }
    ends_by_handled_segfault { target: "ends", arguments: &["handled"] }
    ends_by_trap { target: "ends", arguments: &["trap"], over: TCP }
    ends_by_division { target: "ends", arguments: &["divide"] }
    ends_by_term { target: "ends", arguments: &["term"], over: TCP }
    ends_by_stack_overflow { target: "ends", arguments: &["overflow"] }
    ends_in_a_thread { target: "ends", arguments: &["_exit", "thread"], over: TCP }
    faults_in_a_thread { target: "ends", arguments: &["segfault", "thread"] }
}
