//! What an operator reads: `tracing` events, as plain lines or as JSON.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::ValueEnum;
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    Layer, Registry,
    filter::LevelFilter,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

use crate::notices::Notices;

/// The least important events that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
}

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// The message alone.
    Text,
    /// A JSON object a line, with level, time, and what the event is about.
    Json,
}

/// Sends everything that is logged from now on to standard error.
pub(crate) fn start(level: LogLevel, format: LogFormat, notices: &Arc<Notices>) {
    let level = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let lines = Lines { notices: Arc::clone(notices), format };
    // Others' events are for those who work on their crates.
    let ours = tracing_subscriber::filter::filter_fn(|metadata| {
        ["collector", "fleet"].iter().any(|ours| metadata.target().starts_with(ours))
    });
    let subscriber = Registry::default().with(lines.with_filter(level).with_filter(ours));
    // There is one in a process, and it is set once.
    _ = tracing::subscriber::set_global_default(subscriber);
}

/// Makes lines of events.
struct Lines {
    notices: Arc<Notices>,
    format: LogFormat,
}

/// What an event or span says.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => _ = self.others.insert(name.into(), format!("{value:?}").into()),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.insert(field.name().into(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.into(),
            name => _ = self.others.insert(name.into(), value.into()),
        }
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if self.format == LogFormat::Text {
            return self.notices.print(fields.message);
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut line = Map::new();
        line.insert("time_unix_ns".into(), u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).into());
        line.insert("level".into(), level_name(event.metadata().level()).into());
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(about) = span.extensions().get::<Fields>() {
                line.extend(about.others.clone());
            }
        }
        line.extend(fields.others);
        line.insert("message".into(), fields.message.into());
        self.notices.print(Value::Object(line).to_string());
    }
}

fn level_name(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        _ => "debug",
    }
}
