//! The messages of OTLP that are written, with the numbers of their fields as `opentelemetry-proto` has them.

use std::borrow::Cow;

use crate::proto::Message;

use super::ids::Identity;

/// The request: resources, each with its scopes, each with its spans.
mod request {
    pub(super) const RESOURCE_SPANS: u32 = 1;
    pub(super) const RESOURCE: u32 = 1;
    pub(super) const SCOPE_SPANS: u32 = 2;
    pub(super) const SCHEMA_URL: u32 = 3;
    pub(super) const SCOPE: u32 = 1;
    pub(super) const SPANS: u32 = 2;
    pub(super) const SCOPE_NAME: u32 = 1;
    pub(super) const SCOPE_VERSION: u32 = 2;
    pub(super) const ATTRIBUTES: u32 = 1;
}

mod span {
    pub(super) const TRACE_ID: u32 = 1;
    pub(super) const SPAN_ID: u32 = 2;
    pub(super) const TRACE_STATE: u32 = 3;
    pub(super) const PARENT_SPAN_ID: u32 = 4;
    pub(super) const NAME: u32 = 5;
    pub(super) const KIND: u32 = 6;
    pub(super) const START: u32 = 7;
    pub(super) const END: u32 = 8;
    pub(super) const ATTRIBUTES: u32 = 9;
    pub(super) const EVENTS: u32 = 11;
    pub(super) const LINKS: u32 = 13;
    pub(super) const STATUS: u32 = 15;
    pub(super) const FLAGS: u32 = 16;

    pub(super) const INTERNAL: u64 = 1;
}

mod event {
    pub(super) const TIME: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const ATTRIBUTES: u32 = 3;
}

mod link {
    pub(super) const TRACE_ID: u32 = 1;
    pub(super) const SPAN_ID: u32 = 2;
    pub(super) const ATTRIBUTES: u32 = 4;
}

mod status {
    pub(super) const MESSAGE: u32 = 2;
    pub(super) const CODE: u32 = 3;

    pub(super) const ERROR: u64 = 2;
}

mod value {
    pub(super) const KEY: u32 = 1;
    pub(super) const VALUE: u32 = 2;
    pub(super) const STRING: u32 = 1;
    pub(super) const INT: u32 = 3;
    pub(super) const ARRAY: u32 = 5;
    pub(super) const VALUES: u32 = 1;
}

/// The version of the semantic conventions that names of attributes are from.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.34.0";

/// The value of an attribute.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Text(Cow<'a, str>),
    Number(u64),
    Texts(Vec<&'a str>),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

fn attribute(name: &str, value: &Value<'_>) -> Message {
    let mut inner = Message::new();
    match value {
        Value::Text(text) => _ = inner.text(value::STRING, text),
        // Beyond what a signed number holds, the nearest that it does.
        Value::Number(number) => _ = inner.number(value::INT, (*number).min(i64::MAX.unsigned_abs())),
        Value::Texts(texts) => {
            let mut list = Message::new();
            for text in texts {
                list.message(value::VALUES, Message::new().text(value::STRING, text));
            }
            inner.message(value::ARRAY, &list);
        }
    }
    let mut pair = Message::new();
    pair.text(value::KEY, name).message(value::VALUE, &inner);
    pair
}

/// What runs, by attributes.
#[derive(Debug, Default)]
pub(super) struct ResourceMessage(Message);

impl ResourceMessage {
    pub(super) fn attribute<'a>(&mut self, name: &str, value: impl Into<Value<'a>>) -> &mut Self {
        self.0.message(request::ATTRIBUTES, &attribute(name, &value.into()));
        self
    }

    /// The request that exports these spans, each as [`SpanMessage::write`] writes it.
    pub(super) fn request(&self, spans: &[u8]) -> Vec<u8> {
        let (mut scope, mut all, mut request) = (Message::new(), Message::new(), Message::new());
        scope.text(request::SCOPE_NAME, "spoor").text(request::SCOPE_VERSION, env!("CARGO_PKG_VERSION"));
        let mut scope_spans = Message::new();
        scope_spans.message(request::SCOPE, &scope).append(spans);
        all.message(request::RESOURCE, &self.0);
        all.message(request::SCOPE_SPANS, &scope_spans).text(request::SCHEMA_URL, SCHEMA_URL);
        request.message(request::RESOURCE_SPANS, &all);
        request.into_bytes()
    }
}

/// A span, but for its parent, which may be known last.
#[derive(Debug)]
pub(super) struct SpanMessage(Message);

impl SpanMessage {
    pub(super) fn new(identity: &Identity, id: [u8; 8], name: &str, start: u64, end: u64) -> Self {
        let mut message = Message::new();
        message.bytes(span::TRACE_ID, &identity.trace).bytes(span::SPAN_ID, &id).text(span::NAME, name);
        message.number(span::KIND, span::INTERNAL).fixed(span::START, start).fixed(span::END, end);
        if let Some(remote) = identity.remote {
            message.short(span::FLAGS, remote.flags.into());
            if !identity.state.is_empty() {
                message.text(span::TRACE_STATE, &identity.state);
            }
        }
        Self(message)
    }

    pub(super) fn attribute<'a>(&mut self, name: &str, value: impl Into<Value<'a>>) -> &mut Self {
        self.0.message(span::ATTRIBUTES, &attribute(name, &value.into()));
        self
    }

    /// Something that happened in it.
    pub(super) fn event<'a>(
        &mut self,
        name: &str,
        at: u64,
        attributes: impl IntoIterator<Item = (&'a str, Value<'a>)>,
    ) {
        let mut message = Message::new();
        message.fixed(event::TIME, at).text(event::NAME, name);
        for (name, value) in attributes {
            message.message(event::ATTRIBUTES, &attribute(name, &value));
        }
        self.0.message(span::EVENTS, &message);
    }

    /// Another span that it has to do with.
    pub(super) fn link(&mut self, trace: [u8; 16], id: [u8; 8], why: &str) {
        let mut message = Message::new();
        message.bytes(link::TRACE_ID, &trace).bytes(link::SPAN_ID, &id);
        message.message(link::ATTRIBUTES, &attribute("spoor.link", &why.into()));
        self.0.message(span::LINKS, &message);
    }

    /// It failed.
    pub(super) fn error(&mut self, why: &str) {
        let mut message = Message::new();
        message.text(status::MESSAGE, why).number(status::CODE, status::ERROR);
        self.0.message(span::STATUS, &message);
    }

    /// Writes it with its parent, as one of the spans of a request.
    pub(super) fn write(mut self, parent: Option<[u8; 8]>, out: &mut Vec<u8>) {
        if let Some(parent) = parent {
            self.0.bytes(span::PARENT_SPAN_ID, &parent);
        }
        self.0.write(request::SPANS, out);
    }
}
