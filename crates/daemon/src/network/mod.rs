//! The network of sessions: rules, the process that is a session's way out, secrets, and what is
//! recorded.
//!
//! A session without a network has none of this. One with a network has an egress process before its
//! first command runs; what it may reach is checked, recorded, and then in force.
//!
//! Deliberately absent: decisions about connections and requests, which the egress process makes by
//! its rules, and anything that reads what a session sends.

mod asks;
mod bodies;
mod change;
mod files;
mod har;
mod kept;
mod kept_secret;
mod line;
mod parent;
mod parse;
mod placeholder;
mod records;
mod renew;
mod rules;
mod secrets;
mod subject;
mod supervise;
mod tally;
mod told;
mod trust;
mod variables;
mod vault;
mod whose;

pub(crate) use asks::KIND as ASK;
pub(crate) use bodies::folder as bodies_of;
pub(crate) use files::has_files;
pub(crate) use har::har;
pub(crate) use kept::{KeptEgress, KeptNetwork};
pub(crate) use kept_secret::Known;
pub(crate) use line::{Line, Starting};
pub(crate) use parse::{name_of, presets};
pub(crate) use rules::MAX_URL;
pub(crate) use secrets::{Secrets, take_own};
pub(crate) use tally::Tally;
pub(crate) use trust::{certificates, lay as trust_host};
pub(crate) use variables::Variables;
