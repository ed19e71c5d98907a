//! Real programs in sessions: each does its work in a granted folder, and the host looks at it.

mod builds;
mod nested;
mod node;
mod python;
mod shell;
mod terminal;
pub(crate) mod tty;
