//! What a session is between commands.

#![forbid(unsafe_code)]

pub mod catalogue;
pub mod life;
pub mod output;
