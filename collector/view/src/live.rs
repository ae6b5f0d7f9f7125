//! Tells pages that something has changed. They ask for it then.

use std::{collections::hash_map::DefaultHasher, convert::Infallible, hash::Hasher, sync::Arc, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::{refusal::Refusal, server::Server};

/// How often it is told at most, and how often all sessions are looked at.
const PACE: Duration = Duration::from_millis(250);
const LISTED_EVERY: u32 = 4;

/// What is told to one page.
struct Feed {
    server: Arc<Server>,
    session: Option<String>,
    /// Keeps the place of the page among those that are told.
    _seat: tokio::sync::OwnedSemaphorePermit,
    next: Instant,
    turn: u32,
    /// What all sessions were like.
    listed: u64,
    told: Option<Value>,
}

/// `live`: an event whenever something has changed: a number that changes with the list of sessions, and of one session its
/// generation, its end, its events, what is missing, and how far its overview is.
pub(crate) fn answer(server: Arc<Server>, session: Option<String>) -> Result<Response, Refusal> {
    let seat = Arc::clone(&server.seats).try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let feed = Feed { server, session, _seat: seat, next: Instant::now(), turn: 0, listed: 0, told: None };
    let events = stream::unfold(feed, |mut feed| async move {
        let value = feed.change().await;
        Some((Ok::<_, Infallible>(Event::default().data(value.to_string())), feed))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

impl Feed {
    /// What is told next, when it is another than the last.
    async fn change(&mut self) -> Value {
        loop {
            sleep_until(self.next).await;
            self.next = Instant::now() + PACE;
            let with_list = self.turn.is_multiple_of(LISTED_EVERY);
            self.turn = self.turn.wrapping_add(1);
            let now = self.look(with_list).await;
            if self.told.as_ref() != Some(&now) {
                self.told = Some(now.clone());
                return now;
            }
        }
    }

    async fn look(&mut self, with_list: bool) -> Value {
        let mut session = Value::Null;
        if let Some(name) = self.session.clone() {
            let loaded = self.server.shelf.get(&name, Duration::ZERO).await;
            let library = Arc::clone(&self.server.library);
            let found = self.server.read(move || {
                let dir = library.find(&name)?;
                let (_, numbers) = library.numbers(&dir);
                Ok((dir, numbers))
            });
            session = match (found.await, loaded) {
                (Ok((dir, numbers)), loaded) => {
                    let progress = self.server.shelf.progress(&dir);
                    let (generation, end) = loaded
                        .map_or((None, None), |loaded| (Some(loaded.generation), Some(loaded.overview.range().1)));
                    json!({
                        "generation": generation, "end": end, "events": numbers.summary.events, "missing": numbers.summary.missing,
                        "rate": numbers.rate.round(), "finished": numbers.summary.is_finished, "progress": progress,
                    })
                }
                (Err(Refusal::Missing(words)), _) => json!({ "gone": words }),
                (Err(_), _) => Value::Null,
            };
        }
        if with_list {
            let library = Arc::clone(&self.server.library);
            let hash = self.server.read(move || {
                let mut hasher = DefaultHasher::new();
                hasher.write(library.list().to_string().as_bytes());
                Ok(hasher.finish() >> 12)
            });
            self.listed = hash.await.unwrap_or(self.listed);
        }
        json!({ "list": self.listed, "session": session })
    }
}
