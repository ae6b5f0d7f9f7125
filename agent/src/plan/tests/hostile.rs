//! Files that lie: nothing panics, and nothing takes long.

use std::time::{Duration, Instant};

use super::*;

/// Plans whatever can be parsed, and makes all copies.
fn survive(bytes: Vec<u8>) {
    let Ok(image) = Image::parse(bytes) else { return };
    let _ = (image.size(), image.link_base(), image.is_static(), image.interpreter());
    for function in planned_image(&image).functions {
        if let Some(hook) = function.hook() {
            let _ = hook.prologue.relocate(0x7f00_0000_0000, 0x7f00_0100_0000);
        }
    }
}

/// A file with something of everything.
fn sample() -> Vec<u8> {
    let program = "#include <stdexcept>
        int g(int n) { switch (n) { case 1: return 5; case 2: return 7; case 3: return 1; case 4: return 8; case 5: \
        throw std::runtime_error(\"no\"); case 6: return 11; default: return n; } }
        extern \"C\" void *f() { return __builtin_return_address(0); }";
    compile("c++", &["-O2", "-shared", "-fPIC"], program)
}

#[test]
fn no_truncation_panics() {
    let sample = sample();
    for len in (0..sample.len()).step_by(7) {
        survive(sample[..len].to_vec());
    }
}

#[test]
fn no_mutation_panics() {
    let sample = sample();
    let image = Image::parse(sample.clone()).expect("gcc makes good files");
    let (_, eh_frame) = image.eh_frame().expect("it has unwind entries");
    let eh_frame = eh_frame.as_ptr() as usize - image.data().as_ptr() as usize..;
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let sections = u64::from_le_bytes(sample[40..48].try_into().expect("eight bytes")) as usize;
    for round in 0..4000 {
        let mut bytes = sample.clone();
        for _ in 0..=random(4) {
            // Headers, sections and unwind entries have the most to say.
            let at = match round % 4 {
                0 => random(0x400),
                1 => sections + random(bytes.len() - sections),
                2 => eh_frame.start + random(0x200),
                _ => random(bytes.len()),
            };
            bytes[at] = [0, 0xff, 0x80, random(256) as u8][random(4)];
        }
        survive(bytes);
    }
}

#[test]
fn one_endless_name_for_every_symbol_takes_no_endless_room() {
    let mut functions = vec![".globl x; .type x, @function; x: ret".to_owned()];
    functions.push(format!(".globl {0}; .type {0}, @function; {0}: ret", "n".repeat(60_000)));
    functions.extend((0..3000).map(|index| format!(".globl f{index}; .type f{index}, @function; f{index}: ret")));
    let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
    let mut bytes = library(&functions, &[]);
    let image = Image::parse(bytes.clone()).expect("gcc makes good files");
    for (symbols, strings) in image.tables() {
        let name = strings.windows(8).position(|bytes| bytes == b"nnnnnnnn").expect("a name");
        let from = bytes.windows(symbols.len()).position(|bytes| bytes == symbols).expect("it is there");
        for symbol in bytes[from..from + symbols.len()].chunks_exact_mut(24) {
            symbol[..4].copy_from_slice(&(name as u32).to_le_bytes());
        }
    }
    let plan = planned_image(&Image::parse(bytes.clone()).expect("only names have changed"));
    let kept: usize = plan.functions.iter().map(|function| function.name.len()).sum();
    assert!(kept <= 2 * bytes.len(), "{kept} bytes of names from {}", bytes.len());
    assert!(plan.functions.len() > 3000);
}

#[test]
fn a_hundred_thousand_functions_take_no_time() {
    let mut text = String::new();
    for index in 0..100_000 {
        text += &format!(".type f{index},@function\nf{index}: .cfi_startproc\nmov $1,%eax\njmp f0\n.cfi_endproc\n");
    }
    let image = Image::parse(compile("assembler", &["-shared", "-nostdlib"], &text)).expect("gcc makes good files");
    let start = Instant::now();
    let plan = planned_image(&image);
    assert_eq!(plan.functions.iter().filter(|function| function.hook().is_some()).count(), 100_000);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
