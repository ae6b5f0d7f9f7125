//! SQL over sessions: tables of what their manifests and their `spans.parquet` hold, with DataFusion.
//!
//! Which sessions a question is about is decided by their names and by the heads of their manifests, before any of their tables is opened.
//! Without the feature `engine`, nothing is here.

#![forbid(unsafe_code)]
#![cfg(feature = "engine")]

mod archive;
mod ask;
mod choice;
mod csv;
mod form;
mod json;
mod listing;
mod notes;
mod rows;
mod spans;
mod text;

pub use self::{
    ask::{AskError, Question, ask},
    form::Form,
    notes::Notes,
};
