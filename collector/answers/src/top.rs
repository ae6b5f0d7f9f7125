//! The functions of a session, by how long they took.

mod bursts;
mod in_all;
mod ranking;
mod rows;
#[cfg(test)]
mod tests;
mod times;

pub use self::{
    bursts::Bursts,
    in_all::InAll,
    ranking::{Function, Ranking},
    rows::{Order, Row, rank, rows, rows_telling},
};
