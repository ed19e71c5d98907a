//! What crosses a process boundary, versioned.
//!
//! Three programs talk to each other: a client (the command line, later the daemon), the keeper,
//! and the init of each session. All messages are here, with the plan that describes a session.
//! A message is one packet of a `SOCK_SEQPACKET` socket; descriptors travel beside it. The first byte
//! of every packet is [`GENERATION`].
//!
//! Deliberately absent: sockets (`cowork-sandbox` has them), decisions (`cowork-policy`), any type that
//! is not sent, and a framing for streams: nothing of this is sent through one. New variants are added
//! at the end of an enum; anything else that changes the encoding of an old message needs a new
//! generation (`tests/frozen.rs` keeps the definitions of this one; docs/compatibility.md).

#![forbid(unsafe_code)]

mod codec;
pub mod egress;
pub mod files;
pub mod guest;
pub mod keeper;
pub mod plan;
pub mod seed;
pub mod starter;

pub use codec::{DecodeError, GENERATION, MAX_MESSAGE, decode, encode, number_of};

/// Bytes that a person wrote and the kernel reads: a path, an argument, a variable. Not
/// necessarily UTF-8, never with a NUL inside.
pub type Text = Vec<u8>;
