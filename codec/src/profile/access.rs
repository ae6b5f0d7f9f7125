//! Who may send.

use crate::heph::wire::wire_struct;

wire_struct! {
    /// What the sender proves with that it may send: the first packet of an encrypted connection.
    pub struct Token<'a> as "token" {
        /// The secret that both sides know.
        pub token: &'a [u8],
    }

    /// That the session is the sender's own: stands before `session`.
    pub struct Claim<'a> as "claim" {
        /// What its id was made of.
        pub secret: &'a [u8],
    }

    /// The collector takes nothing from this sender.
    pub struct Refused<'a> as "refused" {
        /// Why, and what to do, for people.
        pub reason: &'a str,
    }
}
