//! What every sink must do, and what each does beside that.

mod conformance;
mod disk;
mod events;
mod heph;
mod killed;
mod scene;
mod subject;
