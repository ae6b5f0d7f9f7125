//! The span engine: what the specifications ask for, clause by clause, and thousands of random executions.

mod bounds;
mod document;
mod gcd;
mod leaving;
mod live;
mod model;
mod pthread;
mod random;
mod script;
mod span_modeling;
mod swift;
