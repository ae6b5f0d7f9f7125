//! The functions of the last seconds, as a running collector tells them.

use std::fmt::Write;

use answers::live::{LiveRow, Seen};
use anyhow::Result;
use serde_json::Value;

use super::live::FUNCTIONS;
use crate::{
    args::{TopArgs, TopOrder},
    asking::{Place, Viewer},
};

/// A session that a collector tells of.
pub(super) struct Remote {
    viewer: Viewer,
    /// Its name, once it is known which it is.
    session: Option<String>,
    /// What of it is asked for.
    query: String,
}

impl Remote {
    /// Asks to be let in.
    pub(super) fn open(place: Place, args: &TopArgs) -> Result<Self> {
        let (viewer, filter) = (Viewer::enter(place, &args.asking)?, &args.filter);
        let order = match args.sort {
            TopOrder::Own => "self",
            TopOrder::Count => "count",
            _ => "total",
        };
        // A screen may have more lines.
        let limit = filter.limit.unwrap_or(FUNCTIONS * 10);
        let mut query = format!("?sort={order}&limit={limit}&last={}", args.last.0.as_nanos());
        let texts = [
            ("process", &filter.process),
            ("thread", &filter.thread),
            ("module", &filter.module),
            ("function", &filter.function),
            ("depth", &filter.depth.map(|depth| depth.to_string())),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                query += &format!("&{key}={}", escaped(text));
            }
        }
        Ok(Self { viewer, session: None, query })
    }

    /// Asks for it again: for the same session from the first time on.
    pub(super) fn look(&mut self) -> Result<Seen> {
        let path = match &self.session {
            Some(name) => format!("/api/s/{}/hot{}", escaped(name), self.query),
            None => format!("/api/hot{}", self.query),
        };
        let told = self.viewer.ask(&path)?;
        self.session = self.session.take().or_else(|| told["name"].as_str().map(ToOwned::to_owned));
        Ok(seen(&told))
    }

    /// Where it is.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.viewer.place(), self.session.as_deref().unwrap_or_default())
    }
}

/// What was told.
fn seen(told: &Value) -> Seen {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let rows = told["rows"].as_array().into_iter().flatten().map(|row| LiveRow {
        name: text(&row["function"]).unwrap_or_default(),
        module: text(&row["module"]),
        calls: number(&row["count"]),
        total_ns: number(&row["total_ns"]),
        self_ns: number(&row["self_ns"]),
    });
    Seen {
        rows: rows.collect(),
        at_ns: number(&told["at_ns"]),
        span_ns: number(&told["span_ns"]),
        idle_ns: number(&told["idle_ns"]),
        events: number(&told["events"]),
        missing: number(&told["missing"]),
        missing_in_all: number(&told["missing_in_all"]),
        is_behind: told["behind"] == true,
        ended: text(&told["ended"]),
        turned_down: usize::try_from(number(&told["turned_down"])).unwrap_or(usize::MAX),
    }
}

/// A text as a part of an address.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => escaped.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => _ = write!(escaped, "%{byte:02X}"),
        }
    }
    escaped
}
