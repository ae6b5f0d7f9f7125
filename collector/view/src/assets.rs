//! The page, which is in the program.

use axum::{
    http::{Uri, header},
    response::{IntoResponse, Response},
};

use crate::refusal::Refusal;

macro_rules! files {
    ($($name:literal),+ $(,)?) => { [$(($name, include_str!(concat!("../page/", $name)))),+] };
}

/// The files of the page.
const FILES: [(&str, &str); 22] = files![
    "index.html",
    "style.css",
    "address.js",
    "api.js",
    "calltree.js",
    "colour.js",
    "diff.js",
    "dom.js",
    "flame.js",
    "format.js",
    "help.js",
    "input.js",
    "layout.js",
    "live.js",
    "main.js",
    "painter.js",
    "panel.js",
    "sessions.js",
    "span.js",
    "table.js",
    "tiles.js",
    "timeline.js",
];

/// The file that an address names.
pub(crate) async fn file(uri: Uri) -> Response {
    let name = uri.path().trim_start_matches('/');
    let name = if name.is_empty() { "index.html" } else { name };
    let Some((_, text)) = FILES.iter().find(|(file, _)| *file == name) else {
        return Refusal::Missing("there is no such page".into()).into_response();
    };
    let kind = match name.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        _ => "text/html; charset=utf-8",
    };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], *text).into_response()
}
