//! The functions of a session, by how long they took.

mod bursts;
mod in_all;
mod ranking;
#[cfg(test)]
mod tests;
mod times;

pub use self::{
    bursts::Bursts,
    in_all::InAll,
    ranking::{Function, Ranking},
};
