//! The way out of a session: the only process through which anything of a session reaches a host.
//!
//! One process per session, outside of it. It owns listeners that were made in the session's network
//! and handed out, so that nothing of ours runs inside; it learns where a connection wants to go from
//! the address it was made to (each stands for a name), from the HTTP or the SOCKS proxy; it decides
//! by rules, or lets the user decide; it dials, and carries bytes.
//!
//! Invariants: nothing is dialled without an [`office::Allowed`], which only a decision makes; the
//! address that was judged is the address that is dialled; every decision is recorded before it takes
//! effect; a secret leaves only over verified TLS, to a host of its rule.
//!
//! Deliberately absent: policy (`cowork-policy`), the store of secrets and the user (the daemon).

#![forbid(unsafe_code)]

mod arrival;
pub mod capture;
mod captures;
pub mod confine;
mod descriptors;
mod desk;
pub mod dial;
mod dns;
mod errand;
pub mod flow;
pub mod hello;
pub mod house;
pub mod http;
mod kept;
mod ledger;
pub mod line;
mod lookup;
pub mod names;
pub mod office;

mod parent;
pub mod prefixed;
mod proxy;
mod publish;
pub mod quota;
mod refusal;
mod refused_names;
mod relay;
mod renew;
mod socks;
mod whose;
