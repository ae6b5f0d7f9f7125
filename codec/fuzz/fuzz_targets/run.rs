#![no_main]

#[path = "../entries.rs"]
#[allow(dead_code)] // each target has one of the entries
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::run(data));
