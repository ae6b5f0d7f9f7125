//! Programs that cannot be traced: one line each, and the code of a shell.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::{
    program::{compile, compile_static},
    support::{Folder, agent, agent_run, run, sending},
};

fn check(program: &str, code: i32, said: &str) {
    let ended = run(&mut agent_run(&[program]));
    assert_eq!(ended.code(), Some(code), "{ended:?}");
    assert!(ended.error().contains(said), "{ended:?}");
    assert_eq!(ended.stdout, "", "nothing has run");
}

#[test]
fn what_is_not_there() {
    check("no-such-program-anywhere", 127, "cannot run no-such-program-anywhere: not found in PATH");
    check("/no/such/program", 127, "there is no such file");
}

#[test]
fn what_is_no_program() {
    let folder = Folder::new();
    check(folder.0.to_str().expect("text"), 126, "it is a directory");
    let text = folder.executable("text", "echo hello\n");
    check(&text, 126, "not an ELF file");
    fs::set_permissions(&text, fs::Permissions::from_mode(0o644)).expect("permissions");
    check(&text, 126, "it is not executable");
    let script = folder.executable("script", "#!/no/such/interpreter\n");
    check(&script, 126, "its interpreter /no/such/interpreter does not exist");
}

#[test]
fn what_is_for_another_processor() {
    let folder = Folder::new();
    let mut header = fs::read("/proc/self/exe").expect("this program")[..4096].to_vec();
    // e_machine, which is then that of arm64.
    header[18] = 183;
    let program = folder.executable("foreign", header);
    check(&program, 126, "made for arm64, but only x86_64 can be traced");
}

#[test]
fn what_nothing_can_be_loaded_into() {
    let folder = Folder::new();
    let program = compile_static(&folder);
    let ended = run(&mut sending(&["run", "--engine", "frida", "--", &program]));
    assert_eq!(ended.code(), Some(126), "{ended:?}");
    assert!(ended.error().contains("it is linked statically, and Frida cannot be loaded into it"), "{ended:?}");
}

#[test]
fn what_raises_its_rights() {
    if !nix_root() {
        return check("/usr/bin/passwd", 126, "it is setuid");
    }
    let folder = Folder::new();
    let program = compile(&folder, "raised", "int main(void) { return 0; }\n", &[]);
    std::os::unix::fs::chown(&program, Some(12_345), None).expect("root may");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("permissions");
    check(&program, 126, "it is setuid");
}

#[test]
fn what_is_not_ready_in_time() {
    let folder = Folder::new();
    let sign = folder.path("it ran");
    let ended = run(&mut sending(&["run", "--quiet", "--startup-timeout", "1ms", "--", "touch", &sign]));
    assert_eq!(ended.code(), Some(125), "{ended:?}");
    assert!(ended.error().contains("--startup-timeout"), "{ended:?}");
    assert!(!fs::exists(&sign).expect("a folder"), "the program must not run");
}

#[test]
fn what_this_command_fails_at_before_the_program_begins() {
    let folder = Folder::new();
    let (sign, pin) = (folder.path("it ran"), format!("sha256:{}", "ab".repeat(32)));
    for (options, said) in [
        (&["--to", "127.0.0.1:1", "--transport", "tcp"][..], "nobody listens at 127.0.0.1:1"),
        (&["--to", "no-such-host.invalid:7000"], "cannot find the address of no-such-host.invalid"),
        (&["--transport", "tcp", "--tls-pin", &pin, "--token-file", "/no/token"], "/no/token"),
        (&["--transport", "tcp", "--tls-ca", "/no/authority"], "/no/authority"),
    ] {
        let ended =
            run(&mut agent(&[&["run", "--quiet", "--engine", "native"], options, &["--", "touch", &sign]].concat()));
        assert_eq!(ended.code(), Some(125), "{ended:?}");
        assert!(ended.error().contains(said), "{ended:?}");
        assert!(!fs::exists(&sign).expect("a folder"), "the program must not run");
    }
    // Where there is no program to tell from, a failure is a failure.
    let ended = run(&mut agent(&["attach", "--to", "no-such-host.invalid:7000", "1"]));
    assert_eq!(ended.code(), Some(1), "{ended:?}");
}

#[test]
fn what_loads_but_never_comes_to_the_gate() {
    let folder = Folder::new();
    // It needs a library that is not there: the loader gives up.
    let source = "int missing(void); int main(void) { return missing(); }\n";
    let library = folder.path("libmissing.so");
    fs::write(folder.path("missing.c"), "int missing(void) { return 1; }\n").expect("written");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &folder.path("missing.c")]).status();
    assert!(built.expect("cc").success());
    let program = compile(&folder, "needy", source, &[&library]);
    fs::remove_file(&library).expect("removed");
    let ended = run(&mut agent_run(&[&program]));
    assert_eq!(ended.code(), Some(126), "{ended:?}");
    let last = ended.stderr.lines().last().expect("a line");
    assert!(last.contains("did not load the agent library, and it exited with 127"), "{ended:?}");
}

fn nix_root() -> bool {
    let user = Command::new("id").arg("-u").output().expect("id runs");
    user.stdout == b"0\n"
}

#[test]
fn too_few_addresses_are_told() {
    let own = env!("CARGO_BIN_EXE_agent");
    let limited = format!("ulimit -v 500000; exec {own} run --to 127.0.0.1:1 --engine native -- true");
    let ended = run(Command::new("sh").args(["-c", &limited]));
    assert_eq!(ended.code(), Some(125), "{ended:?}");
    assert!(ended.error().contains("`ulimit -v unlimited`"), "{ended:?}");
}
