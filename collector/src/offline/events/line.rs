//! An event as a line, for people or as JSON.

use std::io::Write;

use anyhow::{Context, Result};
use codec::{
    EventKind,
    atf::{DetailBody, GapEntry},
    heph::{Attributes, Value},
};
use serde_json::{Map, Value as Json, json};

use crate::offline::{printable, scan::Raw, trace::Trace};

/// Writes lines.
pub(super) struct Line<'a> {
    pub(super) trace: &'a Trace,
    /// The time that people's times are counted from.
    pub(super) zero: u64,
    pub(super) json: bool,
}

impl Line<'_> {
    pub(super) fn event(&self, out: &mut Vec<u8>, raw: Raw<'_>) -> Result<()> {
        let Raw { stream, position, event, details } = raw;
        let mut more = Map::new();
        for detail in details {
            let file = || self.trace.thread_dir(stream).join("detail.atf").display().to_string();
            enter(&mut more, &detail.with_context(file)?.body);
        }
        let name = self.trace.function_name(event.function);
        if self.json {
            let mut object = json!({
                "type": "event",
                "stream": stream,
                "position": position,
                "timestamp_ns": event.timestamp.0,
                "kind": event.kind.description(),
                "fn": event.function.to_string(),
                "depth": event.depth,
            });
            if let Json::Object(object) = &mut object {
                if let Some(name) = name {
                    object.insert("function".into(), name.into());
                }
                if let Some(path) = self.trace.module_path(event.function) {
                    object.insert("module".into(), path.into());
                }
                object.append(&mut more);
            }
            writeln!(out, "{object}")?;
            return Ok(());
        }
        let since = event.timestamp.0.saturating_sub(self.zero);
        let arrow = match event.kind {
            EventKind::Call => "→",
            EventKind::Return => "←",
            EventKind::Exception => "⇐",
        };
        let indent = usize::try_from(event.depth).unwrap_or(0).min(40) * 2;
        let id = event.function.to_string();
        let name = printable(name.unwrap_or(&id));
        write!(
            out,
            "{:>6}.{:09}  {stream:>4}  {:indent$}{arrow} {name}",
            since / 1_000_000_000,
            since % 1_000_000_000,
            ""
        )?;
        if let Some(attributes) = more.get("attributes") {
            write!(out, " {}", printable(&attributes.to_string()))?;
        }
        writeln!(out)?;
        Ok(())
    }

    pub(super) fn gap(&self, out: &mut Vec<u8>, gap: &GapEntry) -> Result<()> {
        if self.json {
            let object = json!({
                "type": "gap",
                "stream": gap.thread,
                "position": gap.first,
                "count": gap.count,
                "cause": gap.cause,
            });
            writeln!(out, "{object}")?;
        } else {
            let cause = printable(&gap.cause);
            writeln!(out, "{:>16}  {:>4}  … {} events missing: {cause}", "", gap.thread, gap.count)?;
        }
        Ok(())
    }
}

fn enter(more: &mut Map<String, Json>, body: &DetailBody<'_>) {
    match body {
        DetailBody::Call(detail) | DetailBody::Return(detail) => {
            more.insert("registers".into(), detail.registers.to_words().to_vec().into());
            let stack: String = detail.stack.iter().map(|byte| format!("{byte:02x}")).collect();
            if !stack.is_empty() {
                more.insert("stack".into(), stack.into());
            }
        }
        DetailBody::Keys(keys) => {
            more.insert("start_ns".into(), keys.start.0.into());
            more.insert("end_ns".into(), keys.end.0.into());
            more.insert("substream".into(), keys.substream.0.into());
            more.insert("attributes".into(), attributes(&keys.attributes));
        }
        DetailBody::Context(context) => {
            more.insert("substream".into(), context.substream.0.into());
            more.insert("start_ns".into(), context.start.0.into());
        }
        DetailBody::Other { kind, payload } => {
            more.insert(format!("detail_{kind}"), payload.len().into());
        }
    }
}

fn attributes(attributes: &Attributes<'_>) -> Json {
    Json::Object(attributes.iter().map(|attribute| (attribute.name.to_owned(), value(&attribute.value))).collect())
}

fn value(value: &Value<'_>) -> Json {
    match value {
        Value::U64(value) => (*value).into(),
        Value::I64(value) => (*value).into(),
        Value::F64(value) => float(*value),
        Value::Str(value) => (*value).into(),
        Value::U64s(values) => values.iter().collect::<Vec<_>>().into(),
        Value::I64s(values) => values.iter().collect::<Vec<_>>().into(),
        Value::F64s(values) => values.iter().map(float).collect(),
        Value::Strs(values) => values.iter().collect::<Vec<_>>().into(),
    }
}

/// JSON has no numbers for these.
fn float(value: f64) -> Json {
    if value.is_finite() { value.into() } else { value.to_string().into() }
}
