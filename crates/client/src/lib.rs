//! The daemon's HTTP API: its types, and a client that waits for answers.
//!
//! The types are the contract: the daemon serialises them, every client reads them, and the
//! OpenAPI document is made from them. Requests refuse fields they do not know, so that a misspelt
//! option is an error and not silence; answers may grow.
//!
//! Deliberately absent: decisions, and anything that is not sent.

#![forbid(unsafe_code)]

pub mod http;
pub mod places;
pub mod stream;
pub mod types;
pub mod uri;
