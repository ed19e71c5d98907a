//! Carries out a plan: the keeper, the init and the broker of sessions, and their client.
//!
//! The keeper holds the host's view and makes sessions; the init is PID 1 of one session and
//! starts its commands; the broker decides, from outside, the system calls that a filter cannot
//! decide by value. Keeper and init have one thread each, and nothing here links an async runtime.
//!
//! Deliberately absent: decisions. What a session gets is in its plan, which `cowork-policy` made.

#![forbid(unsafe_code)]

#[cfg(all(feature = "no-wall-for-control", not(debug_assertions)))]
compile_error!("`no-wall-for-control` is for the control of attacks: nothing is shipped with it");

pub mod away;
pub mod broker;
pub mod channel;
mod clerk;
pub mod client;
mod common;
pub mod folder;
pub mod host;
pub mod init;
pub mod keeper;
mod kernel;
pub mod places;
pub mod seed;
mod starter;

pub use kernel::Failed;
