//! Sessions as tools of the Model Context Protocol (MCP), for any client that speaks it: over
//! standard input and output, and over HTTP at the daemon.
//!
//! Whoever calls is a model: it is taught by descriptions, and not trusted. It reaches the sessions
//! that were made here and those the user has named or labelled for it, and no other; it grants
//! itself nothing: folders and hosts are asked of the user. Files are read through the daemon's
//! handles of granted folders and written by a command in the session, so that the session's walls
//! and the folder's door judge everything. What comes back is bounded, and without characters that
//! act.
//!
//! Deliberately absent: answering requests, secrets, rules, and everything else that is the user's
//! alone.

#![forbid(unsafe_code)]

mod call;
mod content;
mod http;
mod inside;
mod link;
mod refusal;
mod server;
mod spot;
mod text;
mod tools;

pub use http::{Http, http};
pub use link::Link;
pub use server::Server;
