//! One line of JSON, written by hand: a serializer would need a value of each event first.

use std::io::Write;

use crate::{Ended, Session};

/// A line that is being written: the object is open, and something is in it.
pub(crate) struct Line<'b> {
    pub(crate) to: &'b mut Vec<u8>,
}

impl<'b> Line<'b> {
    /// What a session is.
    pub(crate) fn session(to: &'b mut Vec<u8>, session: &Session) {
        let mut line = Self::start(to, "session", &session.name);
        let catalog = session.catalog();
        let process = catalog.session();
        if let Some(id) = process.map(|process| process.id).or(session.id) {
            line.text("id", &id.to_string());
        }
        line.text("source", &session.source);
        line.number("seen_unix_ns", session.seen_unix_ns);
        if let Some(process) = process {
            line.number("pid", process.pid.into());
            line.text("host", &process.host);
            line.text("arch", process.arch.name());
            line.text("os", process.os.name());
            line.text("executable", &process.executable);
        }
        line.close();
    }

    /// How a session ended.
    pub(crate) fn end(to: &'b mut Vec<u8>, session: &Session, ended: &Ended) {
        let mut line = Self::start(to, "end", &session.name);
        line.text("how", &ended.end.how);
        if let Some(code) = ended.end.code {
            line.name("code");
            line.integer(code);
        }
        if let Some(at) = ended.end.at_ns {
            line.number("at_ns", at);
        }
        line.close();
    }

    /// The start of a line of this type.
    pub(crate) fn start(to: &'b mut Vec<u8>, kind: &str, session: &str) -> Self {
        to.extend_from_slice(b"{\"type\":");
        let mut line = Self { to };
        line.quoted(kind);
        line.text("session", session);
        line
    }

    pub(crate) fn close(self) {
        self.to.extend_from_slice(b"}\n");
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.quoted(value);
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.integer(value);
    }

    /// The names are ours, and need no escapes.
    pub(crate) fn name(&mut self, name: &str) {
        self.to.extend_from_slice(b",\"");
        self.to.extend_from_slice(name.as_bytes());
        self.to.extend_from_slice(b"\":");
    }

    pub(crate) fn quoted(&mut self, text: &str) {
        let _ = serde_json::to_writer(&mut *self.to, text);
    }

    pub(crate) fn integer(&mut self, value: impl Into<serde_json::Number>) {
        let _ = serde_json::to_writer(&mut *self.to, &value.into());
    }

    pub(crate) fn list<T>(&mut self, values: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Self, T)) {
        self.to.push(b'[');
        for (at, value) in values.into_iter().enumerate() {
            if at > 0 {
                self.to.push(b',');
            }
            write(self, value);
        }
        self.to.push(b']');
    }

    pub(crate) fn float(&mut self, value: f64) {
        if value.is_finite() {
            // Nothing that is written to memory fails.
            let _ = serde_json::to_writer(&mut *self.to, &value);
        } else {
            let _ = write!(self.to, "\"{value}\"");
        }
    }
}
