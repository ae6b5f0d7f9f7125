//! What users of the codec rely on, tested from outside.

mod atf_files;
mod damage;
mod datagrams;
mod documents;
mod errors;
mod fixtures;
mod fuzzing;
mod generate;
mod goldens;
mod round_trips;
mod runs;
mod streams;
