//! Spans as their readers see them: the files that sinks write, read by the programs of others.

mod after;
mod chrome;
mod damage;
mod family;
mod filters;
mod folded;
mod offline;
mod parquet;
mod perfetto;
mod picture;
mod questions;
mod screen;
mod swift_names;
mod view;
mod view_large;
mod view_live;
mod view_told;
mod viewer;
