//! Tests of what functions are called.

use super::*;

#[test]
fn aliases_are_one_function_with_the_best_name_first() {
    let aliases = ".globl _f, ff, f, weak; .weak weak; .type _f, @function; .type ff, @function; .type f, @function
        .type weak, @function; .type a, @function; _f: ff: f: weak: a: .cfi_startproc; mov eax, 1; ret; .cfi_endproc";
    let plan = planned(&[aliases]);
    let f = find(&plan, "f");
    assert_eq!(f.name, "f");
    // Known to others before local, without an underscore before with, short before long.
    assert_eq!(f.aliases, ["ff", "weak", "_f", "a"]);
    let there = plan.functions.iter().filter(|function| function.address == f.address);
    assert_eq!(there.count(), 1);
}

#[test]
fn versions_are_no_part_of_a_name() {
    let script = std::env::temp_dir().join(format!("spoor-plan-{}.map", std::process::id()));
    std::fs::write(&script, "V1 { global: f; local: *; }; V2 { };").expect("a temporary file");
    let versioned = ".globl f_old; .type f_old, @function; f_old: .cfi_startproc; mov eax, 1; ret; .cfi_endproc
        .symver f_old, f@V1";
    let option = format!("-Wl,--version-script={}", script.display());
    let image = Image::parse(library(&[versioned], &[&option])).expect("gcc makes good files");
    std::fs::remove_file(&script).expect("it is ours");
    assert_eq!(find(&planned_image(&image), "f").name, "f");
}

#[test]
fn local_functions_of_a_stripped_library_have_an_address() {
    let functions = [PLAIN, ".globl g; .type g, @function; g: .cfi_startproc; mov eax, 2; ret; .cfi_endproc"];
    let image = Image::parse(library(&functions, &["-s"])).expect("gcc makes good files");
    let names: Vec<_> = planned_image(&image).functions.into_iter().map(|function| function.name).collect();
    assert_eq!(names, ["", "g"]);
}

#[test]
fn functions_come_by_address_each_once() {
    for name in ["libc.so.6", "libstdc++.so.6"] {
        let functions = planned_image(&real::system(name)).functions;
        assert!(functions.is_sorted_by(|a, b| a.address < b.address), "{name}");
    }
}

#[test]
fn words_of_reasons_are_constant_and_different() {
    let words: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(words.len(), Reason::ALL.len());
    for reason in Reason::ALL {
        assert!(reason.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{reason}");
        assert!(!reason.explain().contains('\n') && !reason.explain().is_empty());
    }
}
