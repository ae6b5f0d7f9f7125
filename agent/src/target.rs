//! Inside the traced program: what a hooked function runs into.
//!
//! ```text
//! function ─jmp→ stub ─call→ enter ─→ shadow stack, ring ─ret→ stub ─call→ copy of the first instructions ─jmp→ function
//! caller  ←ret─ leave ←jmp─ stub ←ret─ function
//! ```
//!
//! The stubs are made outside, see [`stub`](crate::stub). `enter` and `leave` are in assembly ([`routines`]); what is
//! not the common case they leave to [`slow`]. Nothing here allocates, locks, formats, or calls into libc, since any of
//! that may be what is being traced, and any thread may be stopped anywhere in it. Memory comes from the system
//! directly.
//!
//! | file | holds |
//! |---|---|
//! | [`routines`] | enter and leave, in assembly |
//! | [`slow`] | the same for everything uncommon |
//! | [`local`] | what a thread is known by |
//! | [`thread`] | what is known of a thread, and how it starts |
//! | [`shadow`] | the shadow stacks: who called whom, and where each really returns to |
//! | [`stacks`] | which stacks there are, and who runs on which |
//! | [`stack`] | where the real stacks are |
//! | [`unwind`] | staying out of the way of exceptions |
//! | [`writer`] | the writing end of a ring |
//! | [`budget`] | what recording may cost a thread |
//! | [`watch`] | functions of runtimes whose arguments are told |
//! | [`gum`] | the functions that Frida's own hooks take |
//! | [`follow`] | children that are followed |
//! | [`gate`] | holding the program until it is hooked |
//! | [`mailbox`] | waiting for the outside |
//! | [`patience`] | how long to wait for the outside |
//! | [`open`] | what the outside calls, through Frida or in a thread that it borrows |
//! | `borrowed` | what such a thread runs |
//! | `freestanding` | what the compiler takes for granted |
//! | [`sys`] | system calls |

mod borrowed;
mod budget;
mod follow;
#[cfg(not(feature = "outside"))]
mod freestanding;
mod gate;
mod gum;
mod local;
mod mailbox;
mod open;
mod patience;
mod routines;
mod shadow;
mod slow;
mod stack;
mod stacks;
mod sys;
mod thread;
mod unwind;
mod watch;
mod writer;
