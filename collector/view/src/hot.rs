//! The functions of the last seconds of a session that is being recorded, told without its overview.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use answers::{
    filter::Wanted,
    live::{Live, Seen},
    top::Order,
};
use serde_json::{Value, json};

use crate::{asked::Asked, refusal::Refusal};

/// Of how long they are told where nobody says, and of how long at most, in ns.
const LAST_NS: u64 = 5_000_000_000;
const MOST_NS: u64 = 600_000_000_000;

/// How long what was seen is told again, and after which time nobody asks any more.
const FRESH: Duration = Duration::from_millis(400);
const FORGOTTEN: Duration = Duration::from_secs(30);

/// How many sessions are looked at.
const MOST: usize = 16;

/// The sessions that are looked at.
#[derive(Debug, Default)]
pub(crate) struct Hot(Mutex<HashMap<Key, Arc<Mutex<Watch>>>>);

/// Which session is looked at, and what of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    dir: PathBuf,
    last_ns: u64,
    thread: Option<String>,
    module: Option<String>,
    function: Option<String>,
    depth: Option<u32>,
}

/// One of them.
#[derive(Debug)]
struct Watch {
    live: Live,
    seen: Option<(Instant, Seen)>,
}

impl Hot {
    /// What a session did in its last seconds, those that took most first.
    pub(crate) fn look(&self, dir: &Path, asked: &Asked) -> Result<Value, Refusal> {
        let (limit, order) = (asked.limit(200, usize::MAX)?, order(asked)?);
        let broken = |error: anyhow::Error| Refusal::Broken(format!("{error:#}"));
        let watch = self.watch(Key::new(dir, asked)?).map_err(broken)?;
        let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, name) =
            (Instant::now(), watch.live.dir().file_name().map(|name| name.to_string_lossy().into_owned()));
        let seen = match watch.seen.take().filter(|(at, _)| now.saturating_duration_since(*at) < FRESH) {
            Some(seen) => seen,
            None => (now, watch.live.look(now).map_err(broken)?),
        };
        let (_, seen) = watch.seen.insert(seen);
        let rows = seen.ranked(order, limit).into_iter().map(|row| {
            json!({
                "function": row.name, "module": row.module, "count": row.calls, "total_ns": row.total_ns,
                "self_ns": row.self_ns,
            })
        });
        let rows: Vec<_> = rows.collect();
        Ok(json!({
            "name": name, "of": seen.rows.len(), "rows": rows, "at_ns": seen.at_ns, "span_ns": seen.span_ns,
            "idle_ns": seen.idle_ns, "events": seen.events, "missing": seen.missing,
            "missing_in_all": seen.missing_in_all, "behind": seen.is_behind, "ended": seen.ended,
            "turned_down": seen.turned_down,
        }))
    }

    fn watch(&self, key: Key) -> anyhow::Result<Arc<Mutex<Watch>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = all.get(&key) {
            return Ok(Arc::clone(watch));
        }
        // Who is being looked at now has a lock.
        let is_asked = |watch: &Watch| watch.seen.as_ref().is_none_or(|(at, _)| at.elapsed() < FORGOTTEN);
        all.retain(|_, watch| watch.try_lock().map_or(true, |one| is_asked(&one)));
        if all.len() >= MOST {
            all.clear();
        }
        let live = Live::open(&key.dir, &key.wanted(), key.last_ns)?;
        let watch = Arc::new(Mutex::new(Watch { live, seen: None }));
        all.insert(key, Arc::clone(&watch));
        Ok(watch)
    }
}

impl Key {
    fn new(dir: &Path, asked: &Asked) -> Result<Self, Refusal> {
        let last_ns = asked.number("last")?.unwrap_or(LAST_NS);
        if last_ns > MOST_NS {
            return Err(Refusal::TooMuch(format!("`last` may be {MOST_NS} ns at most")));
        }
        let text = |key| asked.text(key).map(ToOwned::to_owned);
        let (thread, module, function) = (text("thread"), text("module"), text("function"));
        Ok(Self { dir: dir.into(), last_ns, thread, module, function, depth: asked.number("depth")? })
    }

    fn wanted(&self) -> Wanted {
        let Self { thread, module, function, depth, .. } = self.clone();
        Wanted { thread, module, function, depth, ..Wanted::default() }
    }
}

fn order(asked: &Asked) -> Result<Order, Refusal> {
    Ok(match asked.text("sort") {
        None | Some("total") => Order::Total,
        Some("self") => Order::Own,
        Some("count") => Order::Count,
        Some(_) => return Err(Refusal::Wrong("`sort` is total, self or count".into())),
    })
}
