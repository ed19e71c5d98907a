//! What crosses a process boundary, versioned.
//!
//! Processes of several programs talk to each other: clients (the command line, the daemon), the
//! keeper with its starter, its seed and its brokers, the init of each session, and egress processes.
//! All messages are here, with the plan that describes a session. A message is one packet of a
//! `SOCK_SEQPACKET` socket; descriptors travel beside it. The first byte of every packet is
//! [`GENERATION`]. Where there is no such socket, as between machines, the same packets go over a
//! stream, in frames ([`frame`]).
//!
//! Deliberately absent: sockets (`cowork-sandbox` has them), decisions (`cowork-policy`), and any type
//! that is not sent. New variants are added at the end of an enum; anything else that changes the
//! encoding of an old message needs a new generation (`tests/frozen.rs` keeps the definitions of this
//! one; docs/compatibility.md).

#![forbid(unsafe_code)]

mod codec;
pub mod egress;
pub mod files;
pub mod frame;
pub mod guest;
pub mod keeper;
pub mod plan;
pub mod seed;
pub mod starter;

pub use codec::{DecodeError, GENERATION, MAX_MESSAGE, decode, encode, number_of};

/// Bytes that a person wrote and the kernel reads: a path, an argument, a variable. Not
/// necessarily UTF-8, never with a NUL inside.
pub type Text = Vec<u8>;
