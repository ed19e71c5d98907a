//! Records changes of files before they are made, and undoes them.
//!
//! A *store* is the folder of one session: an append-only log of [`record::Entry`], a pack of small
//! contents, copies of larger ones, and for each granted folder a *trash* on its own mount. The
//! [`hand`] makes every change of a granted folder: it saves, records and then acts. The broker of a
//! session moves it, and so does whoever undoes, so that an undo is recorded like anything else.
//! [`model`] says from the records what became of each name; [`undo`] brings names back.
//!
//! Deliberately absent: whether a change is allowed (`cowork-policy`), whose call it is and which
//! file it means (the broker), and processes.

#![forbid(unsafe_code)]

pub mod acl;
pub mod diff;
mod frames;
pub mod hand;
pub mod log;
mod meta;
pub mod model;
pub mod record;
pub mod save;
pub mod undo;
