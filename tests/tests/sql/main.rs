//! `collector sql`, with sessions that the collector has recorded.

#![forbid(unsafe_code)]

mod answers;
mod bucket;
mod page;
mod pruning;
mod recorded;
