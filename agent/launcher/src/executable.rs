//! The program to run: found as a shell finds it, and looked at before it is started.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use agent::plan::Image;
use rustix::fs::{Access, access};

use crate::engine::{Choice, Engine};

/// A program that can be traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Executable {
    /// What to start.
    pub(crate) path: PathBuf,
    /// What then runs: the interpreter where `path` is a script.
    pub(crate) image: PathBuf,
}

/// Why a program cannot be run, with the code that a shell would exit with.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub(crate) struct Unrunnable {
    pub(crate) code: u8,
    pub(crate) message: String,
}

/// What a shell exits with when it cannot find a program.
const NOT_FOUND: u8 = 127;
/// And when it found it, but cannot run it.
const NOT_RUN: u8 = 126;

impl Unrunnable {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: NOT_RUN, message: message.into() }
    }

    fn not_found(message: impl Into<String>) -> Self {
        Self { code: NOT_FOUND, message: message.into() }
    }
}

impl Executable {
    /// Finds a program, in the search path if its name has no slash, and what can trace it.
    pub(crate) fn find(program: &OsStr, engine: Choice) -> Result<(Self, Engine), Unrunnable> {
        let Self { path, image } = Self::locate(program)?;
        runnable(&path)?;
        let metadata = runnable(&image)?;
        if let Some(what) = raises_rights(&image, &metadata) {
            return Err(Unrunnable::new(format!(
                "cannot trace {}: it {what}, and the system loads nothing of ours into such a program (trace it as the user \
                 it belongs to, or a copy without that)",
                image.display()
            )));
        }
        let parsed = Image::open(&image)
            .map_err(|error| Unrunnable::new(format!("cannot trace {}: {error}", image.display())))?;
        let engine = engine
            .suited_to(&parsed)
            .map_err(|why| Unrunnable::new(format!("cannot trace {}: {why} (try --engine native)", image.display())))?;
        Ok((Self { path, image }, engine))
    }

    /// Only finds a program.
    pub(crate) fn locate(program: &OsStr) -> Result<Self, Unrunnable> {
        let path = locate(program)?;
        // Reading anything else may never end.
        if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
            return Err(Unrunnable::new(format!("cannot run {}: it is not a regular file", path.display())));
        }
        let image = follow_scripts(&path)?;
        Ok(Self { path, image })
    }
}

fn locate(program: &OsStr) -> Result<PathBuf, Unrunnable> {
    if program.is_empty() {
        return Err(Unrunnable::not_found("cannot run a program without a name"));
    }
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match fs::metadata(&path) {
            Ok(_) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Unrunnable::not_found(format!("cannot run {}: there is no such file", path.display())))
            }
            Err(error) => Err(Unrunnable::new(format!("cannot run {}: {error}", path.display()))),
        };
    }
    let search = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let found: Vec<PathBuf> =
        env::split_paths(&search).map(|folder| folder.join(program)).filter(|file| file.is_file()).collect();
    // As shells do: the first that can be run, else the first, which then says why not.
    let best = found.iter().find(|file| access(*file, Access::EXEC_OK).is_ok()).or(found.first()).cloned();
    best.ok_or_else(|| {
        let hint = if Path::new(program).is_file() { " (there is one in this folder: put ./ in front)" } else { "" };
        Unrunnable::not_found(format!("cannot run {}: not found in PATH{hint}", program.display()))
    })
}

fn runnable(path: &Path) -> Result<Metadata, Unrunnable> {
    let cannot = |why: &str| Unrunnable::new(format!("cannot run {}: {why}", path.display()));
    let metadata = fs::metadata(path).map_err(|error| cannot(&error.to_string()))?;
    if metadata.is_dir() {
        return Err(cannot("it is a directory"));
    }
    if !metadata.is_file() {
        return Err(cannot("it is not a regular file"));
    }
    if access(path, Access::EXEC_OK).is_err() {
        return Err(cannot("it is not executable (chmod +x makes it so)"));
    }
    Ok(metadata)
}

/// What runs when a file is started. The system follows five scripts at most, and so does this.
fn follow_scripts(path: &Path) -> Result<PathBuf, Unrunnable> {
    let mut path = path.to_path_buf();
    for _ in 0..5 {
        let Some(interpreter) = interpreter(&path) else { return Ok(path) };
        if !interpreter.exists() {
            let (script, missing) = (path.display(), interpreter.display());
            return Err(Unrunnable::new(format!("cannot run {script}: its interpreter {missing} does not exist")));
        }
        path = interpreter;
    }
    Ok(path)
}

/// What a script's first line names.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let name = line.split(|byte| *byte == b' ' || *byte == b'\t').next()?;
    (!name.is_empty()).then(|| PathBuf::from(OsString::from_vec(name.to_vec())))
}

/// Whether a program would get rights that this process does not have; the loader then trusts nobody.
pub(crate) fn raises_rights(path: &Path, metadata: &Metadata) -> Option<&'static str> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    if metadata.mode() & 0o4000 != 0 && metadata.uid() != user.as_raw() {
        return Some("is setuid");
    }
    if metadata.mode() & 0o2010 == 0o2010 && metadata.gid() != group.as_raw() {
        return Some("is setgid");
    }
    let mut value = [0_u8; 64];
    let capable = rustix::fs::getxattr(path, "security.capability", &mut value).is_ok_and(|length| length > 0);
    (capable && !user.is_root()).then_some("has capabilities of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let (sh, _) = Executable::find(OsStr::new("sh"), Choice::only(Engine::Frida)).expect("found");
        assert!(sh.path.is_absolute() && sh.path.ends_with("sh"), "{sh:?}");
        let missing =
            Executable::find(OsStr::new("no-such-program-here"), Choice::only(Engine::Frida)).expect_err("missing");
        assert_eq!(
            (missing.code, missing.message.as_str()),
            (127, "cannot run no-such-program-here: not found in PATH")
        );
        let missing =
            Executable::find(OsStr::new("/no/such/program"), Choice::only(Engine::Frida)).expect_err("missing");
        assert_eq!(missing.code, 127);
        let folder = Executable::find(OsStr::new("/etc"), Choice::only(Engine::Frida)).expect_err("a directory");
        assert_eq!((folder.code, folder.message.as_str()), (126, "cannot run /etc: it is a directory"));
        let text =
            Executable::find(OsStr::new("/etc/passwd"), Choice::only(Engine::Frida)).expect_err("not executable");
        assert!(text.code == 126 && text.message.contains("not executable"), "{text}");
    }
}
