//! A certificate that is read again when its files have changed.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result};
use codec::access::Pin;
use rustls::{
    crypto::CryptoProvider,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tracing::warn;

use super::certificate::Files;

/// How often the files are looked at, at most.
const EVERY: Duration = Duration::from_millis(500);

/// The certificate in two files. Where what they have now cannot be used, it stays as it was.
#[derive(Debug)]
pub(super) struct Renewed {
    files: Files,
    provider: Arc<CryptoProvider>,
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    looked: Instant,
    stamps: [Stamp; 2],
    key: Arc<CertifiedKey>,
}

/// What tells whether a file has changed: which it is, its size, and when it was written.
type Stamp = Option<(u64, u64, SystemTime)>;

impl Renewed {
    /// Reads it for the first time.
    pub(super) fn read(files: Files, provider: Arc<CryptoProvider>) -> Result<(Self, Pin)> {
        let (looked, stamps) = (Instant::now(), stamps(&files));
        let (key, pin) = load(&files, &provider)?;
        Ok((Self { files, provider, last: Mutex::new(Last { looked, stamps, key }) }, pin))
    }

    /// As it is now.
    fn current(&self) -> Arc<CertifiedKey> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.looked.elapsed() >= EVERY {
            last.looked = Instant::now();
            let stamps = stamps(&self.files);
            if stamps != last.stamps {
                last.stamps = stamps;
                match load(&self.files, &self.provider) {
                    Ok((key, _)) => last.key = key,
                    // One of them may be written before the other.
                    Err(error) => warn!("the viewer's certificate stays as it was: {error:#}"),
                }
            }
        }
        Arc::clone(&last.key)
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn load(files: &Files, provider: &CryptoProvider) -> Result<(Arc<CertifiedKey>, Pin)> {
    let (chain, key, pin) = files.read()?;
    let key = CertifiedKey::from_der(chain, key, provider).with_context(|| files.to_string())?;
    Ok((Arc::new(key), pin))
}

fn stamps(files: &Files) -> [Stamp; 2] {
    let stamp = |file: &Path| {
        let data = fs::metadata(file).ok()?;
        Some((data.ino(), data.len(), data.modified().ok()?))
    };
    [stamp(&files.certificate), stamp(&files.key)]
}
