//! The memory from both sides.
