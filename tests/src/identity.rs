//! Certificates and tokens, in files.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use codec::access::{Pin, Secret};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use ring::digest::{SHA256, digest};
use tunnel::{Setup, Trust};

use crate::{Folder, Transport};

/// An authority, what it has issued, and tokens.
///
/// `collector`, `expired` and `agent` are certificates, `NAME.pem` and `NAME.key`; `ca.pem` is their authority and
/// `other-ca.pem` another. `token` and `other-token` are tokens.
#[derive(Debug)]
pub struct Identity {
    folder: Folder,
    pin: Pin,
}

/// The token of collectors.
pub const TOKEN: &str = "a token that must be nowhere to be found";

impl Identity {
    /// All of them, made anew.
    #[track_caller]
    pub fn new() -> Self {
        let folder = Folder::new("identity");
        let [authority, _] = ["ca", "other-ca"].map(|name| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate");
            write(&folder.join(&format!("{name}.pem")), &authority.pem());
            authority
        });
        let [pin, ..] = ["collector", "expired", "agent"].map(|name| {
            let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).expect("a name");
            if name == "expired" {
                (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
            }
            let key = KeyPair::generate().expect("a key");
            let certificate = params.signed_by(&key, &authority).expect("a certificate");
            write(&folder.join(&format!("{name}.pem")), &certificate.pem());
            write(&folder.join(&format!("{name}.key")), &key.serialize_pem());
            let hash = digest(&SHA256, certificate.der());
            Pin(hash.as_ref().try_into().expect("32 bytes"))
        });
        write(&folder.join("token"), &format!("{TOKEN}\n"));
        write(&folder.join("other-token"), "another token");
        Self { folder, pin }
    }

    /// One of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The same for a command line.
    pub fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// What the collector's certificate is known by.
    pub fn pin(&self) -> Pin {
        self.pin
    }

    /// The arguments of a collector that has this certificate.
    pub fn certified(&self, name: &str) -> Vec<String> {
        let [certificate, key] = [".pem", ".key"].map(|end| self.path(&format!("{name}{end}")));
        vec!["--tls-cert".into(), certificate, "--tls-key".into(), key]
    }

    /// The arguments of a collector that wants to see the token, too.
    pub fn guarded(&self) -> Vec<String> {
        [self.certified("collector"), vec!["--token-file".into(), self.path("token")]].concat()
    }

    /// An agent that trusts the authority and shows the token.
    pub fn setup(&self, transport: Transport) -> Setup {
        Setup {
            transport,
            trust: Trust::Authority(self.file("ca.pem")),
            name: "127.0.0.1".into(),
            identity: None,
            token: Some(self.token("token")),
        }
    }

    /// The token in a file.
    #[track_caller]
    pub fn token(&self, name: &str) -> Secret {
        Secret::from_file(&fs::read(self.file(name)).expect("a file"), 0o600).expect("a token")
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes a file that nobody else may read.
fn write(file: &Path, text: &str) {
    let mut options = fs::OpenOptions::new();
    let mut opened = options.write(true).create(true).mode(0o600).open(file).expect("a folder");
    opened.write_all(text.as_bytes()).expect("room");
}
