//! Changes to granted folders: where they are recorded, what is allowed, what was done, and how it
//! is taken back.
//!
//! Each session that may write has a store, a folder of the host that outlives it. The session's
//! broker writes there; whatever is read or undone is done by a clerk of the keeper's. A store is
//! never removed while its session is there.
//!
//! Deliberately absent: the format of what is recorded, and any access to it but by a clerk.

mod asks;
mod audit;
mod authors;
mod clerk;
mod kept;
mod look;
mod places;
mod protect;
mod restore;
mod retention;
mod rules;
mod show;
mod store;
mod wanted;

pub(crate) use asks::KIND as ASK;
pub(crate) use audit::{Occasion, refusal};
pub(crate) use kept::KeptChanges;
pub(crate) use look::Wanted;
pub(crate) use protect::wanted_rules;
pub(crate) use retention::tidy;
pub(crate) use rules::check_name;
pub(crate) use wanted::{check as check_writes, subfolders as check_direct};
