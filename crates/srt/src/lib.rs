//! Settings of srt (`@anthropic-ai/sandbox-runtime`) and of Claude Code's sandbox, in the words of
//! cowork.
//!
//! [`Settings::parse`] reads a settings file as srt does. A key that srt knows on Linux and that
//! cannot be honoured is an error with its name, so that no settings are in force in part; a key
//! that nobody knows is given back to be told. [`network::rules`] makes rules of domains,
//! [`paths`] says which paths are meant, [`writes`] which names no command may change, and
//! [`import`] writes a policy file.
//!
//! Deliberately absent: looking at a disk. Whoever carries out walks folders with
//! [`glob::Glob`], and follows links.

#![forbid(unsafe_code)]

pub mod address;
pub mod claude;
pub mod domain;
pub mod glob;
pub mod import;
pub mod mask;
pub mod network;
pub mod paths;
mod read;
pub mod settings;
pub mod shell;
pub mod writes;

pub use read::{Issue, Wrong};
pub use settings::{Read, Settings};
