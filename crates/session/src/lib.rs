//! What a session is between commands, and what agents in it are asked and say.

#![forbid(unsafe_code)]

#[cfg(feature = "catalogue")]
pub mod catalogue;
pub mod life;
pub mod output;
pub mod speech;
pub mod task;
