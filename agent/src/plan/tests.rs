//! Tests of the planner on small libraries that are assembled for them, and on those of the system. They need `gcc`.

mod hostile;
mod images;
mod moves;
mod names;
mod real;
mod rules;

use std::{
    io::Write,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;

/// A function with an ordinary frame, the prologue of which is long enough.
const PLAIN: &str = "plain: .cfi_startproc; push rbx; .cfi_adjust_cfa_offset 8; mov rbx, rdi; mov eax, 1; pop rbx
    .cfi_adjust_cfa_offset -8; ret; .cfi_endproc";

/// Runs gcc on a text in the language given, and returns what it made.
fn compile(language: &str, options: &[&str], text: &str) -> Vec<u8> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    // ORDERING: a number of its own is all a file needs.
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let output = std::env::temp_dir().join(format!("spoor-plan-{}-{number}", std::process::id()));
    let mut gcc = Command::new("gcc")
        .args(["-x", language, "-", "-o"])
        .arg(&output)
        .args(options)
        .stdin(Stdio::piped())
        .spawn()
        .expect("gcc is needed for this test: install a C compiler");
    gcc.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("gcc reads");
    assert!(gcc.wait().expect("gcc ends").success(), "gcc refuses:\n{text}");
    let bytes = std::fs::read(&output).expect("gcc wrote it");
    std::fs::remove_file(&output).expect("it is ours");
    bytes
}

/// A shared library of these functions. What a text begins with is a function.
fn library(functions: &[&str], options: &[&str]) -> Vec<u8> {
    let mut text = ".intel_syntax noprefix\n".to_owned();
    for function in functions {
        let name = function.split_once(':').map_or("", |(name, _)| name);
        if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.is_empty() {
            text += &format!(".type {name}, @function\n");
        }
        text += &format!(".text\n{function}\n");
    }
    compile("assembler", &[&["-shared", "-nostdlib"], options].concat(), &text)
}

/// The plan of a shared library of these functions.
fn planned(functions: &[&str]) -> ModulePlan {
    planned_image(&image(functions))
}

fn image(functions: &[&str]) -> Image {
    Image::parse(library(functions, &[])).expect("gcc makes good files")
}

fn planned_image(image: &Image) -> ModulePlan {
    plan(image, None, &|_| None)
}

/// The function of a name.
fn find<'a>(plan: &'a ModulePlan, name: &str) -> &'a Function {
    let has = |function: &&Function| function.name == name || function.aliases.iter().any(|alias| alias == name);
    plan.functions.iter().find(has).unwrap_or_else(|| panic!("no function {name}"))
}

/// How a function is hooked, or why it is not.
fn decision(plan: &ModulePlan, name: &str) -> Result<Kind, Reason> {
    match find(plan, name).action {
        Action::Hook(hook) => Ok(hook.kind),
        Action::Leave(reason) => Err(reason),
    }
}

/// How the only function `f` of a library is hooked, or why it is not.
fn decide(function: &str) -> Result<Kind, Reason> {
    decision(&planned(&[function]), "f")
}
