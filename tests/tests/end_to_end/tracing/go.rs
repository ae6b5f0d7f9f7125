//! Programs of Go: entries only, exact, and nothing of the program touched that its runtime looks at.

use tests::{Run, Transport};

use crate::tracing::programs::installed;

#[test]
fn calls_are_exact_in_every_form() {
    if installed("go", "golang-go").is_none() {
        return;
    }
    for (target, transport, options) in [
        ("goroutines", Transport::Tcp, &["--engine", "native"][..]),
        ("goroutines_stripped", Transport::Udp, &["--engine", "native", "--no-detail"]),
        // Frida is not even tried.
        ("goroutines_pie", Transport::Tcp, &[]),
    ] {
        println!("{target} over {transport:?}");
        let traced = Run::target(target).over(transport).with(options).trace();
        traced.sound().exact_counts().ended_as_it_did();
        let manifest = &traced.trace.manifest;
        assert!(manifest.threads.len() > 1, "goroutines run on several threads");
        assert!(manifest.limits.iter().any(|limit| limit.reason == "entry-only"), "{:?}", manifest.limits);
        // Go makes the system calls for that itself.
        let [child] = &traced.family[..] else { panic!("{} children", traced.family.len()) };
        let end = child.manifest.end.as_ref().expect("it has ended");
        assert_eq!((end.how.as_str(), end.code), ("exited", Some(5)));
    }
}
