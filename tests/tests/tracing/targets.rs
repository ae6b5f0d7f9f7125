//! Every target program, traced over UDP and over TCP: it does what it does untraced, and the trace holds every call that
//! it made, no more and no less.

use tests::{Run, Transport, depths::Stacks};

use crate::spans;

/// A target program and what is particular about it.
struct Case {
    target: &'static str,
    arguments: &'static [&'static str],
    stdin: &'static str,
    stacks: Stacks,
    /// How the session ends, where that is not how the program did.
    end: Option<&'static str>,
    /// Whether it makes so many calls that once with all detail is enough.
    large: bool,
}

impl Case {
    const fn new(target: &'static str) -> Self {
        Self { target, arguments: &[], stdin: "", stacks: Stacks::One, end: None, large: false }
    }

    #[track_caller]
    fn holds_over(&self, transport: Transport) {
        let index_only = self.large && transport == Transport::Tcp;
        let options: &[&str] = if index_only { &["--no-detail"] } else { &[] };
        let run = Run::target(self.target).arguments(self.arguments).stdin(self.stdin);
        let traced = run.over(transport).with(options).trace();
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
            mod $name {
                use super::*;

                const CASE: Case = Case { $($($field: $value,)*)? ..Case::new(stringify!($name)) };

                #[test]
                fn over_udp() {
                    CASE.holds_over(Transport::Udp);
                }

                #[test]
                fn over_tcp() {
                    CASE.holds_over(Transport::Tcp);
                }
            }
        )*
    };
}

targets! {
    plain
    plain_pie
    plain_no_pie
    plain_unoptimised
    plain_no_frame_pointer
    plain_frame_pointer
    plain_protected
    plain_lazy
    plain_stripped
    recursion { large: true }
    threads64 { large: true }
    short_threads
    pthreads
    dlopen_loop
    exceptions
    exceptions_stripped
    uncaught
    rust_panics
    longjmp
    longjmp_no_frame_pointer
    contexts { stacks: Stacks::Many }
    signals { stacks: Stacks::Many }
    fork
    fork_throws
    vfork_exec
    // The child has a stack of its own in the parent's memory until it executes.
    spawn { stacks: Stacks::Many }
    exec { end: Some("replaced") }
    exec_in_a_thread { target: "exec", arguments: &["thread"], end: Some("replaced") }
    tail_calls
    arguments
    arguments_frame_pointer
    detail
    callbacks { large: true }
    constructors
    descriptors
    environment { arguments: &["one", "", "two words", "ünï"] }
    stdin_echo { stdin: "one line\nanother\nthe last, which has no end" }
    many_functions
    hot_loop { arguments: &["20000", "2"], large: true }
    ends_by_exit { target: "ends", arguments: &["exit"] }
    ends_by_underscore_exit { target: "ends", arguments: &["_exit"] }
    ends_by_quick_exit { target: "ends", arguments: &["quick_exit"] }
    ends_by_abort { target: "ends", arguments: &["abort"] }
    ends_by_segfault { target: "ends", arguments: &["segfault"] }
    ends_by_handled_segfault { target: "ends", arguments: &["handled"] }
    ends_by_trap { target: "ends", arguments: &["trap"] }
    ends_by_division { target: "ends", arguments: &["divide"] }
    ends_by_term { target: "ends", arguments: &["term"] }
    ends_by_stack_overflow { target: "ends", arguments: &["overflow"] }
    ends_in_a_thread { target: "ends", arguments: &["_exit", "thread"] }
    faults_in_a_thread { target: "ends", arguments: &["segfault", "thread"] }
}
