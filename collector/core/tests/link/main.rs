//! The collector's core at the end of a link that loses, repeats and reorders, in simulated time.

mod agent;
mod asks;
mod cases;
mod delivery;
mod hostile;
mod ledger;
mod names;
mod plain;
mod restarts;
mod schedules;
