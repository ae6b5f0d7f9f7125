//! Why a request is not answered with what it asks for.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// What is said instead of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It cannot be asked like this.
    Wrong(String),
    /// There is no such thing, or not any more.
    Missing(String),
    /// It asks for too much at once.
    TooMuch(String),
    /// It is being made, so many hundredths of it are done.
    Making(u32),
    /// Too many ask at once.
    Busy,
    /// It cannot be read.
    Broken(String),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Wrong(_) => StatusCode::BAD_REQUEST,
            Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::TooMuch(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Making(_) | Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Wrong(words) | Self::Missing(words) | Self::TooMuch(words) | Self::Broken(words) => words.clone(),
            Self::Making(percent) => format!("what this needs is being made: {percent} %"),
            Self::Busy => "too many ask at once: try again".into(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let progress = if let Self::Making(percent) = self { Some(percent) } else { None };
        let mut response =
            (self.status(), json(&json!({ "error": self.words(), "progress": progress }))).into_response();
        if matches!(self, Self::Making(_) | Self::Busy) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// An answer in JSON.
pub(crate) fn json(value: &serde_json::Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], value.to_string())
        .into_response()
}
