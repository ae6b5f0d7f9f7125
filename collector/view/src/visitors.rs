//! Who is connected: each has a task of its own, and nobody keeps others out.
//!
//! Who has not shown the token may be anybody: one that is half open, that does not encrypt, that asks for nothing. Of those
//! there are so many at most, and the one that has been there longest leaves for the next. Who has shown it stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::Router;
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig, server::TlsStream};

/// How many may be connected that have not shown the token.
const STRANGERS: usize = 256;

/// How many may be connected that have.
const KNOWN: usize = 1024;

/// How long it may take to encrypt.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// How long the head of a request may take, also the next one of a connection that rests.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// How long somebody who does not encrypt is listened to, so that it hears why it gets no answer.
const LAST_TIME: Duration = Duration::from_secs(1);

/// What a TLS connection begins with. No request does.
const TLS_START: u8 = 0x16;

/// What those are told that do not encrypt.
const ENCRYPTED_ONLY: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n\
                              {\"error\":\"this port is encrypted: its address begins with https\"}";

/// All that are connected.
#[derive(Debug, Default)]
struct Visitors(Mutex<Connected>);

#[derive(Debug, Default)]
struct Connected {
    next: u64,
    /// What tells a stranger to leave, by when it came.
    strangers: BTreeMap<u64, Arc<Notify>>,
    known: BTreeSet<u64>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Visitor {
    number: u64,
    leave: Arc<Notify>,
    visitors: Arc<Visitors>,
}

impl Visitors {
    fn lock(&self) -> MutexGuard<'_, Connected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody has come. Another may have to leave.
    fn welcome(self: &Arc<Self>) -> Visitor {
        let (mut connected, leave) = (self.lock(), Arc::<Notify>::default());
        let number = connected.next;
        connected.next += 1;
        connected.strangers.insert(number, Arc::clone(&leave));
        if connected.strangers.len() > STRANGERS
            && let Some((_, oldest)) = connected.strangers.pop_first()
        {
            oldest.notify_one();
        }
        Visitor { number, leave, visitors: Arc::clone(self) }
    }
}

impl Visitor {
    /// It has shown the token. Whether it may stay: not where too many do.
    pub(crate) fn is_known(&self) -> bool {
        let mut connected = self.visitors.lock();
        if !connected.strangers.contains_key(&self.number) {
            return true;
        }
        let has_room = connected.known.len() < KNOWN;
        if has_room {
            connected.strangers.remove(&self.number);
            connected.known.insert(self.number);
        }
        has_room
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let mut connected = self.visitors.lock();
        connected.strangers.remove(&self.number);
        connected.known.remove(&self.number);
    }
}

/// Answers those who connect, until this is dropped.
pub(crate) async fn serve(listener: TcpListener, tls: Option<Arc<ServerConfig>>, routes: Router) -> Infallible {
    let (visitors, tls) = (Arc::<Visitors>::default(), tls.map(TlsAcceptor::from));
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tasks.spawn(visit(stream, tls.clone(), visitors.welcome(), routes.clone()));
                }
                // Too many open files, or one that was gone already. Others will come.
                Err(_) => sleep(Duration::from_millis(50)).await,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Answers one to its end, or until it has to leave.
async fn visit(stream: TcpStream, tls: Option<TlsAcceptor>, visitor: Visitor, routes: Router) {
    // Without it, answers come a little later.
    _ = stream.set_nodelay(true);
    let visitor = Arc::new(visitor);
    let answer = async {
        match tls {
            None => talk(stream, &visitor, routes).await,
            Some(tls) => {
                if let Ok(Ok(stream)) = timeout(HANDSHAKE_TIME, shake_hands(tls, stream)).await {
                    talk(stream, &visitor, routes).await;
                }
            }
        }
    };
    tokio::select! {
        () = answer => {}
        () = visitor.leave.notified() => {}
    }
}

/// Encrypts. Who does not is told so.
async fn shake_hands(tls: TlsAcceptor, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let mut start = [0];
    if stream.peek(&mut start).await? == 1 && start != [TLS_START] {
        let last = async {
            stream.write_all(ENCRYPTED_ONLY.as_bytes()).await?;
            stream.shutdown().await?;
            // Where something is left unread, the system ends the connection before this was read.
            while stream.read(&mut [0; 4096]).await? > 0 {}
            Ok::<_, io::Error>(())
        };
        _ = timeout(LAST_TIME, last).await;
        return Err(io::ErrorKind::InvalidData.into());
    }
    tls.accept(stream).await
}

/// Answers requests.
async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, visitor: &Arc<Visitor>, routes: Router) {
    let routes = TowerToHyperService::new(routes);
    let answer = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(visitor));
        routes.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    // However it ends, it has.
    _ = http.serve_connection(TokioIo::new(stream), answer).await;
}
