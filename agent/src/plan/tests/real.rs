//! Tests on the libraries of the system.

use std::{fs::File, os::unix::fs::FileExt, process::Command};

use super::*;

/// A library that gcc would link.
pub(super) fn system(name: &str) -> Image {
    let output = Command::new("gcc").arg(format!("-print-file-name={name}")).output();
    let path = output.expect("gcc is needed for this test: install a C compiler").stdout;
    let path = String::from_utf8(path).expect("a path");
    Image::open(path.trim_end()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// How much of a module is hooked, in percent.
fn coverage(plan: &ModulePlan) -> usize {
    plan.functions.iter().filter(|function| function.hook().is_some()).count() * 100 / plan.functions.len()
}

#[test]
fn functions_of_libc_that_save_or_read_their_return_address_are_probed() {
    let plan = planned_image(&system("libc.so.6"));
    for name in ["__sigsetjmp", "getcontext", "swapcontext", "vfork", "__vfork", "dlopen", "dlsym"] {
        assert_eq!(decision(&plan, name), Ok(Kind::Probe), "{name}");
    }
    for name in ["malloc", "printf", "read", "qsort", "pthread_create"] {
        assert_eq!(decision(&plan, name), Ok(Kind::Frame), "{name}");
    }
}

#[test]
fn most_of_the_system_libraries_is_hooked() {
    for (name, percent) in [("libc.so.6", 95), ("libstdc++.so.6", 90), ("libm.so.6", 95), ("libgcc_s.so.1", 80)] {
        let coverage = coverage(&planned_image(&system(name)));
        assert!(coverage >= percent, "{name}: {coverage} %");
    }
}

#[test]
fn code_in_parts_is_the_same_code() {
    let image = system("libc.so.6");
    let frames = Frames::of(&image);
    let mut starts = Marks::new(image.code());
    frames.list().iter().for_each(|frame| starts.set(frame.start));
    let found = |part_bytes| format!("{:?}", Sweep::in_parts(&image, &frames, &starts, part_bytes));
    let at_once = found(u64::MAX);
    for part_bytes in [1, 4096, 1 << 18] {
        assert!(at_once == found(part_bytes), "parts of {part_bytes} bytes");
    }
}

#[test]
fn where_one_copy_of_memory_enters_another_neither_is_hooked_in_the_way() {
    let image = system("libc.so.6");
    let plan = planned_image(&image);
    // In all of them a function that returns its end jumps behind the first instruction of one that does not.
    let left = plan.functions.iter().filter(|function| function.action == Action::Leave(Reason::BranchIntoStart));
    assert!(left.count() >= 5);
    for name in ["mempcpy", "memmove"] {
        assert_eq!(decision(&plan, name), Ok(Kind::Frame), "{name} only chooses one of them");
    }
}

#[test]
fn unwinders_of_libgcc_are_found_by_what_they_do() {
    let plan = planned_image(&system("libgcc_s.so.1"));
    let mut unwinders: Vec<_> = plan
        .functions
        .iter()
        .filter(|function| function.hook().is_some_and(|hook| hook.kind == Kind::Unwinder))
        .map(|function| function.name.as_str())
        .collect();
    unwinders.sort_unstable();
    assert_eq!(
        unwinders,
        [
            "_Unwind_Backtrace",
            "_Unwind_ForcedUnwind",
            "_Unwind_RaiseException",
            "_Unwind_Resume",
            "_Unwind_Resume_or_Rethrow"
        ]
    );
}

#[test]
fn unwinders_are_found_in_a_stripped_program_with_its_own_libgcc() {
    let program = "void f() { throw 1; } int main() { try { f(); } catch (...) { return 0; } return 1; }";
    let options = ["-O2", "-s", "-static-libgcc", "-static-libstdc++", "-lstdc++"];
    let options = [&options[..], &["-Wl,--whole-archive", "-lgcc_eh", "-Wl,--no-whole-archive"]].concat();
    let image = Image::parse(compile("c++", &options, program)).expect("gcc makes good files");
    let plan = planned_image(&image);
    let unwinders = plan.functions.iter().filter(|f| f.hook().is_some_and(|hook| hook.kind == Kind::Unwinder));
    assert_eq!(unwinders.count(), 5);
}

#[test]
fn what_nobody_has_patched_is_the_same_in_memory() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a process has maps");
    let first = maps.lines().find(|line| line.ends_with("/libc.so.6")).expect("this process has a libc");
    let (base, path) = (first.split('-').next().expect("an address"), first.split(' ').next_back().expect("a path"));
    let base = u64::from_str_radix(base, 16).expect("an address is a number");
    let image = Image::open(path).expect("it is loaded");
    let (own, bias) = (File::open("/proc/self/mem").expect("own memory"), base - image.link_base());
    let memory = |address, buffer: &mut [u8]| own.read_exact_at(buffer, bias + address).is_ok();
    assert_eq!(plan(&image, Some(&memory), &|_| None), planned_image(&image));
}
