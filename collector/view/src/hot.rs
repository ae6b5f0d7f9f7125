//! The functions of the last seconds of a session that is being recorded, told without its overview.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use answers::{filter::Wanted, live::Live};
use serde_json::{Value, json};

use crate::{asked::Asked, refusal::Refusal};

/// Of how long they are told, in ns.
const LAST_NS: u64 = 5_000_000_000;

/// How long what was told is told again, and after which time nobody asks any more.
const FRESH: Duration = Duration::from_millis(400);
const FORGOTTEN: Duration = Duration::from_secs(30);

/// How many sessions are looked at.
const MOST: usize = 16;

/// The sessions that are looked at, by their directories.
#[derive(Debug, Default)]
pub(crate) struct Hot(Mutex<HashMap<PathBuf, Arc<Mutex<Watch>>>>);

/// One of them.
#[derive(Debug)]
struct Watch {
    live: Live,
    told: Value,
    at: Option<Instant>,
}

impl Hot {
    /// What a session did in its last seconds, those that took most first.
    pub(crate) fn look(&self, dir: &Path, asked: &Asked) -> Result<Value, Refusal> {
        let limit = asked.limit(200, 2_000)?;
        let broken = |error: anyhow::Error| Refusal::Broken(format!("{error:#}"));
        let watch = self.watch(dir).map_err(broken)?;
        let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if watch.at.is_none_or(|at| now.saturating_duration_since(at) >= FRESH) {
            let mut seen = watch.live.look(now).map_err(broken)?;
            seen.rows.sort_by(|a, b| (b.total_ns, b.calls, &a.name).cmp(&(a.total_ns, a.calls, &b.name)));
            let rows = seen.rows.iter().take(limit).map(|row| {
                json!({
                    "function": row.name, "module": row.module, "count": row.calls, "total_ns": row.total_ns,
                    "self_ns": row.self_ns,
                })
            });
            let rows: Vec<_> = rows.collect();
            watch.told = json!({
                "of": seen.rows.len(), "rows": rows, "at_ns": seen.at_ns, "span_ns": seen.span_ns, "events": seen.events,
                "missing": seen.missing, "behind": seen.is_behind, "ended": seen.ended,
            });
            watch.at = Some(now);
        }
        Ok(watch.told.clone())
    }

    fn watch(&self, dir: &Path) -> anyhow::Result<Arc<Mutex<Watch>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = all.get(dir) {
            return Ok(Arc::clone(watch));
        }
        // Who is being looked at now has a lock.
        all.retain(|_, watch| watch.try_lock().map_or(true, |one| one.at.is_none_or(|at| at.elapsed() < FORGOTTEN)));
        if all.len() >= MOST {
            all.clear();
        }
        let live = Live::open(dir, &Wanted::default(), LAST_NS)?;
        let watch = Arc::new(Mutex::new(Watch { live, told: Value::Null, at: None }));
        all.insert(dir.into(), Arc::clone(&watch));
        Ok(watch)
    }
}
