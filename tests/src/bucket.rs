//! An S3 server with a bucket, whose objects are files of a folder.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::{net::TcpListener, runtime::Runtime};

use crate::Folder;

const NAME: &str = "traces";
const KEY: &str = "key";
const SECRET: &str = "secret";

/// A real server, on a port of this machine, that ends when this is dropped.
#[derive(Debug)]
pub struct Bucket {
    folder: Folder,
    address: SocketAddr,
    _serving: Runtime,
}

impl Bucket {
    /// Starts a server that has one empty bucket.
    pub fn new() -> Self {
        let folder = Folder::new("bucket");
        fs::create_dir(folder.path().join(NAME)).expect("made");
        let mut service = S3ServiceBuilder::new(FileSystem::new(folder.path()).expect("a folder"));
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = service.build();
        let serving = Runtime::new().expect("threads");
        let listener = serving.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let address = listener.local_addr().expect("bound");
        serving.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    // A client that goes away is no fault of ours.
                    _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { folder, address, _serving: serving }
    }

    /// The address of a place in it.
    pub fn place(&self, prefix: &str) -> String {
        format!("s3://{NAME}/{prefix}")
    }

    /// Where its objects are.
    pub fn objects(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// What clients have in their environment.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_ACCESS_KEY_ID", KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.into()),
            ("AWS_REGION", "us-east-1".into()),
        ]
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Default for Bucket {
    fn default() -> Self {
        Self::new()
    }
}
