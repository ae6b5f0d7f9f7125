//! Tests of what an image knows, and of files that are none.

use super::*;

fn fail(bytes: Vec<u8>) -> String {
    Image::parse(bytes).map(|_| ()).expect_err("it is no image").to_string()
}

#[test]
fn programs_and_libraries_are_told_apart() {
    let main = "int main() { return 0; }";
    let parse = |options: &[&str], text| Image::parse(compile("c", options, text)).expect("gcc makes good files");
    let pie = parse(&["-pie", "-fPIE", "-Wl,--build-id"], main);
    assert_eq!(pie.link_base(), 0);
    assert_eq!(pie.interpreter(), Some("/lib64/ld-linux-x86-64.so.2"));
    assert_eq!(pie.build_id().len(), 20);
    assert!(!pie.is_static() && pie.size() % 4096 == 0 && pie.size() > 0x2000);
    let fixed = parse(&["-no-pie", "-fno-PIE"], main);
    assert_eq!(fixed.link_base(), 0x40_0000);
    assert!(!fixed.is_static());
    let library = parse(&["-shared", "-fPIC", "-Wl,--build-id=none"], "int f() { return 0; }");
    assert_eq!((library.interpreter(), library.build_id().len()), (None, 0));
    assert!(!library.is_static());
    let start = "void _start() { for (;;); }";
    assert!(parse(&["-static", "-nostdlib"], start).is_static());
    assert!(parse(&["-static-pie", "-fPIE", "-nostdlib"], start).is_static());
}

#[test]
fn what_is_no_image_says_what_it_is() {
    assert!(fail(b"#!/bin/sh".to_vec()).contains("not an ELF file"));
    assert!(fail(Vec::new()).contains("not an ELF file"));
    let good = library(&[PLAIN], &[]);
    let with = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        fail(bytes)
    };
    assert!(with(18, &[183, 0]).contains("arm64"));
    assert!(with(18, &[3, 0]).contains("x86 (32-bit)"));
    assert!(with(18, &[99, 0]).contains("machine 99"));
    assert!(with(4, &[1]).contains("32-bit"));
    assert!(with(16, &[1, 0]).contains("type 1"));
    assert!(with(40, &[0, 0, 0, 0, 1]).contains("table of sections"));
    assert!(fail(good[..good.len() - 1].to_vec()).contains("cut off"));
    assert!(fail(good[..30].to_vec()).contains("cut off"));
    let error = Image::open("/does/not/exist").map(|_| ()).expect_err("it does not exist").to_string();
    assert!(error.contains("/does/not/exist"), "{error}");
}
