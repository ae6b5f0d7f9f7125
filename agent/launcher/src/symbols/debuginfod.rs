//! Debug files from servers that speak debuginfod's protocol, and from the cache that all its clients share.

mod part;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, mpsc},
    thread,
    time::Duration,
};

use part::Part;

use super::{check, hexadecimal};
use crate::signals;

/// How long one file may take, unless `DEBUGINFOD_TIMEOUT` says otherwise.
const TIMEOUT: Duration = Duration::from_secs(90);

/// How long a server may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(5);

/// How often is looked whether somebody has asked to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// A larger file is not fetched.
const MOST_BYTES: u64 = 4 << 30;

/// The servers that may be asked, and what they were asked before.
#[derive(Debug, Default)]
pub(super) struct Debuginfod {
    /// The servers that answer.
    servers: Mutex<Vec<String>>,
    cache: Option<PathBuf>,
    timeout: Duration,
}

impl Debuginfod {
    /// Asks the servers in `DEBUGINFOD_URLS` if they are to be asked. Otherwise only the cache is looked into.
    pub(super) fn new(fetch: bool) -> Result<Self, String> {
        let urls = if fetch { env::var("DEBUGINFOD_URLS").unwrap_or_default() } else { String::new() };
        let servers: Vec<String> = urls.split_whitespace().map(|url| url.trim_end_matches('/').into()).collect();
        if fetch && servers.is_empty() {
            return Err("--debuginfod: DEBUGINFOD_URLS names no server".into());
        }
        let seconds = env::var("DEBUGINFOD_TIMEOUT").ok().and_then(|text| text.parse().ok()).filter(|time| *time > 0);
        Ok(Self { servers: servers.into(), cache: cache(), timeout: seconds.map_or(TIMEOUT, Duration::from_secs) })
    }

    pub(super) fn time_needed(&self, modules: usize) -> Duration {
        let servers = self.servers.lock().map_or(0, |servers| servers.len());
        self.timeout.saturating_mul(u32::try_from(modules.saturating_mul(servers)).unwrap_or(u32::MAX))
    }

    /// Where the debug file of a module is if it was fetched before.
    pub(super) fn cached(&self, build_id: &[u8]) -> Option<PathBuf> {
        Some(self.cache.as_ref()?.join(hexadecimal(build_id)).join("debuginfo"))
    }

    /// Fetches the debug file of a module into the cache. What is wrong with a server is said, and it is not asked again.
    pub(super) fn fetch(&self, build_id: &[u8], module: &Path) -> Option<PathBuf> {
        let file = self.cached(build_id).filter(|_| build_id.len() > 1)?;
        let servers = self.servers.lock().map(|servers| servers.clone()).unwrap_or_default();
        for server in &servers {
            let url = format!("{server}/buildid/{}/debuginfo", hexadecimal(build_id));
            match self.get(url, &file, build_id) {
                Ok(()) => return Some(file),
                Err(Wrong::Unknown) => {}
                Err(Wrong::Interrupted) => return None,
                Err(Wrong::Cache(error)) => {
                    say!("cannot keep the debug file of {} in {}: {error}", module.display(), file.display());
                    return None;
                }
                Err(Wrong::Server(error)) => {
                    let mut left = self.servers.lock().ok()?;
                    if left.contains(server) {
                        say!("{server} is not asked for debug files any more: {error}");
                        left.retain(|other| other != server);
                    }
                }
            }
        }
        None
    }

    /// Gets a file as long as nobody asks to stop: a server may take its time, and this may not be deaf meanwhile.
    fn get(&self, url: String, file: &Path, build_id: &[u8]) -> Result<(), Wrong> {
        let (file, build_id, timeout) = (file.to_owned(), build_id.to_owned(), self.timeout);
        let (to, got) = mpsc::channel();
        let get = thread::Builder::new().spawn(move || to.send(get(&url, &file, &build_id, timeout)));
        get.map_err(Wrong::Cache)?;
        loop {
            signals::check().map_err(|_| Wrong::Interrupted)?;
            match got.recv_timeout(GLANCE) {
                Ok(result) => return result,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Wrong::Unknown),
            }
        }
    }
}

fn get(url: &str, file: &Path, build_id: &[u8], timeout: Duration) -> Result<(), Wrong> {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(CONNECTING))
        .timeout_global(Some(timeout))
        .user_agent(concat!("spoor/", env!("CARGO_PKG_VERSION")))
        .build();
    let mut response = match ureq::Agent::new_with_config(config).get(url).call() {
        Ok(response) => response,
        Err(ureq::Error::StatusCode(404)) => return Err(Wrong::Unknown),
        Err(error) => return Err(Wrong::Server(error.to_string())),
    };
    let dir = file.parent().ok_or(Wrong::Unknown)?;
    fs::create_dir_all(dir).map_err(Wrong::Cache)?;
    let mut part = Part::create(dir).map_err(Wrong::Cache)?;
    let mut body = response.body_mut().with_config().limit(MOST_BYTES).reader();
    io::copy(&mut body, &mut part.file).map_err(|error| Wrong::Server(error.to_string()))?;
    if check(&part.path(), build_id, None).is_err() {
        return Err(Wrong::Server("it has sent something that is no debug file of the module".into()));
    }
    part.keep(file).map_err(Wrong::Cache)
}

/// Why there is no file.
enum Wrong {
    /// The server does not have it.
    Unknown,
    /// The server does not do what it should.
    Server(String),
    /// It cannot be kept.
    Cache(io::Error),
    /// Somebody has asked to stop.
    Interrupted,
}

/// The cache of debuginfod's clients.
fn cache() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let homes = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    set("DEBUGINFOD_CACHE_PATH").or_else(|| Some(homes()?.join("debuginfod_client")))
}
