//! What answers requests.

use std::{collections::HashMap, convert::Infallible, io, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, Query, State},
    http::HeaderMap,
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore, task::spawn_blocking};

use crate::{
    Options,
    asked::Asked,
    assets, boxes,
    exact::Exact,
    export, functions,
    guard::{self, Guard},
    hot::Hot,
    library::Library,
    live,
    loaded::Loaded,
    looks,
    refusal::{Refusal, json},
    shelf::Shelf,
    tables, visitors,
};

/// How many read files at a time.
const READERS: usize = 4;

/// How many pages are told of changes.
const SEATS: usize = 128;

/// How long an answer waits for an overview that is being made: small ones are there at once.
const PATIENCE: Duration = Duration::from_millis(400);

/// Everything that answers need.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) library: Arc<Library>,
    pub(crate) shelf: Shelf,
    pub(crate) exact: Exact,
    pub(crate) seats: Arc<Semaphore>,
    pub(crate) writers: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    guard: Arc<Guard>,
    hot: Arc<Hot>,
}

/// The part behind `?`.
type Queried = Query<HashMap<String, String>>;
type Shared = State<Arc<Server>>;
type Answer = Result<Response, Refusal>;

/// Answers those who connect, until this is dropped.
pub(crate) async fn serve(listener: TcpListener, options: Options) -> io::Result<Infallible> {
    let port = listener.local_addr()?.port();
    let guard = Arc::new(Guard::new(port, options.tls.is_some(), options.names, options.token));
    let library = Arc::new(Library::new(options.dir));
    let server = Arc::new(Server {
        exact: Exact::new(Arc::clone(&library), options.config.clone()),
        shelf: Shelf::new(Arc::clone(&library), options.config),
        library,
        seats: Arc::new(Semaphore::new(SEATS)),
        writers: Arc::new(Semaphore::new(export::WRITERS)),
        readers: Arc::new(Semaphore::new(READERS)),
        guard: Arc::clone(&guard),
        hot: Arc::default(),
    });
    let routes = Router::new()
        .route("/api/enter", get(enter))
        .route("/api/sessions", get(sessions))
        .route("/api/live", get(live))
        .route("/api/hot", get(hottest))
        .route("/api/diff", get(diff))
        .route("/api/s/{name}/meta", get(meta))
        .route("/api/s/{name}/hot", get(hot))
        .route("/api/s/{name}/top", get(top))
        .route("/api/s/{name}/perfetto", get(perfetto))
        .route("/api/s/{name}/{what}", get(session))
        .fallback(assets::file)
        .layer(from_fn_with_state(guard, guard::watch))
        .with_state(server);
    Ok(visitors::serve(listener, options.tls, routes).await)
}

impl Server {
    /// Does something that reads files, when it is its turn.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = Arc::clone(&self.readers).acquire_owned().await.map_err(|_| Refusal::Busy)?;
        let done = spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.unwrap_or_else(|_| Err(Refusal::Broken("this cannot be answered".into())))
    }

    /// Looks into the overview of a session.
    async fn ask<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce(&Loaded) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let loaded = self.shelf.get(name, PATIENCE).await?;
        self.read(move || work(&loaded)).await
    }
}

async fn enter(State(server): Shared, headers: HeaderMap) -> Response {
    server.guard.enter(&headers)
}

async fn sessions(State(server): Shared) -> Answer {
    let library = Arc::clone(&server.library);
    Ok(json(&*server.read(move || Ok(library.list())).await?))
}

async fn live(State(server): Shared, Query(mut query): Queried) -> Answer {
    live::answer(server, query.remove("session"))
}

async fn diff(State(server): Shared, Query(query): Queried) -> Answer {
    Ok(json(&functions::diff(&server, Asked(query)).await?))
}

async fn meta(State(server): Shared, Path(name): Path<String>) -> Answer {
    let described: Result<Value, Refusal> = server.ask(&name, |loaded| Ok(loaded.describe())).await;
    match described {
        Err(Refusal::Making(percent)) => Ok(json(&json!({ "ready": false, "name": name, "progress": percent }))),
        described => Ok(json(&described?)),
    }
}

async fn hot(State(server): Shared, Path(name): Path<String>, Query(query): Queried) -> Answer {
    let (library, hot) = (Arc::clone(&server.library), Arc::clone(&server.hot));
    let look = move || hot.look(&library.find(&name)?, &Asked(query));
    Ok(json(&server.read(look).await?))
}

/// The same of the session that is meant: of a process, or the latest.
async fn hottest(State(server): Shared, Query(query): Queried) -> Answer {
    let (library, hot) = (Arc::clone(&server.library), Arc::clone(&server.hot));
    let look = move || {
        let asked = Asked(query);
        hot.look(&library.chosen(asked.text("process"))?, &asked)
    };
    Ok(json(&server.read(look).await?))
}

async fn top(State(server): Shared, Path(name): Path<String>, Query(query): Queried) -> Answer {
    Ok(json(&functions::top(&server, &name, Asked(query)).await?))
}

async fn perfetto(State(server): Shared, Path(name): Path<String>, Query(query): Queried) -> Answer {
    export::answer(&server, name, Asked(query)).await
}

async fn session(State(server): Shared, Path((name, what)): Path<(String, String)>, Query(query): Queried) -> Answer {
    let asked = Asked(query);
    let answer = move |loaded: &Loaded| match what.as_str() {
        "boxes" => boxes::answer(loaded, &asked),
        "tree" | "callers" | "callees" => tables::tree(loaded, &asked, &what).map(|value| json(&value)),
        "span" => looks::span(loaded, &asked).map(|value| json(&value)),
        "find" => looks::find(loaded, &asked).map(|value| json(&value)),
        _ => Err(Refusal::Missing("nobody answers that".into())),
    };
    Ok(server.ask(&name, answer).await?.into_response())
}
