//! Checks of the repository itself, and end-to-end tests of its commands.

#![forbid(unsafe_code)]
