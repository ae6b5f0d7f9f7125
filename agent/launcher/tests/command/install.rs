//! Getting Frida.

use std::{env, fs, path::PathBuf, process::Command};

use crate::support::{Folder, agent, run, sending};

/// The Python of the search path.
fn python() -> PathBuf {
    let path = env::var_os("PATH").expect("a search path");
    let found = env::split_paths(&path).map(|folder| folder.join("python3")).find(|file| file.is_file());
    found.expect("python3, which the tests need: apt-get install python3")
}

/// The command, at home in an empty folder and with nothing but this Python to be found.
fn at_home(folder: &Folder, python: &str, mut command: Command) -> Command {
    folder.executable("python3", python);
    command.env("HOME", &folder.0).env_remove("XDG_DATA_HOME").env_remove("XDG_CACHE_HOME");
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.0.display()));
    command
}

/// `agent run` of a program that does nothing.
fn running(args: &[&str]) -> Command {
    let mut command = sending(&["run"]);
    command.args(args).args(["--", "/usr/bin/env", "true"]);
    command
}

/// A Python that does not know some modules, and is otherwise the real one.
fn without(modules: &str) -> String {
    let python = python();
    format!(
        "#!/bin/sh\nscript=$2; [ \"$1\" != -I ] || script=$3\n\
         case \"$script\" in *{modules}) echo \"No module named x\" >&2; exit 1;; esac\nexec {} \"$@\"\n",
        python.display()
    )
}

#[test]
fn nothing_is_installed_unasked() {
    let folder = Folder::new();
    let ended = run(&mut at_home(&folder, &without("frida*"), running(&["--engine", "frida"])));
    assert_eq!(ended.code(), Some(125), "{ended:?}");
    assert!(ended.error().contains("`agent setup` installs it") && ended.error().contains("native"), "{ended:?}");
    // Nobody has said what to use.
    let ended = run(&mut at_home(&folder, &without("frida*"), running(&[])));
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(ended.stderr.starts_with("agent: using the native engine: Frida is not installed"), "{ended:?}");
    assert!(!folder.0.join(".local").exists(), "nothing was made");
}

#[test]
fn a_python_that_cannot_install_is_told_what_it_lacks() {
    let folder = Folder::new();
    let ended =
        run(&mut at_home(&folder, &without("frida*|\"import venv\"*|\"import pip\""), agent(&["setup", "--quiet"])));
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert!(ended.error().contains("apt-get install python3-venv"), "{ended:?}");
    let left: Vec<_> = fs::read_dir(folder.0.join(".local/share/spoor")).expect("made").flatten().collect();
    assert!(left.iter().all(|entry| entry.path().extension().is_some_and(|name| name == "lock")), "{left:?}");
}

#[test]
fn without_venv_pip_alone_will_do() {
    let pip = Command::new(python()).args(["-c", "import pip"]).output().expect("python3 runs");
    assert!(pip.status.success(), "pip, which this test needs: apt-get install python3-pip");
    let folder = Folder::new();
    let python = without("frida*|\"import venv\"*");
    let set_up = || run(&mut at_home(&folder, &python, agent(&["setup"])));
    let ended = set_up();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let environment = fs::read_dir(folder.0.join(".local/share/spoor")).expect("made").flatten();
    let environment = environment.map(|entry| entry.path()).find(|path| path.is_dir()).expect("an environment");
    assert!(environment.join("packages/frida").is_dir() && environment.join("complete").is_file());
    let ended = run(&mut at_home(&folder, &python, running(&["--quiet"])));
    assert_eq!((ended.code(), ended.stderr.as_str()), (Some(0), ""), "it is used: {ended:?}");

    // Broken, that is told.
    fs::remove_dir_all(environment.join("packages/frida")).expect("removed");
    let ended = run(&mut at_home(&folder, &python, running(&["--quiet"])));
    assert!(ended.code() == Some(125) && ended.error().contains("cannot load Frida"), "{ended:?}");
}

#[test]
fn a_python_that_is_named_is_the_one_that_is_used() {
    let folder = Folder::new();
    let python = folder.executable("python", "#!/bin/sh\necho '{\"frida\":\"16.1.0\"}'; cat >/dev/null\n");
    let ended = run(&mut sending(&["run", "--frida-python", &python, "--", "true"]));
    assert_eq!(ended.code(), Some(125), "{ended:?}");
    assert!(ended.error().contains("has Frida 16.1.0, and version 17 is needed"), "{ended:?}");
    let ended = run(&mut sending(&["run", "--frida-python", "/no/such/python", "--", "true"]));
    assert!(ended.code() == Some(125) && ended.error().contains("cannot start /no/such/python"), "{ended:?}");
}
