//! What every sink must do, and what each does beside that.

mod conformance;
mod disk;
mod documents;
mod events;
mod heph;
mod killed;
mod scene;
mod spans;
mod subject;
