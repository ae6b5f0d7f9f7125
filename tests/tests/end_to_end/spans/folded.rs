//! Folded stacks.

use std::fs;

use sinks::FoldedSink;
use tests::Folder;

use crate::spans::picture;

#[test]
fn folded_stacks_have_every_function_under_its_callers_with_its_own_time() {
    let folder = Folder::new("folded");
    let file = folder.join("trace.folded");
    picture::tell(&mut FoldedSink::create(&file).expect("it can be created"));
    let text = fs::read_to_string(&file).expect("it is there");
    let expected = "\
main [4242];main;demo::work(int) 97000
main [4242];main;demo::work(int);leaf 2000
main [4242];coroutine 59500
worker [4243];routine 84000
pool [4244];demo::work(int) 10000
pool [4244];demo::work(int);run \"quoted\" 5000
pool [4244];an event 1000
";
    assert_eq!(text, expected);
}
