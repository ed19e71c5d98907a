//! The API is what its document says: the document is served as it is committed, and requests that
//! are made up from it meet no failure and no answer that it does not know.
//!
//! The made-up requests need schemathesis, which `cargo xtask test` installs; without it that test
//! is ignored, and counted as such.

#![forbid(unsafe_code)]

#[cfg(test)]
mod address;
#[cfg(test)]
mod made_up;
#[cfg(test)]
mod site;
#[cfg(test)]
mod websocket;
