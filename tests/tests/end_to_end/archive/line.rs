//! The way to a server: counted, and cut where a test wants it.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

/// A port that leads to another one. What goes through it is counted.
#[derive(Debug)]
pub(crate) struct Line {
    address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    /// Bytes that came back from the server.
    back: AtomicU64,
    /// How many more bytes may go to the server before everything stops.
    allowed: AtomicU64,
}

impl Line {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let counts = Arc::new(Counts { back: AtomicU64::new(0), allowed: AtomicU64::new(u64::MAX) });
        let counted = Arc::clone(&counts);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (Ok(server), counts) = (TcpStream::connect(server), Arc::clone(&counted)) else { continue };
                let (from, to) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                let counts_back = Arc::clone(&counts);
                thread::spawn(move || pass(from, to, |bytes| counts.goes_on(bytes)));
                thread::spawn(move || {
                    pass(server, client, |bytes| {
                        counts_back.back.fetch_add(bytes, Relaxed);
                        true
                    });
                });
            }
        });
        Self { address, counts }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many bytes came back from the server so far.
    pub(crate) fn back(&self) -> u64 {
        self.counts.back.load(Relaxed)
    }

    /// Lets only so many more bytes through to the server. Connections end there, in the middle of whatever they carry.
    pub(crate) fn allow(&self, bytes: u64) {
        self.counts.allowed.store(bytes, Relaxed);
    }

    /// Whether nothing goes through any more.
    pub(crate) fn is_cut(&self) -> bool {
        self.counts.allowed.load(Relaxed) == 0
    }
}

impl Counts {
    fn goes_on(&self, bytes: u64) -> bool {
        let take = |left: u64| Some(if left == u64::MAX { left } else { left.saturating_sub(bytes) });
        self.allowed.fetch_update(Relaxed, Relaxed, take).is_ok_and(|left| left >= bytes)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, goes_on: impl Fn(u64) -> bool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if !goes_on(read as u64) || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // The other end learns of it, too. One that is closed already is fine.
    _ = from.shutdown(Shutdown::Both);
    _ = to.shutdown(Shutdown::Both);
}
