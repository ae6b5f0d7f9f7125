//! Where running agents and collectors can be reached: a folder of this user's with a socket for each.

use std::{
    env,
    fs::{self, DirBuilder},
    io,
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process,
};

/// Who is at a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// An agent.
    Agent,
    /// A collector.
    Collector,
}

impl Role {
    /// What the names of their sockets end with.
    fn ending(self) -> &'static str {
        match self {
            Self::Agent => "sock",
            Self::Collector => "collector",
        }
    }
}

/// The folder: below the one that the system has made for this user, else among temporary files.
pub fn path() -> PathBuf {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match absolute("XDG_RUNTIME_DIR") {
        Some(folder) => folder.join("spoor"),
        None => env::temp_dir().join(format!("spoor-{}-run", rustix::process::geteuid().as_raw())),
    }
}

/// A socket in the folder, for as long as it is kept.
#[derive(Debug)]
pub struct Socket {
    /// What takes connections.
    pub listener: UnixListener,
    place: PathBuf,
}

impl Socket {
    /// Makes the socket of this process, in a folder that nobody else can enter.
    pub fn make(folder: &Path, role: Role) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        check(folder)?;
        let place = folder.join(format!("{}.{}", process::id(), role.ending()));
        // One of a process that had the same id and was killed.
        let _ = fs::remove_file(&place);
        let listener = UnixListener::bind(&place)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, place })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may be gone with its folder.
        let _ = fs::remove_file(&self.place);
    }
}

/// The sockets in the folder that such are at, if it is one that can be trusted.
pub fn sockets(folder: &Path, role: Role) -> io::Result<Vec<PathBuf>> {
    match check(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        checked => checked?,
    }
    let paths = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension().is_some_and(|ending| ending == role.ending())).collect())
}

/// Refuses a folder that others may have put something into.
fn check(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    let refused = || io::Error::other(format!("{} is not a folder of this user's alone", folder.display()));
    if is_own { Ok(()) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_can_reach_a_socket() {
        let folder = env::temp_dir().join(format!("spoor-test-run-{}", process::id()));
        assert!(sockets(&folder, Role::Agent).expect("none is there").is_empty());
        let socket = Socket::make(&folder, Role::Agent).expect("made");
        let again = Socket::make(&folder, Role::Agent).expect("one that was left is no obstacle");
        let other = Socket::make(&folder, Role::Collector).expect("made");
        assert_eq!(sockets(&folder, Role::Agent).expect("read"), std::slice::from_ref(&again.place));
        assert_eq!(sockets(&folder, Role::Collector).expect("read"), std::slice::from_ref(&other.place));
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        assert_eq!((mode(&folder), mode(&again.place), mode(&other.place)), (0o700, 0o600, 0o600));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("permissions");
        assert!(sockets(&folder, Role::Agent).is_err() && Socket::make(&folder, Role::Agent).is_err());
        drop((socket, again, other));
        fs::remove_dir(&folder).expect("it is empty");
    }
}
