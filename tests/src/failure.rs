//! What failing tests say, at once: a test program keeps it to itself until all its tests have ended.

use std::{
    io::{self, Write},
    panic,
    sync::Once,
    thread,
};

/// From now on, whoever panics says why where it is read at once, too. Not in the tests of this crate itself, which let
/// others panic.
pub(crate) fn tell_at_once() {
    if cfg!(test) {
        return;
    }
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |why| {
            tell(&format!("{} {why}", thread::current().name().unwrap_or("a thread")));
            earlier(why);
        }));
    });
}

/// Says something about a test that fails.
pub(crate) fn tell(what: &str) {
    // Unlike `eprintln`, this is not kept back. Who reads no stderr wants to know nothing.
    let _ = writeln!(io::stderr(), "{what}");
}
